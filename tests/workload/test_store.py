"""The canonical table: what goes in comes out, byte for byte the same, whole or not at all."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import InputError, TraceError
from simkv.workload.load import read_trace
from simkv.workload.store import write_trace
from simkv.workload.trace import Trace, make_trace


def equal(a: Trace, b: Trace) -> bool:
    return all(
        np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        if isinstance(left := getattr(a, field.name), np.ndarray)
        else left == getattr(b, field.name)
        for field in dataclasses.fields(Trace)
        for right in [getattr(b, field.name)]
    )


def small() -> Trace:
    return make_trace(
        prompt_tokens=[5, 9, 1],
        output_tokens=[0, 2, 1],
        arrival_s=[0.1, float("nan"), 3501.721937],
        segments=[[(0, 5)], [(0, 5), (7, 4)], []],
        session=[0, 0, -1],
        turn=[0, 1, 0],
        after=[-1, 0, -1],
        think_s=[float("nan"), 0.25, float("nan")],
        tenant=[1, 0, 2],
        priority=[-3, 0, 4],
        granularity_tokens=1,
        name="small",
        notes=("one", "zwei, drei"),
    )


def test_round_trip(tmp_path):
    write_trace(small(), tmp_path / "small.parquet")
    assert equal(read_trace(tmp_path / "small.parquet"), small())


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2**62), st.integers(1, 2**40)), max_size=4), min_size=1
    )
)
def test_round_trip_of_any_content(tmp_path_factory, segments):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    rows = len(segments)
    trace = make_trace(prompt_tokens=[1] * rows, output_tokens=[0] * rows, segments=segments)
    write_trace(trace, path)
    assert equal(read_trace(path), trace)


def test_more_rows_than_a_row_group(tmp_path, monkeypatch):
    monkeypatch.setattr("simkv.workload.store._ROW_GROUP", 7)
    rows = 100
    trace = make_trace(
        prompt_tokens=np.arange(1, rows + 1),
        output_tokens=np.arange(rows),
        segments=[[(row, 1)] * (row % 3) for row in range(rows)],
    )
    write_trace(trace, tmp_path / "t.parquet")
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 15
    assert equal(read_trace(tmp_path / "t.parquet"), trace)


def test_the_same_trace_gives_the_same_bytes(tmp_path):
    write_trace(small(), tmp_path / "a.parquet")
    write_trace(small(), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    write_trace(small(), path)
    before = path.read_bytes()

    def full(table, where, **options):
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("simkv.workload.store.pq.write_table", full)
    with pytest.raises(InputError, match=r"cannot be written \(No space left on device"):
        write_trace(small(), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["t.parquet"]


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(small(), tmp_path / "none" / "t.parquet")


def test_other_parquet_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(TraceError, match=r"is no simkv trace \(columns x\)"):
        read_trace(path)
    path.write_bytes(b"PAR1 and then nothing")
    with pytest.raises(TraceError, match="is no whole Parquet file"):
        read_trace(path)


def test_another_schema_version_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("simkv.workload.store.SCHEMA_VERSION", 0)
        write_trace(small(), path)
    with pytest.raises(TraceError, match="has schema version 0, expected 1; convert the trace"):
        read_trace(path)
