"""LMCache's agent logs: the text of each call, one file a session, not sorted in it."""

from collections.abc import Sequence
from pathlib import Path

from simkv.units import NS_PER_S, US_PER_S
from simkv.workload.readers.fields import text, time_ns
from simkv.workload.readers.format import Format, Head, ReadOptions, json_lines, trace_name
from simkv.workload.readers.tokens import TokenRow, TokenRows, encoder
from simkv.workload.trace import Trace

_NS_PER_US = NS_PER_S // US_PER_S


def _recognise(head: Head) -> bool:
    return head.keys() >= {"timestamp", "input", "output", "session_id"}


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    encoding = encoder(options.tokenizer)
    found = TokenRows()
    for path in paths:
        for line, row in json_lines(path):
            prompt = encoding.encode(text(row, "input", file=path, line=line))
            output = encoding.encode(text(row, "output", file=path, line=line))
            found.rows.append(
                TokenRow(
                    file=path,
                    line=line,
                    prompt_tokens=len(prompt),
                    output_tokens=len(output),
                    prompt=prompt,
                    output=output,
                    time_ns=time_ns(row, "timestamp", _NS_PER_US, file=path, line=line),
                    session=text(row, "session_id", file=path, line=line),
                )
            )
    return found.trace(name=trace_name(paths), notes=[encoding.note])


LMCACHE = Format(
    name="lmcache",
    about="LMCache agent logs (JSONL; text, sessions, microseconds)",
    recognise=_recognise,
    read=_read,
    holds_text=True,
)
