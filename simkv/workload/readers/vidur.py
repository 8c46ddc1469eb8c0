"""Vidur's trace files: lengths, with or without arrivals (its Splitwise file has them).

``pd_ratio`` and the totals are derived, and mean different things in different files, so they
are not read.
"""

from collections.abc import Sequence
from pathlib import Path

from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import offsets, seconds
from simkv.workload.readers.format import Format, Head, ReadOptions, read_head, trace_name
from simkv.workload.readers.table import Parse, integers, read_table
from simkv.workload.trace import Floats, Trace

_LENGTHS: dict[str, Parse] = {"num_prefill_tokens": integers, "num_decode_tokens": integers}


def _recognise(head: Head) -> bool:
    return set(head.columns()) >= set(_LENGTHS)


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    wanted = dict(_LENGTHS)
    if "arrived_at" in read_head(paths[0]).columns():
        wanted["arrived_at"] = offsets
    table = read_table(paths, wanted)
    arrival_s: Floats | None = None
    notes: list[str] = []
    if "arrived_at" in wanted:
        arrival_s, notes = seconds(table.columns["arrived_at"])
    return assemble(
        Columns(
            arrival_s=arrival_s,
            prompt_tokens=table.columns["num_prefill_tokens"],
            output_tokens=table.columns["num_decode_tokens"],
        ),
        place=table.place,
        name=trace_name(paths),
        notes=notes,
    )


VIDUR = Format(
    name="vidur",
    about="Vidur and Splitwise-sim lengths, with or without arrivals (CSV)",
    recognise=_recognise,
    read=_read,
)
