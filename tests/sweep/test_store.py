import errno
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simkv.config.run import RunConfig
from simkv.errors import InputError
from simkv.sweep.store import MARKER, Store, Stored, json_bytes, write_whole
from simkv.workload.trace import make_trace
from tests.sweep.fake import FakeTables

ID = "0123456789abcdef"
WARNINGS = ["counted by words", "mind"]
TRACE = make_trace(
    prompt_tokens=[5], output_tokens=[1], granularity_tokens=8, notes=("counted by words",)
)


def tables() -> FakeTables:
    table = pa.table({"request": [1, 2]})
    return FakeTables(
        requests=table,
        memory=table,
        summary={"hit_ratio": 0.1},
        warnings=["counted by words", "mind"],
    )


def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "out")
    made.open()
    write_whole(tmp_path / "out" / MARKER, json_bytes({"format": "simkv-sweep"}))
    return made


def test_what_is_put_is_found_exactly(tmp_path: Path) -> None:
    cells = store(tmp_path)
    assert cells.find(ID) == (None, "")
    cells.put(ID, RunConfig(), TRACE, tables())
    found, _ = cells.find(ID)
    assert found is not None
    assert found == Stored(
        summary={"hit_ratio": 0.1},
        warnings=("mind",),
        trace_notes=("counted by words",),
        granularity_tokens=8,
    )
    names = sorted(file.name for file in (tmp_path / "out" / "cells" / ID).iterdir())
    assert names == ["config.json", "manifest.json", "memory.parquet", "summary.json"]


def test_requests_are_kept_where_asked(tmp_path: Path) -> None:
    cells = store(tmp_path)
    cells.put(ID, RunConfig(), TRACE, tables(), keep_requests=True)
    kept = pq.read_table(tmp_path / "out" / "cells" / ID / "requests.parquet")
    assert kept.num_rows == 2


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("summary.json", "{}", "summary.json was changed"),
        ("memory.parquet", None, "memory.parquet is missing"),
        ("manifest.json", None, "manifest.json is missing"),
        ("manifest.json", '{"cell"', "not readable"),
        ("manifest.json", "[]", "not readable"),
        ("manifest.json", '{"cell": "other"}', "belongs to something else"),
    ],
)
def test_what_is_not_whole_does_not_count(
    tmp_path: Path, name: str, text: str | None, told: str
) -> None:
    cells = store(tmp_path)
    cells.put(ID, RunConfig(), TRACE, tables())
    file = tmp_path / "out" / "cells" / ID / name
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    found, why_not = cells.find(ID)
    assert found is None
    assert told in why_not
    cells.discard(ID)
    cells.put(ID, RunConfig(), TRACE, tables())
    assert cells.find(ID)[0] is not None


def test_a_file_in_the_place_of_a_cell_makes_room(tmp_path: Path) -> None:
    cells = store(tmp_path)
    (tmp_path / "out" / "cells" / ID).write_text("junk")
    assert cells.find(ID) == (None, "is not readable")
    cells.discard(ID)
    cells.put(ID, RunConfig(), TRACE, tables())
    assert cells.find(ID)[0] is not None


def test_the_second_to_finish_a_cell_drops_its_own(tmp_path: Path) -> None:
    cells = store(tmp_path)
    cells.put(ID, RunConfig(), TRACE, tables())
    cells.put(ID, RunConfig(), TRACE, tables())
    assert [entry.name for entry in (tmp_path / "out" / "cells").iterdir()] == [ID]


def test_a_folder_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="holds something that is no sweep"):
        Store(tmp_path).open()
    (tmp_path / MARKER).write_text('{"format": "other"}')
    with pytest.raises(InputError, match="no sweep"):
        Store(tmp_path).open()
    with pytest.raises(InputError, match="is a file"):
        Store(tmp_path / "thesis.txt").open()


def test_opening_sweeps_up_after_the_dead_only(tmp_path: Path) -> None:
    store(tmp_path)
    folder = tmp_path / "out" / "cells"
    (folder / f".{ID}.4194999.tmp").mkdir()  # above the largest process id
    (folder / f".{ID}.{os.getpid()}.tmp").mkdir()
    Store(tmp_path / "out").open()
    assert [entry.name for entry in folder.iterdir()] == [f".{ID}.{os.getpid()}.tmp"]


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = store(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(InputError, match="the disk is full") as caught:
        cells.put(ID, RunConfig(), TRACE, tables())
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out" / "cells").iterdir()) == []


def test_a_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    write_whole(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="disk is full"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.csv"]


def test_json_gives_floats_back_exactly() -> None:
    assert json.loads(json_bytes({"b": 1, "a": 0.1 + 0.2})) == {"b": 1, "a": 0.1 + 0.2}
