"""ServeGen client models: a folder of fitted clients, superposed into requests.

A client is two files. ``chunk-N-trace.csv`` has no header and one row a window: ``start s, rate
req/s, CV, Gamma | Weibull | nothing, shape, scale``; a window without a law is idle.
``chunk-N-dataset.json`` (perhaps with ``.gz``) maps the start of longer windows to histograms of
lengths, each a string that holds a Python dict literal; ``{}`` where the client was idle.

The format is that of the ServeGen release (arXiv 2505.09999). What is generated: the number of
requests that a window's rate stands for, spread by gaps of the window's law. The fitted scale
is not used: the rate counts the requests of the whole window, while the scale was fitted to the
gaps of the bursts in it, so that the two contradict each other in many windows of the release.
"""

import ast
import gzip
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simkv.errors import ConfigError, TraceError
from simkv.rng import stream
from simkv.workload.lengths import draw_index
from simkv.workload.trace import Floats, Ints, Trace, make_trace

MODALITIES = ("image", "audio", "video")
_TRACE_NAME = re.compile(r"chunk-(\d+)-trace\.csv")
_MAX_REQUESTS = 50_000_000


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A law of lengths: ``tokens`` with their ``weight``, both ``[num_bins]``."""

    tokens: Ints
    weight: Floats

    @property
    def mean(self) -> float:
        """Mean length in tokens."""
        return float(self.tokens @ self.weight / self.weight.sum())

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return ``num`` lengths in tokens."""
        drawn: Ints = self.tokens[draw_index(rng, self.weight, num)]
        return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client model.

    Parameters
    ----------
    number
        The N of its files.
    window_s, rate_per_s, law, shape
        Its windows: start, rate, ``Gamma`` or ``Weibull`` or empty (idle), and the law's shape.
    period_s
        Length of a window.
    lengths
        Histograms by start of their window in s and by field, idle windows left out.
    """

    number: int
    window_s: Floats
    rate_per_s: Floats
    law: tuple[str, ...]
    shape: Floats
    period_s: float
    lengths: Mapping[int, Mapping[str, Histogram]]

    def lengths_at(self, window_s: float) -> Mapping[str, Histogram]:
        """Return the histograms that hold then: the last before, else the first of all."""
        starts = sorted(self.lengths)
        before = [start for start in starts if start <= window_s]
        return self.lengths[before[-1] if before else starts[0]]


def read_clients(folder: Path) -> list[Client]:
    """Read all client models of a folder, in order of their number.

    Raises
    ------
    TraceError
        Where there are none, or one cannot be read (with file and line).
    """
    found = sorted(
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := _TRACE_NAME.fullmatch(path.name))
    )
    if not found:
        raise TraceError("expected a folder with files chunk-N-trace.csv, found none", file=folder)
    return [_read_client(number, path) for number, path in found]


def generate(workload: ServeGen, *, seed: int) -> Trace:
    """Draw a trace: the requests of all clients, in order of arrival; ``tenant`` is the client.

    Every window holds the number of requests that its rate stands for (a fraction is rounded up
    as often as it says), and ServeGen knows no content, so requests share nothing.

    Raises
    ------
    TraceError
        Where a client cannot be read, or nothing arrives in the part that was asked for.
    """
    clients = read_clients(Path(workload.path))
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
    notes = [f"generated from {len(clients)} ServeGen clients with seed {seed}"]
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
        inside = arrival_s[(arrival_s >= workload.start_s) & (arrival_s < end_s)]
        histograms = client.lengths_at(begin_s)
        prompt_tokens, output_tokens = _draw_lengths(histograms, len(inside), rng)
        yield inside, prompt_tokens, output_tokens, np.full(len(inside), client.number)


def _spread(law: str, shape: float, num: int, period_s: float, rng: np.random.Generator) -> Floats:
    """Return ``num`` times within ``[0, period_s)`` with gaps of this law.

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
    for modality in MODALITIES:
        count, size = histograms.get(f"{modality}_count"), histograms.get(f"{modality}_tokens")
        if count is None or size is None:
            continue
        parts = count.draw(rng, num)
        owner = np.repeat(np.arange(num), parts)
        np.add.at(prompt_tokens, owner, size.draw(rng, len(owner)))
    return prompt_tokens, histograms["output_tokens"].draw(rng, num)


