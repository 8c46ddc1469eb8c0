"""CSV files of any length as columns: read in chunks, no Python object a row.

Cells are read as text and parsed a chunk at a time, so that a wrong one can be named with its
file and line. Which columns there are, and what they mean, is each format's own business.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from simkv.errors import TraceError
from simkv.workload.readers.format import GZIP_ERRORS, lines, open_bytes, read_head
from simkv.workload.trace import Ints

Parse = Callable[[pa.Array], npt.NDArray[Any]]
_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Some columns of some CSV files, one after the other.

    Parameters
    ----------
    columns
        Parsed column by name, all of one length.
    files
        The files, each with its number of rows.
    """

    columns: Mapping[str, npt.NDArray[Any]]
    files: Sequence[tuple[Path, int]]

    def place(self, row: int) -> tuple[str, int]:
        """Return file and line of a row; reads the file again, so meant for errors."""
        for path, rows in self.files:
            if row < rows:
                return str(path), _line(path, row)
            row -= rows
        raise IndexError(row)


def integers(cells: pa.Array) -> Ints:
    """Parse whole numbers, also where they are written as ``374.0``.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where a cell is no whole number.
    """
    try:
        values: Ints = cells.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        floats = cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
        fits = np.abs(floats) < 2**63  # neither NaN nor beyond 64 bits
        if not (fits & (floats == np.rint(floats))).all():
            raise pa.ArrowInvalid("not a whole number") from None
        values = floats.astype(np.int64)
    return values


def numbers(cells: pa.Array) -> npt.NDArray[np.float64]:
    """Parse decimal numbers; an empty cell is NaN.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where a cell is no number.
    """
    filled = pc.if_else(pc.equal(cells, ""), "nan", cells)
    values: npt.NDArray[np.float64] = filled.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


@dataclass(slots=True)
class Labels:
    """Parses names into small integers in order of first appearance; an empty cell is -1.

    One instance a column: it remembers the names of the chunks before.
    """

    numbers: dict[str, int] = field(default_factory=dict)

    def parse(self, cells: pa.Array) -> Ints:
        """Parse one chunk."""
        coded = cells.dictionary_encode()
        names = coded.dictionary.to_pylist()
        known = [self.numbers.setdefault(name, len(self.numbers)) if name else -1 for name in names]
        values: Ints = np.array(known, dtype=np.int64)[coded.indices.to_numpy()]
        return values


EXPECTED: Mapping[Parse, str] = {integers: "a whole number", numbers: "a number"}


def read_table(paths: Sequence[Path], wanted: Mapping[str, Parse]) -> Table:
    """Read the wanted columns of CSV files with a header each.

    Parameters
    ----------
    paths
        The files.
    wanted
        How each column is parsed. Other columns are skipped.

    Raises
    ------
    TraceError
        Where a file lacks a column (naming those it has), or a row or a cell is wrong.
    """
    chunks: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in wanted}
    files = []
    for path in paths:
        rows = 0
        for batch in _batches(path, tuple(wanted)):
            for name, parse in wanted.items():
                cells = pc.utf8_trim_whitespace(batch.column(name))
                try:
                    chunks[name].append(parse(cells))
                except pa.ArrowInvalid:
                    raise _wrong_cell(path, rows, name, cells, parse) from None
            rows += batch.num_rows
        files.append((path, rows))
    columns = {
        name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in chunks.items()
    }
    return Table(columns=columns, files=files)


def _batches(path: Path, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    header = read_head(path).columns()
    if missing := [name for name in wanted if name not in header]:
        raise TraceError(
            f"has no column {', '.join(missing)}; found {', '.join(header)}, "
            f"expected {', '.join(wanted)}",
            file=path,
            line=1,
        )

    def refuse(row: Any) -> str:
        wrong.append(row)
        return "error"

    wrong: list[Any] = []
    numbered = [str(index) for index in range(len(header))]  # headers may repeat a name
    with open_bytes(path) as file:
        try:
            reader = pacsv.open_csv(
                file,
                pacsv.ReadOptions(
                    column_names=numbered,
                    skip_rows=_line(path, 0, records_before=0),
                    block_size=_CHUNK_BYTES,
                    use_threads=False,
                ),
                pacsv.ParseOptions(invalid_row_handler=refuse),
                pacsv.ConvertOptions(
                    column_types=dict.fromkeys(numbered, pa.string()),
                    include_columns=[str(header.index(name)) for name in wanted],
                ),
            )
            for batch in reader:
                yield batch.rename_columns(list(wanted))
        except pa.ArrowInvalid as error:
            if wrong:
                message = f"row has {wrong[0].actual_columns} cells, expected {len(header)}"
                line = _line_of(path, wrong[0].text)
                raise TraceError(message, file=path, line=line) from None
            if "Empty CSV file" in str(error):
                return
            raise TraceError(f"is no CSV file ({error})", file=path) from None
        except GZIP_ERRORS as error:
            raise TraceError(f"is no whole gzip file ({error})", file=path) from None


def _wrong_cell(
    path: Path, rows_before: int, name: str, cells: pa.Array, parse: Parse
) -> TraceError:
    """Find the first cell of a chunk that does not parse, and say so."""
    low, high = 0, len(cells)
    while high - low > 1:  # the chunk fails as a whole: halve it down to the first bad cell
        middle = (low + high) // 2
        try:
            parse(cells.slice(low, middle - low))
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return TraceError(
        f"column {name} holds {cells[low].as_py()!r}, expected {EXPECTED.get(parse, 'a time')}",
        file=path,
        line=_line(path, rows_before + low),
    )


def _line(path: Path, row: int, *, records_before: int = 1) -> int:
    """Return the line of a data row (the header is the record before the first)."""
    found = next(itertools.islice(lines(path), row + records_before, None), (row + 2, ""))
    return found[0]


def _line_of(path: Path, text: str) -> int | None:
    return next((number for number, line in lines(path) if line == text.rstrip("\r\n")), None)
