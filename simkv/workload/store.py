"""The canonical trace as a Parquet file: one row a request, content as lists.

The same trace gives the same bytes. A file appears whole or not at all.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simkv.errors import InputError, TraceError
from simkv.workload.readers.format import Format, Head, ReadOptions
from simkv.workload.trace import Trace

SCHEMA_VERSION = 1
_ROW_GROUP = 65_536
_KEY = b"simkv.trace"
_FLOATS = ("arrival_s", "think_s", "patience_s")
_ADDED = ("patience_s",)  # columns that older files lack
_INTS = ("prompt_tokens", "output_tokens", "session", "turn", "after", "tenant", "priority")
_LISTS = ("segment_id", "segment_tokens")


def write_trace(trace: Trace, path: str | Path) -> None:
    """Write a trace; an existing file of this name is replaced.

    Raises
    ------
    InputError
        Where the file cannot be written, for example on a full disk; nothing is left behind.
    """
    path = Path(path)
    columns: dict[str, pa.Array] = {
        name: pa.array(getattr(trace, name), type=pa.float64(), from_pandas=True)
        for name in _FLOATS
    }
    columns |= {name: pa.array(getattr(trace, name), type=pa.int64()) for name in _INTS}
    offsets = pa.array(trace.segment_offset, type=pa.int64())
    columns |= {
        name: pa.LargeListArray.from_arrays(offsets, pa.array(getattr(trace, name)))
        for name in _LISTS
    }
    about = {
        "schema_version": SCHEMA_VERSION,
        "name": trace.name,
        "granularity_tokens": trace.granularity_tokens,
        "notes": list(trace.notes),
    }
    table = pa.table(columns).replace_schema_metadata({_KEY: json.dumps(about, sort_keys=True)})
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        pq.write_table(
            table,
            partial,
            row_group_size=_ROW_GROUP,
            compression="zstd",
            compression_level=12,
            use_dictionary=False,
            column_encoding=_encodings(),
        )
        partial.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        partial.unlink(missing_ok=True)


def _encodings() -> dict[str, str]:
    """Integers as differences: lengths, turns and chained ids are close to their neighbours."""
    inner = {f"{name}.list.element" for name in _LISTS}
    return dict.fromkeys((*_INTS, *sorted(inner)), "DELTA_BINARY_PACKED")


def _read(paths: Sequence[Path], options: ReadOptions) -> Trace:
    if len(paths) > 1:
        raise TraceError(
            f"is one of {len(paths)} Parquet files, expected a single one (ids and rows of one "
            "trace mean nothing in another)",
            file=paths[1],
        )
    path = paths[0]
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(f"is no whole Parquet file ({error})", file=path) from None
    about = _about(table, path)
    segment_offset = np.zeros(table.num_rows + 1, dtype=np.int64)
    ids = table.column("segment_id").combine_chunks()
    tokens = table.column("segment_tokens").combine_chunks()
    segment_offset[1:] = np.cumsum(ids.value_lengths().to_numpy())
    return Trace(
        **{name: _column(table, name) for name in (*_FLOATS, *_INTS)},
        segment_offset=segment_offset,
        segment_id=ids.flatten().to_numpy(),
        segment_tokens=tokens.flatten().to_numpy(),
        granularity_tokens=about["granularity_tokens"],
        name=about["name"],
        notes=tuple(about["notes"]),
    )


def _about(table: pa.Table, path: Path) -> dict[str, Any]:
    raw = (table.schema.metadata or {}).get(_KEY)
    if raw is None:
        raise TraceError(
            f"is no simkv trace (columns {', '.join(table.column_names)}); write one with "
            "simkv trace convert",
            file=path,
        )
    about: dict[str, Any] = json.loads(raw)
    if about["schema_version"] != SCHEMA_VERSION:
        raise TraceError(
            f"has schema version {about['schema_version']}, expected {SCHEMA_VERSION}; convert the "
            "trace again from its source",
            file=path,
        )
    return about


def _column(table: pa.Table, name: str) -> Any:
    if name in _ADDED and name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = table.column(name)
    if name in _FLOATS:
        column = column.fill_null(float("nan"))
    return np.ascontiguousarray(column.to_numpy())


def _recognise(head: Head) -> bool:
    return head.data.startswith(b"PAR1")


CANONICAL = Format(
    name="simkv",
    about="simkv's own table (Parquet), as `simkv trace convert` writes it",
    recognise=_recognise,
    read=_read,
)
