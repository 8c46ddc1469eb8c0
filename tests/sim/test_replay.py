"""The scheduler and the accounts decide as vLLM V1 does, in every step of its logs."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from simkv.errors import InputError
from simkv.sim.replay import read_case, replay
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
    "22_parallel_sampling": 1134,
    "24_prefix_tree_salt": 468,
    "25_pressure_shared": 2436,
    "28_aborts": 847,
    "44_watermark_alone": 1688,
    "45_no_chunk_bursts": 317,
    "47_priority_late_first": 1750,
}
"""Cases with one full-attention group and no asynchrony, and their published numbers of steps."""

NOT_YET = {
    "19_async": "async_scheduling=True",
    "20_sliding_window": "sliding_window=128",
    "21_hybrid": "hybrid_sliding_window=128",
    "35_async_hybrid_bs8": "async_scheduling=True",
    "42_async_max_model_len": "async_scheduling=True",
}


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


@pytest.mark.parametrize("name", CASES)
def test_every_step_of_a_published_case_is_vllm_s(
    name: str, shared: Shared, compare: ModuleType
) -> None:
    config = shared("vllm-v1", "cases", f"{name}.config.json")
    workload = shared("vllm-v1", "cases", f"{name}.workload.jsonl.gz")
    ours = list(replay(*read_case(config, workload)))
    real = compare.read_steps(compare.log_path(str(config)))
    fields = compare.fields_to_compare(ours, real, False)
    assert compare.difference(ours, real, fields) is None
    assert len(ours) == CASES[name]
    logged = {key for record in real for key in record}
    assert set(fields) == logged - {"newblk", "freeq"}  # all but physical blocks


@pytest.mark.parametrize("name", NOT_YET)
def test_what_cannot_be_replayed_yet_is_refused(name: str, shared: Shared) -> None:
    case = read_case(
        shared("vllm-v1", "cases", f"{name}.config.json"),
        shared("vllm-v1", "cases", f"{name}.workload.jsonl.gz"),
    )
    with pytest.raises(InputError, match=f"^{NOT_YET[name]} cannot be replayed yet"):
        replay(*case)


@pytest.mark.parametrize("name", KEPT)
def test_every_step_of_a_kept_case_is_vllm_s(name: str) -> None:
    config, workload = kept_case(name)
    steps = kept_steps(name)
    assert list(replay(config, workload)) == steps
    assert difference(config, workload, steps) == ""


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
