"""Checked fields of a JSON object, with errors that name file, line and key."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simkv.errors import TraceError
from simkv.workload.readers.clock import nanoseconds
from simkv.workload.trace import MAX_TOKENS


def length(row: Mapping[str, Any], key: str, *, file: Path, line: int) -> int:
    """Return a number of tokens of a row.

    Raises
    ------
    TraceError
        With file and line, where it is missing or no whole number from 0 to ``MAX_TOKENS``.
    """
    value = row.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    most = f", at most {MAX_TOKENS:,}" if type(value) is int and value > 0 else ""
    raise _wrong(row, key, f"a whole number, 0 or more{most}", file=file, line=line)


def time_ns(row: Mapping[str, Any], key: str, unit_ns: int, *, file: Path, line: int) -> int:
    """Return a time of a row in nanoseconds.

    Raises
    ------
    TraceError
        With file and line, where it is missing or no time.
    """
    try:
        return nanoseconds(row.get(key), unit_ns=unit_ns)
    except ValueError:
        raise _wrong(row, key, "a time", file=file, line=line) from None


def key(row: Mapping[str, Any], name: str, *, file: Path, line: int) -> str | float | None:
    """Return what a row calls something, None where it does not.

    Raises
    ------
    TraceError
        With file and line, where it is neither a number nor a text.
    """
    value = row.get(name)
    if value is None or isinstance(value, str | int | float):
        return value
    raise _wrong(row, name, "a number or a text", file=file, line=line)


def text(row: Mapping[str, Any], key: str, *, file: Path, line: int) -> str:
    """Return a text of a row.

    Raises
    ------
    TraceError
        With file and line, where it is missing or no text.
    """
    value = row.get(key)
    if isinstance(value, str):
        return value
    raise _wrong(row, key, "a text", file=file, line=line)


def _wrong(row: Mapping[str, Any], key: str, expected: str, *, file: Path, line: int) -> TraceError:
    found = f"is {row[key]!r}" if key in row else f"is missing (found {', '.join(row)})"
    return TraceError(f"{key} {found}, expected {expected}", file=file, line=line)
