"""From the rows of a file to a trace that holds what every trace must.

Every reader ends here, so that the rules for bad lengths, empty prompts, order and sessions are
the same for all formats, and what was decided is in the notes.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import TraceError
from simkv.workload.trace import MAX_TOKENS, Floats, Ints, Trace, make_trace

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a reader found, one entry a row of the file, in the order of the file.

    Parameters
    ----------
    prompt_tokens, output_tokens
        Lengths.
    arrival_s
        Seconds; NaN or None where there is no arrival.
    segments
        Content, as ``Trace.segments`` gives it; None where there is none.
    session
        Any key that is equal within a session; None, or -1 in an array, for a row without one.
        Turns are counted, and each turn follows the one before it, in order of arrival.
    after
        Row that releases this one (-1: none), where the file itself says so; then ``session`` does
        not set it.
    think_s, tenant, priority
        As in ``Trace``.
    """

    prompt_tokens: Sequence[int] | Ints
    output_tokens: Sequence[int] | Ints
    arrival_s: Sequence[float] | Floats | None = None
    segments: Sequence[Sequence[tuple[int, int]]] | None = None
    session: Sequence[Hashable | None] | Ints | None = None
    after: Sequence[int] | Ints | None = None
    think_s: Sequence[float] | Floats | None = None
    tenant: Sequence[int] | Ints | None = None
    priority: Sequence[int] | Ints | None = None


def assemble(
    columns: Columns,
    *,
    place: Callable[[int], tuple[str, int]],
    name: str,
    granularity_tokens: int = 0,
    notes: Sequence[str] = (),
) -> Trace:
    """Make a trace of a file's rows: check, drop what cannot be simulated, sort by arrival.

    Rows without a prompt token are dropped and counted. The rest is sorted stably by arrival, so
    ties keep the order of the file; rows without an arrival of their own go last, in that order.

    Parameters
    ----------
    columns
        The rows.
    place
        Gives ``(file, line)`` of a row, for errors.
    name, granularity_tokens, notes
        As in ``Trace``; notes about what was done here are added.

    Raises
    ------
    TraceError
        With file and line, where a length is negative or beyond all reason.
    """
    prompt_tokens = np.asarray(columns.prompt_tokens, dtype=np.int64)
    output_tokens = np.asarray(columns.output_tokens, dtype=np.int64)
    for what, lengths in (("prompt", prompt_tokens), ("output", output_tokens)):
        if len(lengths) and lengths.min() < 0:
            row = int(np.argmax(lengths < 0))
            file, line = place(row)
            raise TraceError(
                f"{what} length is {lengths[row]} tokens, expected 0 or more", file=file, line=line
            )
        if len(lengths) and lengths.max() > MAX_TOKENS:
            row = int(np.argmax(lengths))
            file, line = place(row)
            raise TraceError(
                f"{what} length is {lengths[row]:,} tokens, expected at most {MAX_TOKENS:,}",
                file=file,
                line=line,
            )
    rows = len(prompt_tokens)
    arrival_s = (
        np.full(rows, np.nan)
        if columns.arrival_s is None
        else np.asarray(columns.arrival_s, dtype=np.float64)
    )
    kept = np.flatnonzero(prompt_tokens > 0)
    order = kept[np.argsort(arrival_s[kept], kind="stable")]
    as_it_is = len(order) == rows and bool((np.diff(order) == 1).all())

    def taken(values: Any, dtype: type) -> npt.NDArray[Any] | None:
        if values is None:
            return None
        column: npt.NDArray[Any] = np.asarray(values, dtype=dtype)
        return column if as_it_is else column[order]

    session, turn, previous = _sessions(columns.session, order)
    after = None if columns.after is None else np.asarray(columns.after, dtype=np.int64)
    return make_trace(
        arrival_s=taken(arrival_s, np.float64),
        prompt_tokens=prompt_tokens if as_it_is else prompt_tokens[order],
        output_tokens=output_tokens if as_it_is else output_tokens[order],
        segments=None if columns.segments is None else [columns.segments[row] for row in order],
        session=session,
        turn=turn,
        after=previous if after is None else _moved(after, order),
        think_s=taken(columns.think_s, np.float64),
        tenant=taken(columns.tenant, np.int64),
        priority=taken(columns.priority, np.int64),
        granularity_tokens=granularity_tokens,
        name=name,
        notes=(*notes, *_notes(prompt_tokens, output_tokens[kept], arrival_s[kept])),
    )


def _sessions(
    keys: Sequence[Hashable | None] | Ints | None, order: Rows
) -> tuple[Ints | None, Ints | None, Ints | None]:
    """Give sessions numbers by first arrival; return session, turn and previous turn's row."""
    if keys is None:
        return None, None, None
    if isinstance(keys, np.ndarray):
        keys = [None if key < 0 else key for key in keys.tolist()]
    session, turn, after = (np.full(len(order), fill) for fill in (-1, 0, -1))
    numbers: dict[Hashable, int] = {}
    last: dict[Hashable, int] = {}
    for row, source in enumerate(order.tolist()):
        key = keys[source]
        if key is None:
            continue
        session[row] = numbers.setdefault(key, len(numbers))
        if key in last:
            after[row] = last[key]
            turn[row] = turn[last[key]] + 1
        last[key] = row
    return session, turn, after


def _moved(after: Ints, order: Rows) -> Ints:
    """Point ``after`` at the new rows; past a dropped row, at the row that released that one."""
    place = np.full(len(after), -1)
    place[order] = np.arange(len(order))
    moved = np.full(len(order), -1)
    for row, source in enumerate(order.tolist()):
        before = int(after[source])
        while before >= 0 and place[before] < 0:
            before = int(after[before])
        moved[row] = place[before] if before >= 0 else -1
    return moved


def _notes(prompt_tokens: Ints, output_tokens: Ints, arrival_s: Floats) -> list[str]:
    notes = []
    if empty := int((prompt_tokens == 0).sum()):
        notes.append(f"{empty:,} rows with an empty prompt were dropped")
    if silent := int((output_tokens == 0).sum()):
        notes.append(f"{silent:,} requests have no output token")
    known = arrival_s[~np.isnan(arrival_s)]
    if inversions := int((np.diff(known) < 0).sum()):
        notes.append(f"rows were sorted by arrival ({inversions:,} inversions)")
    if len(arrival_s) and not len(known):
        notes.append("the trace knows no arrival times")
    return notes
