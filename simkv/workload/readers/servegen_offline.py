"""ServeGen's offline traces: batch jobs, so there are no arrival times.

Traces a to c name content by ids of 16-token blocks, common to the three files, and say nothing
about outputs; d to f have output lengths and no ids.
"""

from collections.abc import Sequence
from pathlib import Path

from simkv.workload.readers.block_ids import BlockIdRows
from simkv.workload.readers.fields import length
from simkv.workload.readers.format import (
    Format,
    Head,
    ReadOptions,
    json_lines,
    trace_name,
)
from simkv.workload.trace import Trace

BLOCK_TOKENS = 16


def _recognise(head: Head) -> bool:
    keys = head.keys()
    return keys >= {"request_id", "input_length"} and "timestamp" not in keys


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    rows = BlockIdRows(BLOCK_TOKENS)
    without_output = 0
    for path in paths:
        for line, row in json_lines(path):
            has_output = "output_length" in row
            without_output += not has_output
            rows.add(
                prompt_tokens=length(row, "input_length", file=path, line=line),
                output_tokens=length(row, "output_length", file=path, line=line)
                if has_output
                else 0,
                ids=row.get("hash_ids"),
                space=0,
                file=path,
                line=line,
            )
    notes = []
    if without_output:
        notes.append(
            f"{without_output:,} requests have no output length in the file and are taken to end "
            "with their prefill"
        )
    return rows.trace(name=trace_name(paths), notes=notes)


SERVEGEN_OFFLINE = Format(
    name="servegen-offline",
    about="ServeGen offline (JSONL; ids of 16-token blocks or output lengths, no times)",
    recognise=_recognise,
    read=_read,
)
