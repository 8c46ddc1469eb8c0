"""Traffic generated from ServeGen client models.

What is generated: the number of requests that a window's rate stands for, spread by gaps of the
window's law. The fitted scale is not used: the rate counts the requests of the whole window, while
the scale was fitted to the gaps of the bursts in it, so that the two contradict each other in many
windows of the release.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from simkv.errors import ConfigError, TraceError
from simkv.rng import stream
from simkv.workload.clients import CLIENT_FILE, Client, Histogram, read_clients
from simkv.workload.trace import Floats, Ints, Trace, make_trace

MAX_READ_REQUESTS = 1_000_000
_MAX_REQUESTS = 50_000_000
_MODALITIES = ("image", "audio", "video")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeGen:
    """Traffic generated from a folder of ServeGen client models.

    Parameters
    ----------
    path
        Folder that holds ``chunk-N-trace.csv`` and ``chunk-N-dataset.json``.
    start_s, duration_s
        The part of the recorded days that is generated, moved to start at zero; None: to the end.
    rate_scale
        Factor on every client's rate.
    """

    kind: Literal["servegen"] = "servegen"
    path: str
    start_s: float = 0.0
    duration_s: float | None = 3600.0
    rate_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        checks = (
            ("path", bool(self.path), "a folder of ServeGen clients"),
            ("start_s", 0 <= self.start_s < math.inf, "0 or more"),
            (
                "duration_s",
                self.duration_s is None or 0 < self.duration_s < math.inf,
                "more than 0",
            ),
            ("rate_scale", 0 < self.rate_scale < math.inf, "more than 0"),
        )
        for name, holds, expected in checks:
            if not holds:
                raise ConfigError(
                    f"got {getattr(self, name)!r}, expected {expected}", path=f"workload.{name}"
                )


def generate(workload: ServeGen, *, seed: int) -> Trace:
    """Draw a trace: the requests of all clients, in order of arrival; ``tenant`` is the client.

    Every window holds the number of requests that its rate stands for (a fraction is rounded up
    as often as it says), and ServeGen knows no content, so requests share nothing.

    Raises
    ------
    TraceError
        Where a client cannot be read, or nothing arrives in the part that was asked for.
    """
    folder = Path(workload.path)
    return _superpose(read_clients(folder), workload, seed=seed, notes=())


def generate_files(files: Sequence[Path], *, seed: int) -> Trace:
    """Draw a trace from the clients that these files belong to: what reading them means.

    From the start of the recorded days to their end, or as far as ``MAX_READ_REQUESTS`` reach,
    which is said in the notes.
    """
    numbers = {int(match[1]) for file in files if (match := CLIENT_FILE.match(file.name))}
    clients = read_clients(files[0].parent, numbers)
    whole = ServeGen(path=str(files[0].parent), duration_s=None)
    ends_s = np.unique(np.concatenate([client.window_s + client.period_s for client in clients]))
    upto = [sum(_expected_requests(client, whole, end) for client in clients) for end in ends_s]
    last = max(int(np.searchsorted(upto, MAX_READ_REQUESTS, side="right")) - 1, 0)
    part = dataclasses.replace(whole, duration_s=float(ends_s[last]))
    notes = []
    if last + 1 < len(ends_s):
        notes.append(
            f"only the first {ends_s[last]:,.0f} s of {ends_s[-1]:,.0f} s were generated; "
            "a workload of kind servegen chooses the part"
        )
    return _superpose(clients, part, seed=seed, notes=notes)


def _superpose(
    clients: Sequence[Client], workload: ServeGen, *, seed: int, notes: Sequence[str]
) -> Trace:
    """Return the requests of all these clients in order of arrival."""
    end_s = workload.start_s + (math.inf if workload.duration_s is None else workload.duration_s)
    expected = sum(_expected_requests(client, workload, end_s) for client in clients)
    if expected > _MAX_REQUESTS:
        raise ConfigError(
            f"would generate {expected:,.0f} requests, expected at most {_MAX_REQUESTS:,}; "
            "shorten it or lower rate_scale",
            path="workload.duration_s",
        )
    pieces = [
        piece
        for client in clients
        for piece in _client_requests(
            client, workload, end_s, stream(seed, "servegen", client.number)
        )
    ]
    columns = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    if not columns or not len(columns[0]):
        raise TraceError(
            f"no client sends anything from {workload.start_s:g} s to {end_s:g} s; "
            "choose another part by start_s and duration_s",
            file=workload.path,
        )
    arrival_s, prompt_tokens, output_tokens, tenant = columns
    order = np.argsort(arrival_s, kind="stable")
    notes = [f"generated from {len(clients)} ServeGen clients with seed {seed}", *notes]
    if raised := int((prompt_tokens < 1).sum()):
        notes.append(f"{raised:,} empty prompts were given 1 token")
    return make_trace(
        arrival_s=arrival_s[order] - workload.start_s,
        prompt_tokens=np.maximum(prompt_tokens[order], 1),
        output_tokens=output_tokens[order],
        tenant=tenant[order],
        name=Path(workload.path).name or "servegen",
        notes=tuple(notes),
    )


def _expected_requests(client: Client, workload: ServeGen, end_s: float) -> float:
    begin_s = np.maximum(client.window_s, workload.start_s)
    part_s = np.minimum(client.window_s + client.period_s, end_s) - begin_s
    return float(np.maximum(part_s, 0.0) @ client.rate_per_s) * workload.rate_scale


def _client_requests(
    client: Client, workload: ServeGen, end_s: float, rng: np.random.Generator
) -> Iterator[tuple[Floats, Ints, Ints, Ints]]:
    """Yield ``(arrival_s, prompt, output, tenant)`` for each window, live ones in the part only."""
    for window, begin_s in enumerate(client.window_s.tolist()):
        law, overlaps = client.law[window], begin_s + client.period_s > workload.start_s
        if not law or not overlaps or begin_s >= end_s:
            continue
        mean = float(client.rate_per_s[window]) * workload.rate_scale * client.period_s
        num = math.floor(mean + rng.random())
        arrival_s = begin_s + _spread(law, float(client.shape[window]), num, client.period_s, rng)
        # A last gap near zero rounds to the window's end, which is the next window's.
        arrival_s = np.minimum(arrival_s, np.nextafter(begin_s + client.period_s, begin_s))
        inside = arrival_s[(arrival_s >= workload.start_s) & (arrival_s < end_s)]
        histograms = client.lengths_at(begin_s)
        prompt_tokens, output_tokens = _draw_lengths(histograms, len(inside), rng)
        yield inside, prompt_tokens, output_tokens, np.full(len(inside), client.number)


def _spread(law: str, shape: float, num: int, period_s: float, rng: np.random.Generator) -> Floats:
    """Return ``num`` times within ``period_s``, ascending, with gaps of this law.

    A renewal process that is known to have this many arrivals: its gaps, and the one that reaches
    over the end, scaled to fill the window.
    """
    gaps = rng.gamma(shape, size=num + 1) if law == "Gamma" else rng.weibull(shape, num + 1)
    total = float(gaps.sum())
    if total <= 0:  # a shape near zero can draw nothing but zeros
        return np.zeros(num)
    return np.cumsum(gaps[:-1]) * (period_s / total)


def _draw_lengths(
    histograms: Mapping[str, Histogram], num: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return prompts and outputs; a multimodal prompt is its text and all its parts."""
    text = histograms.get("input_tokens") or histograms["text_tokens"]
    prompt_tokens = text.draw(rng, num)
    for modality in _MODALITIES:
        count, size = histograms.get(f"{modality}_count"), histograms.get(f"{modality}_tokens")
        if count is None or size is None:
            continue
        parts = count.draw(rng, num)
        owner = np.repeat(np.arange(num), parts)
        np.add.at(prompt_tokens, owner, size.draw(rng, len(owner)))
    return prompt_tokens, histograms["output_tokens"].draw(rng, num)
