from pathlib import Path

import pytest

from simkv.errors import ConfigError
from simkv.kv.layout import ContiguousMax, Paged
from simkv.sweep.grid import Sweep, read_sweep
from simkv.workload.source import TraceFile


def sweep(tmp_path: Path, text: str) -> Sweep:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    return read_sweep(path)


def test_cells_are_the_product_of_axes_and_seeds_in_order(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        seeds = [3, 1]
        [axes]
        kv.block_tokens = [16, 32]
        "kv.sharing.kind" = ["none", "hash-chain"]
        """,
    )
    assert [arm.label for arm in found.arms] == [
        "block_tokens=16 sharing=none",
        "block_tokens=16 sharing=hash-chain",
        "block_tokens=32 sharing=none",
        "block_tokens=32 sharing=hash-chain",
    ]
    assert [cell.seed for cell in found.cells] == [3, 1] * 4
    assert found.axes == (("kv.block_tokens",), ("kv.sharing.kind",))
    assert found.arms[3].columns == {"kv.block_tokens": 32, "kv.sharing.kind": "hash-chain"}
    assert len({cell.id for cell in found.cells}) == 8
    assert found.name == tmp_path.name


def test_a_seed_resamples_a_trace_and_the_sweep_says_so(tmp_path: Path) -> None:
    found = sweep(tmp_path, "seeds = 2\n[axes]\nkv.block_tokens = [16]")
    workload = found.cells[0].config.workload
    assert isinstance(workload, TraceFile)
    assert workload.transform.resample
    assert "resample = true" in found.notes[0]
    of_arm = found.arms[0].config.workload
    assert isinstance(of_arm, TraceFile)
    assert not of_arm.transform.resample  # a pick runs on the trace itself


def test_the_file_may_say_itself_whether_a_trace_is_resampled(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        "[base.workload.transform]\nresample = false\n[axes]\nkv.block_tokens = [16]",
    )
    workload = found.cells[0].config.workload
    assert isinstance(workload, TraceFile)
    assert not workload.transform.resample
    assert "says itself" in found.notes[0]


def test_a_base_file_lies_beside_the_sweep_and_objectives_over_it(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("seed = 7\n[objectives]\nttft_s = 5.0\ntpot_s = 0.2\n")
    found = sweep(
        tmp_path,
        """
        base = "run.toml"
        seeds = 2
        objective = "p99-ttft"
        [objectives]
        ttft_s = 1
        [axes]
        sched.max_num_seqs = [8]
        """,
    )
    assert found.seeds == (7, 8)
    assert found.objective.name == "p99-ttft"
    assert found.arms[0].config.objectives.ttft_s == 1.0
    assert found.arms[0].config.objectives.tpot_s == 0.2


def test_linked_paths_move_together(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        seeds = 1
        [linked.layout]
        names = ["paged", "reserved"]
        kv = [{ block_tokens = 32 }, { kind = "contiguous-max", num_slots = 4096 }]
        sched.max_num_seqs = [256, 64]
        [axes]
        sched.max_num_batched_tokens = [2048, 4096]
        """,
    )
    assert [arm.label for arm in found.arms] == [
        "max_num_batched_tokens=2048 paged",
        "max_num_batched_tokens=2048 reserved",
        "max_num_batched_tokens=4096 paged",
        "max_num_batched_tokens=4096 reserved",
    ]
    assert found.arms[0].config.kv == Paged(block_tokens=32)
    assert found.arms[1].config.kv == ContiguousMax(num_slots=4096)
    assert found.arms[1].config.sched.max_num_seqs == 64
    assert found.axes[1] == (
        "layout", "kv.block_tokens", "kv.kind", "kv.num_slots", "sched.max_num_seqs"
    )  # fmt: skip
    assert found.arms[1].columns == {
        "sched.max_num_batched_tokens": 2048,
        "layout": "reserved",
        "kv.block_tokens": None,
        "kv.kind": "contiguous-max",
        "kv.num_slots": 4096,
        "sched.max_num_seqs": 64,
    }


def test_what_a_change_of_kind_drops_does_not_depend_on_the_order_of_axes(tmp_path: Path) -> None:
    found = sweep(
        tmp_path,
        """
        seeds = 1
        [base.kv]
        block_tokens = 4
        [axes]
        kv.num_slots = [512]
        kv.kind = ["contiguous-max", "paged"]
        """,
    )
    assert found.arms[0].config.kv == ContiguousMax(num_slots=512)
    assert found.arms[1].config.kv == Paged(block_tokens=4, num_slots=512)


