"""BurstGPT, in both releases: lengths and times of ChatGPT and GPT-4 in a campus service.

A row with no response token is a failed request: the service did some unknown part of its work,
or none. Such rows are dropped and counted, as the publishers do in their files without failures.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import offsets, seconds
from simkv.workload.readers.format import Format, Head, ReadOptions, read_head, trace_name
from simkv.workload.readers.table import Labels, Parse, integers, read_table
from simkv.workload.trace import Trace

_SESSION = "Session ID"


def _recognise(head: Head) -> bool:
    return set(head.columns()) >= {"Timestamp", "Model", "Request tokens", "Response tokens"}


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    models, sessions = Labels(), Labels()
    wanted: dict[str, Parse] = {
        "Timestamp": offsets,
        "Model": models.parse,
        "Request tokens": integers,
        "Response tokens": integers,
    }
    if all(_SESSION in read_head(path).columns() for path in paths):
        wanted[_SESSION] = sessions.parse
    table = read_table(paths, wanted)
    columns = table.columns
    answered = np.flatnonzero(columns["Response tokens"] != 0)
    arrival_s, notes = seconds(columns["Timestamp"])
    named = ", ".join(f"{number} is {name}" for name, number in models.numbers.items())
    notes.append(f"the tenant is the model: {named}")
    if failed := len(arrival_s) - len(answered):
        notes.append(f"{failed:,} failed requests (no response token) were dropped")
    return assemble(
        Columns(
            arrival_s=arrival_s[answered],
            prompt_tokens=columns["Request tokens"][answered],
            output_tokens=columns["Response tokens"][answered],
            session=columns[_SESSION][answered] if _SESSION in wanted else None,
            tenant=columns["Model"][answered],
        ),
        place=lambda row: table.place(int(answered[row])),
        name=trace_name(paths),
        notes=notes,
    )


BURSTGPT = Format(
    name="burstgpt",
    about="BurstGPT, both releases (CSV; lengths, times, models, sessions)",
    recognise=_recognise,
    read=_read,
)
