"""CSV files of one's own, with named columns.

======================  =========================================================
column                  names that are understood
======================  =========================================================
prompt tokens           prompt_tokens, input_tokens, input_length
output tokens           output_tokens, completion_tokens, output_length
arrival (optional)      arrival_s: seconds; timestamp: date-times or seconds
session (optional)      session, session_id
turn (optional)         turn: must increase within a session in order of arrival
tenant (optional)       tenant, user: any names
priority (optional)     priority: whole numbers, the smallest first
think time (optional)   think_s: seconds between the end of the turn before and this
======================  =========================================================

An empty arrival is one that is not known: the turn then follows the one before it.
"""

import difflib
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from simkv.errors import TraceError
from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import instants, offsets, seconds
from simkv.workload.readers.format import Format, Head, ReadOptions, lines, read_head, trace_name
from simkv.workload.readers.table import Labels, Parse, Table, integers, numbers, read_table
from simkv.workload.trace import Floats, Trace

NAMES = {
    "prompt": ("prompt_tokens", "input_tokens", "input_length"),
    "output": ("output_tokens", "completion_tokens", "output_length"),
    "arrival": ("arrival_s", "timestamp"),
    "session": ("session", "session_id"),
    "turn": ("turn",),
    "tenant": ("tenant", "user"),
    "priority": ("priority",),
    "think": ("think_s",),
}
_REQUIRED = ("prompt", "output")


def _chosen(columns: Sequence[str]) -> dict[str, str]:
    """Map what a column means to its name in this file."""
    found = {}
    for meaning, names in NAMES.items():
        present = [name for name in names if name in columns]
        if present:
            found[meaning] = present[0]
    return found


def _recognise(head: Head) -> bool:
    return any(name in head.columns() for name in NAMES["prompt"] + NAMES["output"])


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    header = read_head(paths[0]).columns()
    chosen = _chosen(header)
    _check(paths[0], header, chosen)
    sessions, tenants = Labels(), Labels()
    parsers: dict[str, Parse] = {
        "prompt": integers,
        "output": integers,
        "arrival": _clock(paths[0], chosen.get("arrival", "")),
        "session": sessions.parse,
        "turn": integers,
        "tenant": tenants.parse,
        "priority": integers,
        "think": numbers,
    }
    table = read_table(paths, {name: parsers[meaning] for meaning, name in chosen.items()})
    columns = {meaning: table.columns[name] for meaning, name in chosen.items()}
    arrival_s: Floats | None = None
    notes: list[str] = []
    if "arrival" in columns:
        arrival_s, notes = seconds(columns["arrival"])
    if "session" in columns and "turn" in columns:
        _check_turns(table, columns, arrival_s)
    if tenants.numbers:
        named = ", ".join(f"{number} is {name}" for name, number in tenants.numbers.items())
        notes.append(f"tenants: {named}")
    if ignored := [name for name in header if name not in chosen.values()]:
        notes.append(f"columns not read: {', '.join(ignored)}")
    return assemble(
        Columns(
            prompt_tokens=columns["prompt"],
            output_tokens=columns["output"],
            arrival_s=arrival_s,
            session=columns.get("session"),
            think_s=columns.get("think"),
            tenant=np.maximum(columns["tenant"], 0) if "tenant" in columns else None,
            priority=columns.get("priority"),
        ),
        place=table.place,
        name=trace_name(paths),
        notes=notes,
    )


def _clock(path: Path, column: str) -> Parse:
    """Choose how times are read, by the first that there is."""
    if column != "timestamp":
        return offsets
    at = read_head(path).columns().index(column)
    rows = itertools.islice(lines(path), 1, 1000)
    cells = (line.split(",")[at].strip().strip('"') for _, line in rows if line.count(",") >= at)
    first = next((cell for cell in cells if cell), "")
    return instants if re.search(r"\d[-:]\d", first) else offsets


def _check(path: Path, header: Sequence[str], chosen: dict[str, str]) -> None:
    """Refuse a file that lacks a length, or has a column that looks misspelled."""
    for meaning in _REQUIRED:
        if meaning not in chosen:
            raise TraceError(
                f"has no column for {meaning} tokens; found {', '.join(header)}, "
                f"expected one of {', '.join(NAMES[meaning])}",
                file=path,
                line=1,
            )
    free = [name for meaning in NAMES if meaning not in chosen for name in NAMES[meaning]]
    for name in header:
        if near := difflib.get_close_matches(name, free, n=1, cutoff=0.8):
            raise TraceError(
                f"column {name!r} is not known; did you mean {near[0]!r}? (rename or remove it)",
                file=path,
                line=1,
            )


def _check_turns(
    table: Table, columns: dict[str, npt.NDArray[Any]], arrival_s: Floats | None
) -> None:
    rows = len(columns["turn"])
    order = np.argsort(np.zeros(rows) if arrival_s is None else arrival_s, kind="stable")
    order = order[np.argsort(columns["session"][order], kind="stable")]
    session, turn = columns["session"][order], columns["turn"][order]
    wrong = (session[1:] == session[:-1]) & (session[1:] >= 0) & (turn[1:] <= turn[:-1])
    if wrong.any():
        at = int(np.argmax(wrong)) + 1
        file, line = table.place(int(order[at]))
        raise TraceError(
            f"turn {turn[at]} arrives after turn {turn[at - 1]} of its session, expected turns to "
            "increase with arrival",
            file=file,
            line=line,
        )


PLAIN = Format(
    name="csv",
    about="CSV with named columns: prompt_tokens, output_tokens, arrival_s, session, ...",
    recognise=_recognise,
    read=_read,
)
