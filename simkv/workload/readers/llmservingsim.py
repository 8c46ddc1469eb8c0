"""LLMServingSim (MIT): token ids, flat requests and agentic sessions, also mixed in one file.

A flat row is a request with its arrival. A row with ``sub_requests`` is a session: its first
request arrives with it, each later one ``tool_duration_ns`` after the one before has ended, where
the duration is a field of that one.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from simkv.errors import TraceError
from simkv.units import NS_PER_S
from simkv.workload.readers.clock import UNKNOWN_NS
from simkv.workload.readers.fields import length, time_ns
from simkv.workload.readers.format import Format, Head, ReadOptions, json_lines, trace_name
from simkv.workload.readers.tokens import TokenRow, TokenRows
from simkv.workload.trace import Ints, Trace


def _recognise(head: Head) -> bool:
    return bool(head.keys() & {"input_toks", "sub_requests"})


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    found = TokenRows()
    for path in paths:
        for line, row in json_lines(path):
            if "sub_requests" in row:
                found.rows += _session(row, path, line)
            else:
                arrival_ns = time_ns(row, "arrival_time_ns", 1, file=path, line=line)
                found.rows.append(_request(row, path, line, time_ns=arrival_ns))
    return found.trace(name=trace_name(paths), notes=[])


def _session(row: Mapping[str, Any], path: Path, line: int) -> list[TokenRow]:
    inner = row["sub_requests"]
    if not isinstance(inner, list) or not all(isinstance(request, dict) for request in inner):
        raise TraceError("sub_requests is no list of objects", file=path, line=line)
    arrival_ns = time_ns(row, "arrival_time_ns", 1, file=path, line=line)
    key = (str(path), row.get("session_id", line))
    requests = []
    think_s = float("nan")
    for request in inner:
        requests.append(
            _request(request, path, line, time_ns=arrival_ns, session=key, think_s=think_s)
        )
        arrival_ns = UNKNOWN_NS
        think_s = (
            time_ns(request, "tool_duration_ns", 1, file=path, line=line) / NS_PER_S
            if "tool_duration_ns" in request
            else 0.0
        )
    return requests


def _request(row: Mapping[str, Any], path: Path, line: int, **known: Any) -> TokenRow:
    return TokenRow(
        file=path,
        line=line,
        prompt_tokens=length(row, "input_toks", file=path, line=line),
        output_tokens=length(row, "output_toks", file=path, line=line),
        prompt=_ids(row, "input_tok_ids", "input_toks", path, line),
        output=_ids(row, "output_tok_ids", "output_toks", path, line),
        **known,
    )


def _ids(row: Mapping[str, Any], key: str, length_key: str, path: Path, line: int) -> Ints | None:
    if row.get(key) is None:
        return None
    try:
        ids: Ints = np.array(row[key], dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        ids = np.zeros((), dtype=np.int64)
    if ids.ndim != 1:
        raise TraceError(f"{key} is no list of whole numbers", file=path, line=line) from None
    if ids.shape != (row[length_key],):
        raise TraceError(
            f"{key} holds {ids.size} ids, but {length_key} is {row[length_key]}",
            file=path,
            line=line,
        )
    return ids


LLMSERVINGSIM = Format(
    name="llmservingsim",
    about="LLMServingSim (JSONL; token ids), flat and agentic",
    recognise=_recognise,
    read=_read,
)
