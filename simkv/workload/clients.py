"""ServeGen client models: what their files hold.

A client is two files. ``chunk-N-trace.csv`` has no header and one row a window: ``start s, rate
req/s, CV, Gamma | Weibull | nothing, shape, scale``; a window without a law is idle.
``chunk-N-dataset.json`` (perhaps with ``.gz``) maps the start of longer windows to histograms of
lengths, each a string that holds a Python dict literal; ``{}`` where the client was idle. The
format is that of the ServeGen release (arXiv 2505.09999).
"""

import ast
import gzip
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simkv.errors import TraceError
from simkv.workload.lengths import draw_index
from simkv.workload.trace import Floats, Ints

CLIENT_FILE = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)")


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


def read_clients(folder: Path, numbers: Collection[int] | None = None) -> list[Client]:
    """Read the client models of a folder, all or those of these numbers, in order of number.

    Raises
    ------
    TraceError
        Where there are none, or one cannot be read (with file and line).
    """
    found = sorted(
        (int(match[1]), path)
        for path in (folder.iterdir() if folder.is_dir() else ())
        if (match := CLIENT_FILE.fullmatch(path.name))
        and match[2] == "trace.csv"
        and (numbers is None or int(match[1]) in numbers)
    )
    if not found:
        raise TraceError("expected a folder with files chunk-N-trace.csv, found none", file=folder)
    return [_read_client(number, path) for number, path in found]


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
