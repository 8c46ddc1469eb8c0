"""WEKA's agentic traces: one JSON object a session, in a file or on a line of its own.

An entry of a session is a request or a sub-agent with requests of its own, whose times count from
the sub-agent's. Requests become rows in the order of the file, a sub-agent's where its entry
stands; rows are not sorted by time, because sessions have no common clock. An id stands for a
full block; what is left of a prompt has none.
"""

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simkv.errors import TraceError
from simkv.workload.chain import Chains, as_ids
from simkv.workload.readers.block_ids import unchained
from simkv.workload.readers.format import (
    Format,
    Head,
    ReadOptions,
    open_bytes,
    trace_name,
)
from simkv.workload.trace import MAX_TOKENS, Trace, make_trace

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def _recognise(head: Head) -> bool:
    return head.keys() >= {"id", "block_size", "hash_id_scope"}


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    rows = _Rows()
    for path in paths:
        for line, session in _sessions(path):
            try:
                rows.add_session(session)
            except ValueError as error:
                raise TraceError(str(error), file=path, line=line) from error
    if not rows.prompt_tokens:
        raise TraceError("holds no request with a prompt", file=paths[0])
    return rows.trace(name=trace_name(paths))


def _sessions(path: Path) -> Iterator[tuple[int | None, Any]]:
    """Yield ``(line, session)`` of a file with an object a line, or the one object of a file."""
    number = 0
    with open_bytes(path) as file:
        try:
            for number, text in enumerate(file, start=1):
                if number == 1:
                    text = text.removeprefix(_BYTE_ORDER_MARK)
                    try:
                        yield 1, orjson.loads(text)
                    except orjson.JSONDecodeError:
                        # One object, over several lines.
                        yield None, orjson.loads(text + file.read())
                elif text.strip():
                    yield number, orjson.loads(text)
        except orjson.JSONDecodeError as error:
            line = number if number > 1 else None
            raise TraceError(f"is no JSON ({error.msg})", file=path, line=line) from error
        except (EOFError, OSError, zlib.error) as error:
            raise TraceError(f"is no whole gzip file ({error})", file=path) from error


