import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from simkv.errors import InputError, InvariantError
from simkv.sweep import progress
from simkv.sweep.pick import pick
from simkv.sweep.run import TABLES, SweepResult, run_sweep
from tests.sweep import fake


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(
        """
        seeds = 3
        [axes]
        kv.block_tokens = [1, 16, 64, 128]
        kv.sharing.kind = ["none", "hash-chain"]
        """
    )
    return path


def run(path: Path, out: Path, *, workers: int = 1) -> SweepResult:
    return run_sweep(path, out, workers=workers, simulate=fake.simulate, load=fake.load)


def bytes_of(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in TABLES}


def test_a_sweep_leaves_one_row_a_cell_and_a_page(sweep_file: Path, tmp_path: Path) -> None:
    found = run(sweep_file, tmp_path / "out")
    cells = pq.read_table(tmp_path / "out" / "cells.parquet")
    assert cells.num_rows == 4 * 2 * 3
    assert cells["kv.block_tokens"].to_pylist()[:4] == [1, 1, 1, 1]
    assert cells["seed"].to_pylist()[:4] == [0, 1, 2, 0]
    assert set(cells["rejected_exceeds-pool"].to_pylist()) == {0, 1}
    assert (found.num_run, found.num_resumed) == (24, 0)
    best = found.ranking.rows[0].arm
    assert best.columns == {"kv.block_tokens": 1, "kv.sharing.kind": "hash-chain"}
    page = (tmp_path / "out" / "summary.md").read_text()
    assert "block_tokens=1 sharing=hash-chain" in page
    assert "**overloaded** at 3 of 3 seeds" in page
    assert "step time does not depend on it" in page
    assert "pieces of 8 tokens: block size 1 lies below" in page
    assert "block size 128 is large (2 arms)" in page
    assert "Student's t over 3 seeds" in page
    assert str(tmp_path) not in page.replace(found.out.parent.name, "")


