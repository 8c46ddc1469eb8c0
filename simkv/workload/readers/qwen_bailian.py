"""Qwen-Bailian (ATC'25): chats with their turns, and ids of blocks of 16 tokens.

A request names the chat that it follows, so a session is a tree of chats. The publishers say that
think tags are stripped between turns and that a turn's last, padded block may change once output
has started: a follow-up turn may miss blocks that look as if it should have them.
"""

from collections.abc import Sequence
from pathlib import Path

from simkv.units import NS_PER_S
from simkv.workload.readers.block_ids import BlockIdRows
from simkv.workload.readers.fields import key, length, time_ns
from simkv.workload.readers.format import (
    Format,
    Head,
    ReadOptions,
    json_lines,
    trace_name,
)
from simkv.workload.trace import Trace

BLOCK_TOKENS = 16
_ROOT = -1

_Chat = tuple[int, object]


def _recognise(head: Head) -> bool:
    return head.keys() >= {"chat_id", "parent_chat_id", "input_length"}


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    rows = BlockIdRows(BLOCK_TOKENS)
    chats: list[_Chat] = []
    parents: list[_Chat | None] = []
    for space, path in enumerate(paths):
        for line, row in json_lines(path):
            chats.append((space, key(row, "chat_id", file=path, line=line)))
            parent = key(row, "parent_chat_id", file=path, line=line)
            parents.append((space, parent) if parent not in (_ROOT, None) else None)
            rows.add(
                prompt_tokens=length(row, "input_length", file=path, line=line),
                output_tokens=length(row, "output_length", file=path, line=line),
                time_ns=time_ns(row, "timestamp", NS_PER_S, file=path, line=line),
                ids=row.get("hash_ids"),
                space=space,
                file=path,
                line=line,
            )
    session, after, orphans = _sessions(chats, parents)
    notes = []
    if orphans:
        notes.append(f"{orphans:,} requests follow a chat that the file does not hold before them")
    if len(paths) > 1:
        notes.append("block ids and chats of different files have nothing to do with each other")
    return rows.trace(name=trace_name(paths), notes=notes, session=session, after=after)


def _sessions(
    chats: Sequence[_Chat], parents: Sequence[_Chat | None]
) -> tuple[list[_Chat], list[int], int]:
    """Return each row's first chat, the row it follows (-1: none), and how many lost theirs."""
    row_of: dict[_Chat, int] = {}
    first: list[_Chat] = []
    after: list[int] = []
    orphans = 0
    for row, (chat, parent) in enumerate(zip(chats, parents, strict=True)):
        before = -1 if parent is None else row_of.get(parent, -1)
        orphans += parent is not None and before < 0
        first.append(first[before] if before >= 0 else parent or chat)
        after.append(before)
        row_of.setdefault(chat, row)
    return first, after, orphans


QWEN_BAILIAN = Format(
    name="qwen-bailian",
    about="Qwen-Bailian (JSONL; ids of 16-token blocks, chats and turns)",
    recognise=_recognise,
    read=_read,
)