@dataclass(slots=True)
class _Rows:
    """Columns of a trace, and what was met on the way."""

    chains: Chains | None = None
    block_tokens: int = 0
    num_sessions: int = 0
    prompt_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    arrival_s: list[float] = field(default_factory=list)
    end_s: list[float] = field(default_factory=list)
    session: list[int] = field(default_factory=list)
    turn: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    think_s: list[float] = field(default_factory=list)
    sub_agents: int = 0
    empty: int = 0
    short: int = 0

    def add_session(self, session: Any) -> None:
        """Append the requests of one session.

        Raises
        ------
        ValueError
            Saying which entry is wrong, and how.
        """
        space = self._space(session)
        first_row = len(self.prompt_tokens)
        last = -1
        for number, entry in enumerate(_entries(session)):
            try:
                if entry.get("type") == "subagent":
                    self._add_sub_agent(entry, last, space)
                else:
                    last = self._add(entry, _number(entry, "t"), last, space)
            except ValueError as error:
                raise ValueError(f"requests[{number}]: {error}") from error
        rows = len(self.prompt_tokens) - first_row
        self.session += [self.num_sessions] * rows
        self.turn += range(rows)
        self.num_sessions += 1

    def trace(self, *, name: str) -> Trace:
        """Make the trace of all sessions."""
        assert self.chains is not None
        segments = self.chains.segments()
        return make_trace(
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            arrival_s=self.arrival_s,
            segments=segments.rows(),
            session=self.session,
            turn=self.turn,
            after=self.after,
            think_s=self.think_s,
            granularity_tokens=self.block_tokens,
            name=name,
            notes=tuple(self._notes(segments.num_unchained_ids)),
        )

    def _space(self, session: Any) -> int:
        """Check a session's own fields and return its id space."""
        if not isinstance(session, Mapping):
            raise ValueError(f"expected a session as a JSON object, got {type(session).__name__}")
        block_tokens = _whole(session, "block_size")
        if self.chains is None:
            if not block_tokens:
                raise ValueError("block_size is 0, expected 1 or more")
            self.block_tokens, self.chains = block_tokens, Chains(block_tokens)
        if block_tokens != self.block_tokens:
            raise ValueError(
                f"block_size is {block_tokens}, expected {self.block_tokens} as in the session "
                "before; read sessions of different block sizes as traces of their own"
            )
        scope = session.get("hash_id_scope", "local")
        if scope not in ("local", "global"):
            raise ValueError(f"hash_id_scope is {scope!r}, expected 'local' or 'global'")
        return self.num_sessions if scope == "local" else -1

    def _add_sub_agent(self, entry: Mapping[str, Any], before: int, space: int) -> None:
        start_s = _number(entry, "t")
        self.sub_agents += 1
        last = -1
        for number, inner in enumerate(_entries(entry)):
            try:
                at_s = start_s + _number(inner, "t")
                if last >= 0:
                    last = self._add(inner, at_s, last, space)
                else:
                    # Its think time, if any, would not count from the request that spawned it.
                    spawned = {key: inner[key] for key in inner if key != "think_time"}
                    last = self._add(spawned, at_s, before, space)
            except ValueError as error:
                raise ValueError(f"requests[{number}]: {error}") from error

    def _add(self, entry: Mapping[str, Any], at_s: float, before: int, space: int) -> int:
        """Append one request that follows row ``before`` (-1: none); return its row."""
        assert self.chains is not None
        prompt_tokens, output_tokens = _whole(entry, "in"), _whole(entry, "out")
        ids = as_ids(entry.get("hash_ids"))
        if len(ids) > -(prompt_tokens // -self.block_tokens):
            raise ValueError(
                f"names {len(ids)} block ids for {prompt_tokens:,} tokens, expected "
                f"{prompt_tokens // self.block_tokens} (one for every {self.block_tokens})"
            )
        if not prompt_tokens:
            self.empty += 1
            return before
        self.short += len(ids) < prompt_tokens // self.block_tokens
        self.chains.add(ids, prompt_tokens, space=space)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.arrival_s.append(at_s)
        self.end_s.append(at_s + _number(entry, "api_time", missing=math.nan))
        self.after.append(before)
        self.think_s.append(self._think_s(entry, at_s, before))
        return len(self.prompt_tokens) - 1

    def _think_s(self, entry: Mapping[str, Any], at_s: float, before: int) -> float:
        """Return the pause after row ``before``: as stated, or between its end and ``at_s``."""
        if before < 0:
            return math.nan
        pause_s = _number(entry, "think_time", missing=at_s - self.end_s[before])
        return pause_s if math.isnan(pause_s) else max(0.0, pause_s)

    def _notes(self, num_unchained: int) -> list[str]:
        notes = [
            f"{self.num_sessions:,} sessions without a common clock: each counts from its own zero"
            " and rows keep the order of the files",
        ]
        if self.sub_agents:
            notes.append(
                f"{self.sub_agents:,} sub-agents: their requests are rows of the session, their "
                "times added to the time of the entry"
            )
        if self.empty:
            notes.append(f"{self.empty:,} rows with an empty prompt were dropped")
        if silent := self.output_tokens.count(0):
            notes.append(f"{silent:,} requests have no output token")
        if self.short:
            notes.append(
                f"{self.short:,} requests name fewer block ids than their prompts have full "
                "blocks; the tokens past the last id are equal to nobody's"
            )
        if num_unchained:
            notes.append(unchained(num_unchained))
        return notes


def _entries(holder: Mapping[str, Any]) -> list[Any]:
    """Return the entries of a session or a sub-agent."""
    entries = holder.get("requests")
    if not isinstance(entries, list):
        raise ValueError(f"requests is {type(entries).__name__}, expected a list")
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ValueError(f"requests[{number}] is no JSON object")
    return entries


def _whole(entry: Mapping[str, Any], key: str) -> int:
    value = entry.get(key)
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    most = f", at most {MAX_TOKENS:,}" if type(value) is int and value > 0 else ""
    raise ValueError(f"{key} is {value!r}, expected a whole number, 0 or more{most}")


def _number(entry: Mapping[str, Any], key: str, *, missing: float | None = None) -> float:
    """Return a number of seconds; ``missing`` where there is none."""
    value = entry.get(key)
    if value is None and missing is not None:
        return missing
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{key} is {value!r}, expected seconds")


WEKA_AGENTIC = Format(
    name="weka-agentic",
    about="WEKA agentic coding sessions (JSON or JSONL; ids of 64-token blocks, sub-agents)",
    recognise=_recognise,
    read=_read,
)
