"""Mooncake (FAST'25): times on a 3 s grid, lengths, and ids of blocks of 512 tokens.

Tools that replay such files add ``session_id`` and ``delay`` (milliseconds after the turn before)
and leave ``timestamp`` or ``hash_ids`` away; such rows are taken too. Every file has its own ids.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simkv.units import MS_PER_S, NS_PER_S
from simkv.workload.readers.block_ids import BlockIdRows
from simkv.workload.readers.clock import UNKNOWN_NS
from simkv.workload.readers.fields import length, time_ns
from simkv.workload.readers.format import (
    Format,
    Head,
    ReadOptions,
    json_lines,
    trace_name,
)
from simkv.workload.trace import Trace

BLOCK_TOKENS = 512
_NS_PER_MS = NS_PER_S // MS_PER_S


def _recognise(head: Head) -> bool:
    keys = head.keys()
    return (
        keys >= {"input_length", "output_length"}
        and bool(keys & {"timestamp", "session_id", "delay"})
        and not keys & {"chat_id", "request_id"}
    )


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    rows = BlockIdRows(BLOCK_TOKENS)
    session: list[Hashable | None] = []
    think_s: list[float] = []
    for space, path in enumerate(paths):
        for line, row in json_lines(path):
            rows.add(
                prompt_tokens=length(row, "input_length", file=path, line=line),
                output_tokens=length(row, "output_length", file=path, line=line),
                time_ns=_optional_ns(row, "timestamp", path, line),
                ids=row.get("hash_ids"),
                space=space,
                file=path,
                line=line,
            )
            delay_ns = _optional_ns(row, "delay", path, line)
            key = row.get("session_id")
            session.append((space, str(key)) if key is not None else None)
            think_s.append(math.nan if delay_ns == UNKNOWN_NS else delay_ns / NS_PER_S)
    has_sessions = any(key is not None for key in session)
    notes = []
    if has_sessions:
        notes.append("input_length is taken as the whole prompt of a turn, history included")
    if len(paths) > 1:
        notes.append("block ids of different files are different content")
    return rows.trace(
        name=trace_name(paths),
        notes=notes,
        session=session if has_sessions else None,
        think_s=think_s,
    )


def _optional_ns(row: Mapping[str, Any], key: str, file: Path, line: int) -> int:
    if row.get(key) is None:
        return UNKNOWN_NS
    return time_ns(row, key, _NS_PER_MS, file=file, line=line)


MOONCAKE = Format(
    name="mooncake",
    about="Mooncake (JSONL; ids of 512-token blocks, ms), also with session_id and delay",
    recognise=_recognise,
    read=_read,
)
