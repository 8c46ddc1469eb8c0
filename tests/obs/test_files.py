"""Results replace each other whole, or not at all."""

from pathlib import Path

import pyarrow as pa
import pytest

from simkv.obs.files import write_tables
from simkv.obs.recorder import Tables


def tables(value):
    table = pa.table({"request": [value]})
    return Tables(requests=table, memory=table, steps=None, summary={"num_requests": value})


def test_an_interruption_between_two_renames_leaves_the_old_result(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write_tables(tables(1), out, config={})
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    rename = Path.rename

    def interrupted(self, target):
        if Path(target) == out and self.name.startswith("."):
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_tables(tables(2), out, config={})
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
