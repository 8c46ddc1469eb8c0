"""The cell table: one row a cell, one column an axis or a metric, units in the names.

Nested metrics become flat names with the unit last: ``ttft_s.p99`` is ``ttft_p99_s``,
``memory.tail_ratio`` is ``memory_tail_ratio``. The schema's metadata says which columns are axes,
so that a table alone can be ranked.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from simkv.sweep.grid import Sweep
from simkv.sweep.store import Stored

_METADATA = b"simkv.sweep"
_UNITS = ("_s", "_tokens", "_bytes", "_blocks")
_STATISTICS = {"mean", "min", "max", "sum", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95",
               "p99"}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a cell table says of itself.

    Parameters
    ----------
    axes
        Columns of each axis, in order; an axis of linked paths has several.
    step_time_knows_block_tokens
        Whether the step times of every arm depend on the block size.
    """

    axes: tuple[tuple[str, ...], ...]
    step_time_knows_block_tokens: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that tell arms apart."""
        return tuple(column for axis in self.axes for column in axis)


def cell_table(sweep: Sweep, stored: Mapping[str, Stored]) -> pa.Table:
    """Return the table of the cells that finished, in the order of the sweep.

    Parameters
    ----------
    sweep
        Says the order, the arms and the seeds.
    stored
        Finished cells by id; the others have no row.
    """
    rows = [
        {
            "cell": cell.id,
            "arm": cell.arm.label,
            **cell.arm.columns,
            "seed": cell.seed,
            **dict(flat(stored[cell.id].summary)),
        }
        for cell in sweep.cells
        if cell.id in stored
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [_column(name, [row.get(name) for row in rows]) for name in names]
    about = {
        "axes": sweep.axes,
        "step_time_knows_block_tokens": sweep.step_time_knows_block_tokens,
    }
    metadata = {_METADATA: json.dumps(about, sort_keys=True)}
    return pa.table(columns, names=names).replace_schema_metadata(metadata)


def about(cells: pa.Table) -> About:
    """Return what a cell table says of itself."""
    said = json.loads((cells.schema.metadata or {})[_METADATA])
    return About(
        axes=tuple(map(tuple, said["axes"])),
        step_time_knows_block_tokens=said["step_time_knows_block_tokens"],
    )


def flat(summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Walk nested metrics under flat names."""
    for key, value in summary.items():
        if not isinstance(value, Mapping):
            yield key, value
            continue
        for inner, number in flat(value):
            yield _joined(key, inner), number


def csv_bytes(table: pa.Table) -> bytes:
    """Return a table as CSV."""
    buffer = io.BytesIO()
    pyarrow.csv.write_csv(table, buffer)
    return buffer.getvalue()


def parquet_bytes(table: pa.Table) -> bytes:
    """Return a table as Parquet."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _joined(key: str, inner: str) -> str:
    unit = next((unit for unit in _UNITS if key.endswith(unit)), "")
    if unit and inner in _STATISTICS:
        return f"{key.removesuffix(unit)}_{inner}{unit}"
    return f"{key}_{inner}"


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if name.startswith("rejected_"):
        # A reason that a cell does not name did not occur in it.
        values = [0 if value is None else value for value in values]
    if name.endswith("_reason"):
        kinds = {str}  # also where no cell has one
    if kinds == {bool}:
        return pa.array(values, type=pa.bool_())
    if kinds == {int}:
        return pa.array(values, type=pa.int64())
    if kinds <= {int, float}:
        return pa.array(values, type=pa.float64())
    return pa.array([None if value is None else str(value) for value in values], type=pa.string())
