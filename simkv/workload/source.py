"""Where requests come from, as frozen values: what a configuration says.

``load.py`` turns a value into a ``Trace``.
"""

from dataclasses import dataclass, field
from typing import Literal

from simkv.errors import ConfigError
from simkv.workload.clones import ShareWithin
from simkv.workload.servegen import ServeGen
from simkv.workload.synthetic import Synthetic


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """What is done to a trace before it is simulated, in the order of the fields.

    Parameters
    ----------
    start_s, duration_s
        Keep the arrivals of this window (None: to the end), moved to start at zero.
    keep_ratio
        Keep this share of the requests (whole sessions where there are sessions), at random.
    resample
        Draw whole sessions, or 60 s windows where there are none, with replacement: what a seed
        of a sweep means on a trace.
    rate_scale
        Divide the times between arrivals by this.
    max_requests
        Keep the first so many in order of arrival.
    too_long
        What becomes of a request whose prompt and output pass the model's limit. ``keep``: the
        simulator rejects it, with its reason. ``clip``: it is shortened, counted in the notes.
    share_within
        Whose prefixes a request may hit: of ``all``, or only of its own ``tenant`` or ``session``
        (a request without a session then shares with nobody).
    num_samples
        Outputs asked for each prompt: every request becomes so many, one behind the other.
    patience_s
        Longest time from arrival to end that a client waits before it gives up (None: as the trace
        says, mostly for ever).
    loop
        ``open``: every request arrives at its time. ``closed``: a follow-up turn arrives when
        its predecessor has finished and its think time has passed. ``auto``: closed exactly where
        the trace knows no arrival time.
    """

    start_s: float = 0.0
    duration_s: float | None = None
    keep_ratio: float = 1.0
    resample: bool = False
    rate_scale: float = 1.0
    max_requests: int | None = None
    too_long: Literal["keep", "clip"] = "keep"
    share_within: ShareWithin = "all"
    num_samples: int = 1
    patience_s: float | None = None
    loop: Literal["auto", "open", "closed"] = "auto"

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        checks = (
            ("start_s", self.start_s >= 0, "0 or more"),
            ("duration_s", self.duration_s is None or self.duration_s > 0, "more than 0"),
            ("keep_ratio", 0 < self.keep_ratio <= 1, "a ratio above 0 and up to 1"),
            ("rate_scale", self.rate_scale > 0, "more than 0"),
            ("max_requests", self.max_requests is None or self.max_requests > 0, "1 or more"),
            ("num_samples", self.num_samples > 0, "1 or more"),
            ("patience_s", self.patience_s is None or self.patience_s > 0, "more than 0"),
        )
        for name, holds, expected in checks:
            if not holds:
                raise ConfigError(
                    f"got {getattr(self, name)}, expected {expected}",
                    path=f"workload.transform.{name}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFile:
    """A recorded trace.

    Parameters
    ----------
    path
        A file, a folder of files of one format, or ``sample:NAME`` for a shipped sample.
    format
        Name of the format; ``auto`` recognises it.
    tokenizer
        ``tokenizer.json`` for formats that hold text; None counts words.
    transform
        What is done to it.
    """

    kind: Literal["trace"] = "trace"
    path: str = "sample:sharegpt-agents"
    format: str = "auto"
    tokenizer: str | None = None
    transform: Transform = field(default_factory=Transform)


Workload = TraceFile | Synthetic | ServeGen
