"""The cost models that can be chosen, as frozen values: what a configuration says."""

from dataclasses import dataclass
from typing import Literal

from simkv.errors import ConfigError

_LONGEST_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """Step times from a profile: kernel measurements and an interpolation between them.

    Parameters
    ----------
    profile
        Name of a shipped profile (``simkv profiles``) or a path; None takes the one measured on
        the chosen device.
    host_overhead_s
        Host time that every step adds; None takes the profile's.
    """

    kind: Literal["table"] = "table"
    profile: str | None = None
    host_overhead_s: float | None = None

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_part("host_overhead_s", self.host_overhead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Step times from FLOPs and bytes against the device's peaks, for what has no table.

    Parameters
    ----------
    flops_ratio, bandwidth_ratio
        Share of the peak that kernels reach.
    host_overhead_s
        Host time that every step adds.
    """

    kind: Literal["roofline"] = "roofline"
    flops_ratio: float = 0.6
    bandwidth_ratio: float = 0.8
    host_overhead_s: float = 0.002

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        for name in ("flops_ratio", "bandwidth_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ConfigError(
                    f"got {getattr(self, name)}, expected a ratio above 0 and up to 1",
                    path=f"cost.{name}",
                )
        _check_part("host_overhead_s", self.host_overhead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Step time as a sum of products: what is counted in a step times what one of it takes.

    The first four terms are the model of vLLM's timed step logs and what closed forms are checked
    with; the others are zero there, and are fitted to an engine's own steps (``simkv.fit.steps``).

    Parameters
    ----------
    base_s
        Every step.
    prefill_token_s
        A prompt token.
    decode_s
        A request that decodes.
    context_token_s
        A token that an entry attends to, its own included.
    prefill_s
        A request that prefills.
    pair_s
        A query token of a prefill against one key.
    mixed_s
        A step that has both prefills and decodes.
    """

    kind: Literal["linear"] = "linear"
    base_s: float = 0.0
    prefill_token_s: float = 0.0
    decode_s: float = 0.0
    context_token_s: float = 0.0
    prefill_s: float = 0.0
    pair_s: float = 0.0
    mixed_s: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        for name in ("base_s", "prefill_token_s", "decode_s", "context_token_s", "prefill_s",
                     "pair_s", "mixed_s"):  # fmt: skip
            _check_part(name, getattr(self, name))


Cost = MeasuredTable | Roofline | Linear


def _check_part(name: str, seconds: float | None) -> None:
    """Refuse a part of a step time that would turn the clock back, or run it out of its digits."""
    if seconds is not None and not 0 <= seconds <= _LONGEST_S:
        raise ConfigError(
            f"got {seconds}, expected 0 or more, at most {_LONGEST_S:g} s", path=f"cost.{name}"
        )
