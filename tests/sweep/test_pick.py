import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from simkv.config.load import read_json_config
from simkv.config.run import ModelChoice, RunConfig
from simkv.errors import InputError
from simkv.kv.layout import ContiguousMax, NoSharing, Paged
from simkv.sched.policy import VllmV1
from simkv.sweep.engines import ENGINES
from simkv.sweep.pick import pick
from simkv.sweep.run import run_sweep
from simkv.sweep.vllm import hub_name, vllm_flags
from tests.sweep import fake


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(
        """
        seeds = 3
        [axes]
        kv.block_tokens = [1, 8, 16, 32]
        kv.sharing.kind = ["none", "hash-chain"]
        """
    )
    run_sweep(path, tmp_path / "out", workers=1, simulate=fake.simulate, load=fake.load)
    return tmp_path / "out"


def test_picks_are_the_best_arms_as_files_that_run(out: Path) -> None:
    found = pick(out, top=3)
    assert [each.label for each in found] == [
        "block_tokens=1 sharing=hash-chain",
        "block_tokens=8 sharing=hash-chain",
        "block_tokens=16 sharing=hash-chain",
    ]
    assert sorted(file.name for file in (out / "picks").iterdir()) == [
        *(each.path.name for each in found),
        "picks.json",
    ]
    assert read_json_config(found[0].path) == found[0].config
    told = json.loads((out / "picks" / "picks.json").read_text())["picks"]
    assert [each["file"] for each in told] == [each.path.name for each in found]
    assert told[0] == found[0].details
    assert told[0]["values"]["hit_ratio"]["num_seeds"] == 3
    assert told[0]["values"]["hit_ratio"]["mean"] == pytest.approx(0.499)


def test_an_engine_that_does_not_take_a_pick_gets_the_best_that_it_takes(out: Path) -> None:
    first, _, third = pick(out, top=3, engine="vllm")
    assert first.objection is not None
    assert "multiples of 16, not 1" in first.objection
    assert first.substitute is not None
    assert first.substitute.label == "block_tokens=16 sharing=hash-chain"
    # By hand: hits are 0.5 - B / 1000 at every seed.
    hits = first.substitute.decisive
    assert hits.objective.name == "hit-ratio"
    assert hits.comparison.difference.mean == pytest.approx(0.015)
    assert third.objection is None
    assert third.substitute is None
    file = first.details
    assert not file["engine"]["accepted"]
    assert {cost["column"] for cost in file["substitute"]["costs"]} == {
        "goodput_requests_per_s",
        "hit_ratio",
        "memory_waste_ratio",
    }
    assert "step time does not depend on it" in file["notes"][0]
    assert "not accepted" in " ".join(file["says"])


def test_an_engine_that_takes_nothing_of_the_sweep(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text("seeds = 2\n[axes]\nkv.kind = ['contiguous-max']\n")
    run_sweep(path, tmp_path / "other", workers=1, simulate=fake.simulate, load=fake.load)
    (found,) = pick(tmp_path / "other", engine="sglang")
    assert (
        found.objection
        == f"{ENGINES['sglang'].title} has no contiguous-max layout, only paged memory"
    )
    assert "no arm of this sweep is accepted" in " ".join(found.sentences)


def test_a_pick_says_how_many_replicas_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text("seeds = 2\n[axes]\ncluster.num_replicas = [1, 3]\n")
    run_sweep(path, tmp_path / "out", workers=1, simulate=fake.simulate, load=fake.load)
    one, three = sorted(pick(tmp_path / "out"), key=lambda found: found.label)
    assert one.sentences[-1].startswith("serve it with: vllm serve ")
    assert (
        "on each of 3 replicas, behind a round-robin router, with: vllm serve "
        in three.sentences[-1]
    )


def test_picks_of_an_earlier_time_are_replaced(out: Path) -> None:
    pick(out, top=3)
    (out / "picks" / "mine.json").write_text("{}")
    pick(out, top=1, objective="waste")
    names = sorted(file.name for file in (out / "picks").iterdir())
    assert names[1:] == ["mine.json", "picks.json"]
    assert len(names) == 3


def test_a_pick_is_read_without_pydantic(out: Path) -> None:
    file = pick(out, top=1)[0].path
    code = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from pathlib import Path\n"
        "from simkv.config.load import read_json_config\n"
        f"print(read_json_config(Path({str(file)!r})).kv.block_tokens)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"top": 0}, "--top 0"),
        ({"objective": "speed"}, "there is no objective 'speed', expected goodput"),
        ({"engine": "tgi"}, "there is no engine 'tgi', expected vllm"),
    ],
)
def test_a_mistake_is_one_sentence(out: Path, options: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        pick(out, **options)  # type: ignore[arg-type]


def test_a_folder_without_a_finished_sweep(out: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder of a sweep"):
        pick(tmp_path / "nowhere")
    (out / "cells.parquet").unlink()
    with pytest.raises(InputError, match="has not finished"):
        pick(out)
    (out / "cells.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not readable"):
        pick(out)


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ({"format": "simkv-sweep"}, "'arms'"),
        ({"format": "simkv-sweep", "arms": 3}, "not iterable"),
        ({"format": "simkv-sweep", "objective": "waste", "arms": []}, "knows no arm block_tokens"),
    ],
)
def test_a_marker_that_does_not_fit_the_cells(out: Path, marker: object, told: str) -> None:
    (out / "sweep.json").write_text(json.dumps(marker))
    with pytest.raises(InputError, match=told):
        pick(out)