def _read_client(number: int, trace_file: Path) -> Client:
    rows = [
        _window(line, trace_file, at)
        for at, line in enumerate(trace_file.read_text(encoding="utf-8-sig").splitlines(), start=1)
        if line.strip()
    ]
    if not rows:
        raise TraceError("holds no window", file=trace_file)
    window_s = np.array([row[0] for row in rows])
    steps_s = np.diff(window_s)
    if len(steps_s) and (steps_s <= 0).any():
        line = int(np.argmax(steps_s <= 0)) + 2
        raise TraceError("window starts before the one above it", file=trace_file, line=line)
    live = any(row[2] for row in rows)
    return Client(
        number=number,
        window_s=window_s,
        rate_per_s=np.array([row[1] for row in rows]),
        law=tuple(row[2] for row in rows),
        shape=np.array([row[3] for row in rows]),
        period_s=float(steps_s.min()) if len(steps_s) else 600.0,
        lengths=_read_lengths(_dataset_file(number, trace_file), live=live),
    )


def _window(line: str, file: Path, at: int) -> tuple[float, float, str, float]:
    """Return ``(start s, rate, law, shape)`` of a row; rate and law are empty where it is idle."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != 6:
        raise TraceError(
            f"expected 6 columns (start, rate, CV, law, shape, scale), got {len(cells)}",
            file=file,
            line=at,
        )
    law = cells[3]
    try:
        start_s, rate_per_s, shape = (float(cells[column]) for column in (0, 1, 4))
    except ValueError as error:
        raise TraceError(f"expected numbers ({error})", file=file, line=at) from error
    if law not in ("", "Gamma", "Weibull"):
        raise TraceError(
            f"expected Gamma, Weibull or nothing in column 4, got {law!r}", file=file, line=at
        )
    if not 0 <= rate_per_s < math.inf or (law and not 0 < shape < math.inf):
        raise TraceError(
            f"expected a rate of 0 or more and a shape above 0, got {cells[1]} and {cells[4]}",
            file=file,
            line=at,
        )
    if rate_per_s > 0 and not law:
        raise TraceError(f"has a rate of {cells[1]} and no law", file=file, line=at)
    return (start_s, rate_per_s, law if rate_per_s > 0 else "", shape)


def _dataset_file(number: int, trace_file: Path) -> Path:
    plain = trace_file.with_name(f"chunk-{number}-dataset.json")
    for path in (plain, plain.with_name(plain.name + ".gz")):
        if path.is_file():
            return path
    raise TraceError(f"has no {plain.name} (or .gz) beside it", file=trace_file)


def _read_lengths(file: Path, *, live: bool) -> dict[int, dict[str, Histogram]]:
    """Read a client's histograms; ``live``: there has to be one."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        windows: dict[str, dict[str, Any]] = json.loads(data)
        lengths = {int(start): _histograms(fields, file) for start, fields in windows.items()}
    except (ValueError, AttributeError, EOFError, gzip.BadGzipFile) as error:
        raise TraceError(
            f"is no ServeGen dataset: expected an object of objects of dict literals ({error})",
            file=file,
        ) from error
    lengths = {start: fields for start, fields in lengths.items() if fields}
    for start, fields in lengths.items():
        if not fields.keys() & {"input_tokens", "text_tokens"} or "output_tokens" not in fields:
            raise TraceError(
                f"window {start} has fields {', '.join(fields)}; expected output_tokens and "
                "input_tokens or text_tokens",
                file=file,
            )
    if live and not lengths:
        raise TraceError("has no histogram, though the client sends requests", file=file)
    return lengths


def _histograms(fields: Mapping[str, Any], file: Path) -> dict[str, Histogram]:
    """Return a window's histograms of tokens and counts; empty where one has no bins (idle)."""
    histograms = {}
    for name, literal in fields.items():
        if not name.endswith(("_tokens", "_count")):
            continue  # reason_ratio: how an output divides into reasoning and answer
        try:
            bins = ast.literal_eval(literal) if isinstance(literal, str) else literal
            tokens = np.array(list(bins.keys()), dtype=np.float64)
            weight = np.array(list(bins.values()), dtype=np.float64)
        except (SyntaxError, TypeError) as error:
            raise TraceError(f"{name} is no dict literal ({error})", file=file) from error
        if not weight.sum() > 0:
            return {}
        if tokens.min() < 0 or weight.min() < 0:
            raise TraceError(f"{name} has a negative length or probability", file=file)
        histograms[name] = Histogram(tokens=np.rint(tokens).astype(np.int64), weight=weight)
    return histograms
