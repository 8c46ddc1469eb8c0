"""What a trace format is, and how its files are opened.

A format is a frozen value: a name, a line about it, a function that recognises it by the first
bytes of a file, and one that reads it. ``formats.py`` holds the tuple of all of them; ``load.py``
picks one. Opening is shared here, so that every format takes gzip, CRLF, a byte order mark and a
missing final newline alike.
"""

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from simkv.errors import TraceError
from simkv.workload.trace import Trace

HEAD_BYTES = 65_536
_GZIP_MAGIC = b"\x1f\x8b"
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a reader may need beside its files.

    Parameters
    ----------
    tokenizer
        A ``tokenizer.json`` for formats that hold text; None counts words.
    seed
        Root seed, for formats that describe a generator instead of requests.
    """

    tokenizer: Path | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The start of the first file that is not empty, already gunzipped: what formats look at.

    Parameters
    ----------
    name
        The file's name, without ``.gz``.
    data
        Its first bytes, at most ``HEAD_BYTES``; they may end in the middle of a line.
    """

    name: str
    data: bytes

    @property
    def text(self) -> str:
        """The bytes as text; what is cut or no UTF-8 becomes a replacement character."""
        return self.data.decode("utf-8-sig", errors="replace")

    @property
    def first_line(self) -> str:
        """The first line that is not blank, perhaps cut."""
        return next((line.strip() for line in self.text.splitlines() if line.strip()), "")

    def columns(self) -> tuple[str, ...]:
        """Return the cells of the first line, read as the header of a CSV file."""
        return tuple(cell.strip().strip('"').strip() for cell in self.first_line.split(","))

    def keys(self) -> frozenset[str]:
        """Return the top-level keys of the first JSON object, as far as the head shows them.

        Works where the object is longer than the head, as a session of a megabyte on one line is.
        """
        return frozenset(_keys(self.text))


def _keys(text: str) -> Iterator[str]:
    decoder = json.JSONDecoder()
    text = text.lstrip()
    if not text.startswith("{"):
        return
    rest = text[1:].lstrip()
    while rest.startswith('"'):
        try:
            key, end = decoder.raw_decode(rest)
            rest = rest[end:].lstrip()
            if not rest.startswith(":"):
                return
            yield key
            _, end = decoder.raw_decode(rest[1:].lstrip())
        except (ValueError, RecursionError):
            return  # the head ends inside this value, or no number or depth goes that far
        rest = rest[1:].lstrip()[end:].lstrip().removeprefix(",").lstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One trace format.

    Parameters
    ----------
    name
        What ``--format`` takes.
    about
        One line for people: whose format it is, and what it holds.
    recognise
        Whether a file that starts like this is of this format. Formats are asked in order.
    read
        Reads all files, in the order given, into one trace.
    holds_text
        Whether it holds text, which a tokenizer or a count of words turns into lengths.
    """

    name: str
    about: str
    recognise: Callable[[Head], bool]
    read: Callable[[Sequence[Path], ReadOptions], Trace]
    holds_text: bool = False


def trace_name(paths: Sequence[Path]) -> str:
    """Return what a trace read from these files is called: the first file's name, unadorned."""
    return Path(paths[0].name.removesuffix(".gz")).stem


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, gunzipped if its first bytes say that it is gzip."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise TraceError(f"cannot be opened ({error.strerror})", file=path) from error
    if file.read(2) == _GZIP_MAGIC:
        file.close()
        return cast(BinaryIO, gzip.open(path))
    file.seek(0)
    return file


def read_head(path: Path) -> Head:
    """Read the start of a file."""
    with open_bytes(path) as file:
        try:
            data = file.read(HEAD_BYTES)
        except GZIP_ERRORS as error:
            raise TraceError(f"is no whole gzip file ({error})", file=path) from error
    return Head(name=path.name.removesuffix(".gz"), data=data)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield ``(line number from 1, text without its line end)`` for all lines that are not blank.

    Raises
    ------
    TraceError
        Where the file is no UTF-8 text or its gzip is broken.
    """
    with open_bytes(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
        try:
            for number, line in enumerate(text, start=1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise TraceError("is no UTF-8 text", file=path, line=_undecodable(path)) from error
        except GZIP_ERRORS as error:
            raise TraceError(f"is no whole gzip file ({error})", file=path) from error


def _undecodable(path: Path) -> int | None:
    """Return the first line that is no UTF-8; text is decoded in chunks, which do not know."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line number, object)`` of a file with one JSON object a line.

    Integers are exact up to 64 bits, so nanoseconds since 1970 are.

    Raises
    ------
    TraceError
        With file and line, where a line is no JSON object.
    """
    for number, line in lines(path):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise TraceError(f"is no JSON ({error.msg})", file=path, line=number) from error
        if not isinstance(value, dict):
            raise TraceError(
                f"expected a JSON object, got {type(value).__name__}", file=path, line=number
            )
        yield number, value