def test_a_table_that_is_no_sweeps(out: Path) -> None:
    pq.write_table(pa.table({"arm": ["a"]}), out / "cells.parquet")
    with pytest.raises(InputError, match="not as simkv sweep writes it"):
        pick(out)


@pytest.mark.parametrize(
    ("engine", "taken"),
    [
        ("vllm", {16, 32, 48, 64, 128, 256}),
        ("vllm-flashinfer", {16, 32, 64}),
        ("sglang", {1, 2, 8, 16, 32, 48, 64, 128, 256}),
        ("sglang-trtllm", {16, 32, 64}),
        ("tensorrt-llm", {2, 8, 16, 32, 64, 128, 256}),
    ],
)
def test_block_sizes_that_engines_take(engine: str, taken: set[int]) -> None:
    sizes = (1, 2, 8, 16, 32, 48, 64, 128, 256)
    configs = {size: RunConfig(kv=Paged(block_tokens=size)) for size in sizes}
    found = {size for size in sizes if ENGINES[engine].objection(configs[size]) is None}
    assert found == taken
    assert ENGINES[engine].source


def test_flags_say_what_the_configuration_says() -> None:
    config = RunConfig(
        model=ModelChoice(name="llama-3.1-8b", kv_dtype="fp8", tensor_parallel=2),
        kv=Paged(block_tokens=32, num_blocks=1001),
        sched=VllmV1(max_model_len=4096, max_num_seqs=64, chunked_prefill=False,
                     max_num_batched_tokens=8192, watermark_ratio=0.05),
    )  # fmt: skip
    flags = " ".join(vllm_flags(config))
    assert flags == (
        "meta-llama/Llama-3.1-8B --tensor-parallel-size 2 --gpu-memory-utilization 0.9 "
        "--kv-cache-dtype fp8 --max-num-seqs 64 --max-num-batched-tokens 8192 "
        "--scheduling-policy fcfs --long-prefill-token-threshold 0 --no-enable-chunked-prefill "
        "--max-model-len 4096 --watermark 0.05 --block-size 32 --num-gpu-blocks-override 1001 "
        "--enable-prefix-caching"
    )
    unshared = replace(config, kv=Paged(block_tokens=16, num_slots=1600, sharing=NoSharing()))
    flags = " ".join(vllm_flags(unshared))
    # The null block comes on top of the slots.
    assert flags.endswith(
        "--block-size 16 --num-gpu-blocks-override 101 --no-enable-prefix-caching"
    )
    assert "--block-size" not in vllm_flags(RunConfig(kv=ContiguousMax()))
    assert "--num-gpu-blocks-override" not in vllm_flags(RunConfig())


def test_a_model_keeps_its_name_where_the_hub_is_not_its_source(tmp_path: Path) -> None:
    assert hub_name("llama-3.1-8b") == "meta-llama/Llama-3.1-8B"
