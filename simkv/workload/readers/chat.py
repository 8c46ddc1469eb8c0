"""OpenAI-style chats as JSON lines: what an API gateway logs, or a batch file asks for.

A line is one request: ``{"messages": […]}`` or ``{"prompt": "…"}``, or either as the ``body`` of a
batch line. A last message of the assistant is its output, messages of the assistant before it are
history. Beside it, where present:

- the time: ``timestamp``, ``arrival_s``, ``arrival``, ``created_at`` or ``created``, as a date-time
  or a number (seconds; clock times also in milli-, micro- or nanoseconds, by their size);
- the session: ``session_id``, ``session``, ``conversation_id`` or ``user``; without any, a request
  that goes on from an earlier one is its next turn;
- the output: ``response``, ``output``, ``completion`` or ``choices``; else only its length:
  ``output_tokens``, ``usage.completion_tokens``, then the limit ``max_completion_tokens`` or
  ``max_tokens``;
- ``tools``, ``cache_salt`` and ``priority``.

A message is rendered as its role in angle brackets, then its content; each piece is tokenised by
itself, so that a follow-up turn holds the very tokens of the turn before.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from simkv.errors import TraceError
from simkv.units import NS_PER_S
from simkv.workload.readers.clock import UNKNOWN_NS, instants, nanoseconds
from simkv.workload.readers.format import Format, Head, ReadOptions, json_lines, trace_name
from simkv.workload.readers.tokens import Encoder, TokenRow, TokenRows, encoder
from simkv.workload.trace import Ints, Trace

_TIMES = ("timestamp", "arrival_s", "arrival", "created_at", "created")
_SESSIONS = ("session_id", "session", "conversation_id", "user")
_OUTPUTS = ("response", "output", "completion", "choices", "message")
_LIMITS = ("max_completion_tokens", "max_tokens")


def _recognise(head: Head) -> bool:
    keys = head.keys()
    if "body" in keys:
        return '"messages"' in head.text or '"prompt"' in head.text
    return bool(keys & {"messages", "prompt"})


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    rendering = _Rendering(encoder(options.tokenizer))
    found = TokenRows()
    for path in paths:
        for line, row in json_lines(path):
            found.rows.append(_request(row, rendering, path, line))
    return found.trace(
        name=trace_name(paths),
        notes=[rendering.encoder.note, *rendering.notes()],
        find_sessions=True,
    )


class _Rendering:
    """Renders messages as tokens, and counts what could not be done faithfully."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.counts: Counter[str] = Counter()
        self._pieces: dict[str, Ints] = {}

    def notes(self) -> list[str]:
        return [f"{count:,} {what}" for what, count in sorted(self.counts.items())]

    def piece(self, text: str) -> Ints:
        # Histories repeat: each message is tokenised once.
        if text not in self._pieces:
            self._pieces[text] = self.encoder.encode(text)
        return self._pieces[text]

    def head(self, role: str) -> Ints:
        return self.piece(f"\n<|{role}|>\n")

    def text(self, message: Mapping[str, Any]) -> str:
        content = message.get("content")
        parts = content if isinstance(content, list) else [content]
        texts = []
        for part in parts:
            if isinstance(part, str):
                texts.append(part)
            elif isinstance(part, dict) and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif part is not None:
                self.counts["parts that are no text count by their JSON form"] += 1
                texts.append(orjson.dumps(part).decode())
        if message.get("tool_calls"):
            texts.append(orjson.dumps(message["tool_calls"]).decode())
        return "\n".join(texts)


def _request(row: Mapping[str, Any], rendering: _Rendering, path: Path, line: int) -> TokenRow:
    body = row["body"] if isinstance(row.get("body"), dict) else row
    prompt, reply = _prompt(body, rendering, path, line)
    if reply is None:
        reply = _reply(row, rendering)
    output = None if reply is None else rendering.piece(reply)
    return TokenRow(
        file=path,
        line=line,
        prompt_tokens=len(prompt),
        output_tokens=len(output) if output is not None else _output_length(row, body, rendering),
        prompt=prompt,
        output=output,
        time_ns=_time_ns(row, path, line),
        session=_session(row, body),
        root=str(body.get("cache_salt") or ""),
        priority=body["priority"] if isinstance(body.get("priority"), int) else 0,
    )


def _prompt(
    body: Mapping[str, Any], rendering: _Rendering, path: Path, line: int
) -> tuple[Ints, str | None]:
    """Return the prompt's tokens, and the reply where the messages end with it."""
    if isinstance(body.get("prompt"), str):
        return rendering.piece(body["prompt"]), None
    messages = body.get("messages")
    if (
        not isinstance(messages, list)
        or not messages
        or not all(isinstance(message, dict) for message in messages)
    ):
        raise TraceError(
            f"has neither messages nor a prompt (found {', '.join(body)})", file=path, line=line
        )
    reply = None
    if len(messages) > 1 and messages[-1].get("role") == "assistant":
        reply = rendering.text(messages[-1])
        messages = messages[:-1]
    pieces = []
    if body.get("tools"):
        pieces.append(rendering.piece(orjson.dumps(body["tools"]).decode()))
    for message in messages:
        pieces.append(rendering.head(str(message.get("role", "user"))))
        pieces.append(rendering.piece(rendering.text(message)))
    pieces.append(rendering.head("assistant"))
    return np.concatenate(pieces), reply


def _reply(row: Mapping[str, Any], rendering: _Rendering) -> str | None:
    """Find the output's text, through the layers that APIs wrap it in."""
    inner = next((row[key] for key in (*_OUTPUTS, "body") if row.get(key)), None)
    if isinstance(inner, str):
        return inner
    if isinstance(inner, list) and inner and isinstance(inner[0], dict):
        inner = inner[0]
    if not isinstance(inner, dict) or inner.get("messages"):
        return None
    if "content" in inner or "tool_calls" in inner:
        return rendering.text(inner)
    if isinstance(inner.get("text"), str):
        return str(inner["text"])
    return _reply(inner, rendering)


def _output_length(row: Mapping[str, Any], body: Mapping[str, Any], rendering: _Rendering) -> int:
    usage = row.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    for value in (row.get("output_tokens"), counted):
        if isinstance(value, int) and value >= 0:
            return value
    for key in _LIMITS:
        if isinstance(body.get(key), int):
            rendering.counts[f"outputs are not known: taken to be as long as {key}"] += 1
            return int(body[key])
    return 0


def _time_ns(row: Mapping[str, Any], path: Path, line: int) -> int:
    key = next((key for key in _TIMES if row.get(key) is not None), None)
    if key is None:
        return UNKNOWN_NS
    value = row[key]
    try:
        if isinstance(value, str) and ":" in value:
            return int(instants(pa.array([value]))[0])
        return nanoseconds(value, unit_ns=_unit_ns(float(value)))
    except (TypeError, ValueError, pa.ArrowInvalid):
        raise TraceError(f"{key} is {value!r}, expected a time", file=path, line=line) from None


def _unit_ns(value: float) -> int:
    """Tell the unit of a clock time by its size: seconds since 1970 stay below 1e11 until 5138."""
    for limit, unit_ns in ((1e11, NS_PER_S), (1e14, 10**6), (1e17, 10**3)):
        if value < limit:
            return unit_ns
    return 1


def _session(row: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    found = (place[key] for place in (row, body) for key in _SESSIONS if place.get(key) is not None)
    value = next(found, None)
    return None if value is None else str(value)


CHAT = Format(
    name="chat",
    about="OpenAI-style chats (JSONL; messages or batch lines, text)",
    recognise=_recognise,
    read=_read,
    holds_text=True,
)