def test_identity_follows_what_the_result_depends_on(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("one")
    text = f"""
        seeds = [0]
        [base.workload]
        path = "{trace}"
        [axes]
        kv.block_tokens = [BLOCK]
        """
    first = sweep(tmp_path, text.replace("BLOCK", "16")).cells[0].id
    assert sweep(tmp_path, text.replace("BLOCK", "16")).cells[0].id == first
    assert sweep(tmp_path, text.replace("BLOCK", "17")).cells[0].id != first
    assert sweep(tmp_path, text.replace("BLOCK", "16").replace("[0]", "[1]")).cells[0].id != first
    trace.write_text("two")
    changed = sweep(tmp_path, text.replace("BLOCK", "16")).cells[0].id
    assert changed != first
    moved = tmp_path / "elsewhere.csv"
    trace.rename(moved)
    text = text.replace(str(trace), str(moved))
    assert sweep(tmp_path, text.replace("BLOCK", "16")).cells[0].id == changed


MANY = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "long_prefill_token_threshold")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[axes]\nkv.block_token = [1]", "kv.block_token: unknown key"),
        ("[axes]\nkv.block_tokens = [0]", "0 is not a block size"),
        ("[axes]\nkv.block_tokens = 16", "axes.kv.block_tokens: expected a list"),
        ("[axes]\nkv.block_tokens = []", "axes.kv.block_tokens: an empty list"),
        ("[axes]\nkv.block_tokens = [1, 1]", "given twice"),
        ("[axes]\nseed = [1]", "seeds are no axis"),
        ("[axes]\nkv.kind = ['paged']\nkv = [{}]", "not TOML"),
        ("[axis]\nkv.block_tokens = [1]", "axis: unknown key"),
        ("[base]\n", "nothing to vary"),
        ("seeds = 0\n[axes]\nkv.block_tokens = [1]", "seeds: expected a count"),
        ("seeds = 1000000000000\n[axes]\nkv.block_tokens = [1]", "seeds: 1,000,000,000,000 seeds"),
        (
            "[axes]\n" + "".join(f"sched.{key} = {list(range(1, 999))}\n" for key in MANY),
            "axes: 992,023,968,016 arms and 5 seeds make more than 100,000 cells",
        ),
        ("seeds = [1, 1]\n[axes]\nkv.block_tokens = [1]", "seeds: a seed is given twice"),
        ("seeds = [-1]\n[axes]\nkv.block_tokens = [1]", "seeds: -1 is no seed"),
        ("objective = 'speed'\n[axes]\nkv.block_tokens = [1]", "objective: got 'speed'"),
        ("base = 'none.toml'\n[axes]\nkv.block_tokens = [1]", "none.toml"),
        ("[base]\nkv = 3\n[axes]\nkv.block_tokens = [1]", "kv"),
        ("[linked.a]\nkv.block_tokens = [1, 2]\nkv.num_blocks = [3]", "linked.a: lists that move"),
        (
            "[linked.a]\nkv.block_tokens = [1, 2]\n[axes]\nkv.block_tokens = [1]",
            "kv.block_tokens: set by two axes",
        ),
        ("[axes]\nkv = [{ block_tokens = 1 }]\n'kv.num_blocks' = [9]", "set by two axes"),
    ],
)
def test_a_mistake_is_one_sentence_with_file_and_path(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep(tmp_path, text)
    assert told in str(caught.value)
    assert str(tmp_path / "sweep.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sweep_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml"):
        read_sweep(tmp_path / "no.toml")


def test_paths_are_taken_from_the_sweep_files_folder(tmp_path, monkeypatch):
    folder = tmp_path / "sweeps"
    folder.mkdir()
    for name in ("one.csv", "two.csv"):
        (folder / name).write_text("arrival_s,prompt_tokens,output_tokens\n0,10,1\n")
    (folder / "sweep.toml").write_text(
        'axes.kv.block_tokens = [1, 16]\nbase.workload.path = "one.csv"\n'
    )
    (folder / "traces.toml").write_text('axes.workload.path = ["one.csv", "two.csv"]\n')
    monkeypatch.chdir(tmp_path)
    inline = read_sweep(folder / "sweep.toml")
    varied = read_sweep(folder / "traces.toml")
    assert {arm.config.workload.path for arm in inline.arms} == {str(folder / "one.csv")}
    assert [Path(arm.config.workload.path).name for arm in varied.arms] == ["one.csv", "two.csv"]
    assert all(Path(arm.config.workload.path).is_file() for arm in varied.arms)
