"""Azure's LLM inference traces: 2023 (Splitwise), 2024 (DynamoLLM), 2025 multimodal (ModServe).

One format, three ways to write a time. Lengths only: the content of requests is not known.
"""

from collections.abc import Sequence
from pathlib import Path

from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import instants, seconds
from simkv.workload.readers.format import Format, Head, ReadOptions, read_head, trace_name
from simkv.workload.readers.table import Parse, integers, read_table
from simkv.workload.trace import Trace

_COLUMNS: dict[str, Parse] = {
    "TIMESTAMP": instants,
    "ContextTokens": integers,
    "GeneratedTokens": integers,
}


def _recognise(head: Head) -> bool:
    return set(head.columns()) >= set(_COLUMNS)


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    wanted = dict(_COLUMNS)
    if all("NumImages" in read_head(path).columns() for path in paths):
        wanted["NumImages"] = integers
    table = read_table(paths, wanted)
    arrival_s, _ = seconds(table.columns["TIMESTAMP"])
    notes = []
    if "NumImages" in wanted and (images := int(table.columns["NumImages"].sum())):
        notes.append(f"{images:,} images count by the tokens in ContextTokens only")
    return assemble(
        Columns(
            arrival_s=arrival_s,
            prompt_tokens=table.columns["ContextTokens"],
            output_tokens=table.columns["GeneratedTokens"],
        ),
        place=table.place,
        name=trace_name(paths),
        notes=notes,
    )


AZURE = Format(
    name="azure",
    about="Azure LLM inference traces of 2023, 2024 and 2025 (CSV; lengths and times)",
    recognise=_recognise,
    read=_read,
)
