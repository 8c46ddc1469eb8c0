"""The scheduler and the accounts decide as vLLM V1 does, in every step of its logs."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from simkv.errors import InputError
from simkv.sim.cases import Manager, read_case
from simkv.sim.replay import replay
from tests.sim.step_log import KEPT, difference, kept_case, kept_steps

Shared = Callable[..., Path]

CASES = {
    "01_no_pressure": 900,
    "03_pressure_nocache": 1801,
    "04_shared_prefix": 885,
    "05_multiturn": 882,
    "06_bs001": 440,
    "06_bs016": 440,
    "06_bs256": 539,
    "07_chunked_small_budget": 614,
    "09_block_boundaries": 155,
    "10_full_hit": 90,
    "11_lru_order": 277,
    "12_priority": 1012,
    "13_long_prefill_threshold": 511,
    "14_long_prefill_adaptive": 511,
    "15_watermark": 1105,
    "16_no_reserve_isl": 1092,
    "18_timed": 1739,
    "19_async": 1012,
    "20_sliding_window": 505,
    "21_hybrid": 699,
    "22_parallel_sampling": 1134,
    "24_prefix_tree_salt": 468,
    "25_pressure_shared": 2436,
    "28_aborts": 847,
    "35_async_hybrid_bs8": 1049,
    "42_async_max_model_len": 706,
    "44_watermark_alone": 1688,
    "45_no_chunk_bursts": 317,
    "47_priority_late_first": 1750,
}
"""All published cases and their published numbers of steps."""

WINDOWED = ("20_sliding_window", "21_hybrid", "35_async_hybrid_bs8")
"""Cases that are left to the physical manager, whoever is asked for."""


@pytest.fixture(scope="module")
def compare(shared: Shared) -> ModuleType:
    """Load the program that judges step logs."""
    path = shared("vllm-v1", "compare.py")
    spec = importlib.util.spec_from_file_location("compare", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("manager", ["accounts", "blocks"])
@pytest.mark.parametrize("name", CASES)
def test_every_step_of_a_published_case_is_vllm_s(
    name: str, manager: Manager, shared: Shared, compare: ModuleType
) -> None:
    config = shared("vllm-v1", "cases", f"{name}.config.json")
    workload = shared("vllm-v1", "cases", f"{name}.workload.jsonl.gz")
    ours = list(replay(*read_case(config, workload), manager=manager))
    real = compare.read_steps(compare.log_path(str(config)))
    physical = manager == "blocks" or name in WINDOWED
    fields = compare.fields_to_compare(ours, real, physical)
    assert compare.difference(ours, real, fields) is None
    assert len(ours) == CASES[name]
    logged = {key for record in real for key in record}
    assert set(fields) == (logged if physical else logged - {"newblk", "freeq"})


def test_the_published_cases_have_as_many_steps_as_published() -> None:
    assert (len(CASES), sum(CASES.values())) == (29, 25_604)


@pytest.mark.parametrize("manager", ["accounts", "blocks"])
@pytest.mark.parametrize("name", KEPT)
def test_every_step_of_a_kept_case_is_vllm_s(name: str, manager: Manager) -> None:
    config, workload = kept_case(name)
    assert difference(config, workload, kept_steps(name), manager) == ""


LINE = {"id": "a", "arrival_step": 0, "segments": [[1, 20]], "output_len": 2, "output_start": 99}


@pytest.mark.parametrize(
    ("config", "lines", "message"),
    [
        ({"blocksize": 16}, [LINE], "blocksize: unknown key of a case"),
        ({"block_size": "16"}, [LINE], "block_size: got '16', expected int"),
        ({"policy": "sjf"}, [LINE], "policy: got 'sjf', expected fcfs or priority"),
        ({"sliding_window": 8, "hybrid_sliding_window": 8}, [LINE], "sliding_window and hybrid_"),
        ({}, [{**LINE, "output_len": "2"}], "workload line 1: got '2', expected a number"),
        ({}, [{**LINE, "segments": [3]}], "workload line 1: segments must be pairs"),
        ({"block_size": 0}, [LINE], "kv.block_tokens: 0 is not a block size"),
        ({"cost": {"base": 1}}, [LINE], "workload line 1: arrival_time is missing"),
        ({}, [{**LINE, "prio": 1}], "workload line 1: unknown field prio"),
        ({}, [LINE, LINE], "workload line 2: id a is there already"),
        ({"max_model_len": 20}, [LINE], "workload line 1: 20 prompt and 2 output tokens"),
        (
            {},
            [
                LINE,
                {"after": "x", **{k: v for k, v in LINE.items() if k != "arrival_step"}, "id": "b"},
            ],
            "workload line 2: comes after x, which is not there",
        ),
        ({"num_gpu_blocks": 2}, [LINE], "request a can never run"),
    ],
)
def test_what_cannot_be_replayed_is_said_in_one_sentence(
    config: dict[str, object], lines: list[dict[str, object]], message: str
) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        list(replay(config, lines))


def test_a_step_that_parts_from_the_log_is_named() -> None:
    config, workload = kept_case(KEPT[0])
    steps = kept_steps(KEPT[0])
    steps[3]["free"] += 1
    wanted = steps[3]["free"]
    assert difference(config, workload, steps) == (f"step 3, free: got {wanted - 1}, vLLM {wanted}")


def test_a_log_that_ends_early_or_late_is_named() -> None:
    config, workload = kept_case(KEPT[0])
    steps = kept_steps(KEPT[0])
    assert difference(config, workload, steps[:-1]).startswith("step after the end")
    assert difference(config, workload, [*steps, steps[-1]]).startswith("step ")
