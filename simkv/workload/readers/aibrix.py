"""AIBrix workload files: the requests of each instant, with their text where it was kept.

Where a prompt's text is there, its tokens are counted; a stated length counts only without text.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simkv.errors import TraceError
from simkv.units import MS_PER_S, NS_PER_S
from simkv.workload.readers.fields import length, time_ns
from simkv.workload.readers.format import Format, Head, ReadOptions, json_lines, trace_name
from simkv.workload.readers.tokens import Encoder, TokenRow, TokenRows, encoder
from simkv.workload.trace import Trace

_NS_PER_MS = NS_PER_S // MS_PER_S
# The names before and since the format's change.
_PROMPT_LENGTHS = ("prompt_length", "Prompt Length")
_OUTPUT_LENGTHS = ("output_length", "Output Length")


def _recognise(head: Head) -> bool:
    return head.keys() >= {"timestamp", "requests"}


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    encoding = encoder(options.tokenizer)
    found = TokenRows()
    for path in paths:
        for line, row in json_lines(path):
            arrival_ns = time_ns(row, "timestamp", _NS_PER_MS, file=path, line=line)
            requests = row.get("requests")
            if not isinstance(requests, list) or not all(isinstance(one, dict) for one in requests):
                raise TraceError("requests is no list of objects", file=path, line=line)
            found.rows += [_request(one, arrival_ns, encoding, path, line) for one in requests]
    notes = [encoding.note] if any(row.prompt is not None for row in found.rows) else []
    return found.trace(name=trace_name(paths), notes=notes)


def _request(
    row: Mapping[str, Any], arrival_ns: int, encoding: Encoder, path: Path, line: int
) -> TokenRow:
    prompt = encoding.encode(row["prompt"]) if isinstance(row.get("prompt"), str) else None
    output = encoding.encode(row["completion"]) if isinstance(row.get("completion"), str) else None
    session = row.get("session_id")
    return TokenRow(
        file=path,
        line=line,
        prompt_tokens=(
            len(prompt) if prompt is not None else _stated(row, _PROMPT_LENGTHS, path, line)
        ),
        output_tokens=(
            len(output) if output is not None else _stated(row, _OUTPUT_LENGTHS, path, line)
        ),
        prompt=prompt,
        output=output,
        time_ns=arrival_ns,
        session=None if session is None else str(session),
    )


def _stated(row: Mapping[str, Any], names: Sequence[str], path: Path, line: int) -> int:
    """Return a length under either name; null, which the generator writes, is none."""
    name = next((name for name in names if name in row), names[0])
    if name in row and row[name] is None:
        return 0
    return length(row, name, file=path, line=line)


AIBRIX = Format(
    name="aibrix",
    about="AIBrix workloads (JSONL; the requests of each instant)",
    recognise=_recognise,
    read=_read,
    holds_text=True,
)