def test_common_random_numbers_one_draw_a_seed_for_all_arms(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_LOADS", str(tmp_path / "loads"))
    found = run(sweep_file, tmp_path / "out")
    rows = found.cells.to_pylist()
    draws = {
        (row["seed"], row["output_tokens_per_s"])
        for row in rows
        if row["kv.sharing.kind"] == "none"
    }
    assert len(draws) == 3
    # The trace of a seed was loaded once for its eight cells.
    assert sorted((tmp_path / "loads").read_text().split()) == ["0", "1", "2"]


def test_workers_do_not_change_a_byte_and_share_traces(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(sweep_file, tmp_path / "one")
    monkeypatch.setenv("FAKE_LOADS", str(tmp_path / "loads"))
    run(sweep_file, tmp_path / "two", workers=2)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    assert len((tmp_path / "loads").read_text().split()) <= 4  # 3 seeds, one of them split at most


def test_what_is_there_is_not_run_again_and_what_is_broken_is(
    sweep_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(sweep_file, out)
    before = bytes_of(out)
    assert run(sweep_file, out).num_run == 0
    assert bytes_of(out) == before
    victim = sorted((out / "cells").iterdir())[3]
    (victim / "summary.json").write_text("{}")
    again = run(sweep_file, out)
    assert again.num_run == 1
    assert "summary.json was changed" in again.redone[0]
    assert bytes_of(out) == before


def test_a_changed_axis_keeps_the_cells_that_are_still_asked_for(
    sweep_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(sweep_file, out)
    sweep_file.write_text(sweep_file.read_text().replace("[1, 16, 64, 128]", "[16, 32]"))
    again = run(sweep_file, out)
    assert (again.num_run, again.num_resumed) == (6, 6)
    assert again.cells.num_rows == 12


def test_an_interrupted_sweep_leaves_no_tables_of_the_one_before_it(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(sweep_file, out)
    # The same arms of another model: their labels are equal, their results are not.
    sweep_file.write_text("base.model.name = 'qwen2.5-7b'\n" + sweep_file.read_text())

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fake, "simulate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(sweep_file, out)
    assert not {file.name for file in out.iterdir()} & set(TABLES)
    with pytest.raises(InputError, match="has not finished"):
        pick(out)


SCRIPT = """
    from pathlib import Path
    from simkv.sweep.run import run_sweep
    from tests.sweep import fake

    if __name__ == "__main__":
        try:
            run_sweep(Path({path!r}), Path({out!r}), workers={workers},
                      simulate=fake.simulate, load=fake.load)
        except KeyboardInterrupt:
            raise SystemExit(130)
"""


def start(path: Path, out: Path, workers: int, sleep_s: float) -> "subprocess.Popen[bytes]":
    script = out.parent / f"{out.name}.py"
    text = SCRIPT.format(path=str(path), out=str(out), workers=workers)
    script.write_text(textwrap.dedent(text))
    env = os.environ | {"PYTHONPATH": str(Path.cwd()), "FAKE_SLEEP_S": str(sleep_s)}
    return subprocess.Popen([sys.executable, str(script)], env=env, start_new_session=True)


def wait_for_cells(out: Path, count: int) -> None:
    deadline_s = time.perf_counter() + 60
    while time.perf_counter() < deadline_s:
        if (out / "cells").is_dir() and len(list((out / "cells").glob("[!.]*"))) >= count:
            return
        time.sleep(0.01)
    raise AssertionError("no cell was finished in a minute")


@pytest.mark.parametrize(("workers", "cells"), [(1, 1), (2, 5)])
def test_killed_and_resumed_is_as_if_nothing_had_happened(
    sweep_file: Path, tmp_path: Path, workers: int, cells: int
) -> None:
    run(sweep_file, tmp_path / "undisturbed")
    out = tmp_path / "killed"
    process = start(sweep_file, out, workers, sleep_s=0.05)
    wait_for_cells(out, cells)
    process.kill()
    process.wait()
    assert not (out / "cells.csv").exists()
    resumed = run(sweep_file, out)
    assert resumed.num_resumed >= cells
    assert resumed.num_run > 0
    assert bytes_of(out) == bytes_of(tmp_path / "undisturbed")


def left_running(group: int) -> list[str]:
    """Return what still runs of a process group, after giving it a moment to end."""
    deadline_s = time.perf_counter() + 10
    while True:
        listed = subprocess.run(
            ["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        of_group = [line.split(None, 2) for line in listed if line.split()[0] == str(group)]
        left = [parts[2] for parts in of_group if not parts[1].startswith("Z")]
        if not left or time.perf_counter() > deadline_s:
            return left
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_at_once_with_its_workers_and_keeps_what_is_finished(
    sweep_file: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out = tmp_path / "out"
    process = start(sweep_file, out, 2, sleep_s=0.2)
    wait_for_cells(out, 1)
    os.killpg(process.pid, number)  # as a terminal does: to every process
    assert process.wait(timeout=30) == 130
    assert not left_running(process.pid)
    assert run(sweep_file, out).num_resumed >= 1


def test_a_worker_that_dies_is_told_with_its_cell(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_DEADLY_BLOCK", "64")
    with pytest.raises(InputError, match=r"killed by SIGKILL.*cell [0-9a-f]{16} \(block_tokens=64"):
        run(sweep_file, tmp_path / "out", workers=2)
    monkeypatch.delenv("FAKE_DEADLY_BLOCK")
    assert run(sweep_file, tmp_path / "out").num_resumed > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bug_is_told_with_its_cell(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setenv("FAKE_BUGGY_BLOCK", "64")
    with pytest.raises(InvariantError, match=r"block_tokens=64(.|\n)*ZeroDivisionError"):
        run(sweep_file, tmp_path / "out", workers=workers)


def test_an_arm_that_cannot_run_is_named_and_the_others_go_on(
    sweep_file: Path, tmp_path: Path
) -> None:
    sweep_file.write_text(sweep_file.read_text().replace("128]", "999]"))
    found = run(sweep_file, tmp_path / "out")
    assert set(found.failures) == {
        "block_tokens=999 sharing=none",
        "block_tokens=999 sharing=hash-chain",
    }
    assert "could not run: kv.num_blocks cannot hold" in found.page
    assert len(found.ranking.rows) == 6
    sweep_file.write_text(sweep_file.read_text().replace("[1, 16, 64, 999]", "[999]"))
    with pytest.raises(InputError, match="no arm can run; block_tokens=999"):
        run(sweep_file, tmp_path / "other")


def test_workers_are_one_or_more(sweep_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--workers 0"):
        run(sweep_file, tmp_path / "out", workers=0)


def test_progress_lines_say_what_remains(
    sweep_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)
    run_sweep(
        sweep_file,
        tmp_path / "out",
        workers=1,
        progress=progress.on_stderr,
        simulate=fake.simulate,
        load=fake.load,
    )
    assert "24 of 24 cells" in told.getvalue()
    assert progress.remaining_s(4, 8, 2.0) == 4.0
    assert progress.remaining_s(0, 8, 2.0) is None


def test_the_real_simulation_gives_the_same_bytes_for_any_number_of_workers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        """
        seeds = 2
        objective = "waste"
        [base.workload]
        kind = "synthetic"
        num_requests = 40
        [base.kv]
        num_slots = 20480
        [base.cost]
        kind = "linear"
        base_s = 0.01
        [axes]
        kv.block_tokens = [1, 16, 256]
        """
    )
    found = run_sweep(path, tmp_path / "one", workers=1)
    run_sweep(path, tmp_path / "two", workers=2)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    assert [row.arm.columns["kv.block_tokens"] for row in found.ranking.rows] == [1, 16, 256]
    # Nothing is wasted at one slot a block, and about half a block a sequence otherwise.
    waste = found.cells["memory_waste_ratio"].to_pylist()
    assert waste[:2] == [0, 0]
    assert all(16 * small < 2 * large for small, large in zip(waste[2:4], waste[4:], strict=True))
    assert (
        found.cells["query_tokens"].to_pylist() == found.cells["query_tokens"].to_pylist()[:2] * 3
    )
