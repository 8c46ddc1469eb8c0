"""Step times from the shipped profiles: bounds, order, bookkeeping, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.build import build_cost
from simkv.cost.catalog import find_device, find_model
from simkv.cost.choice import MeasuredTable
from simkv.cost.model import CostModel
from simkv.cost.physics import mixed_ragged_ratio
from simkv.cost.profile import find_profile, load, profile_of_device, profiles, save
from simkv.errors import ConfigError, InputError, ProfileError
from simkv.sched.work import StepWork

_DEVICES = ("h200", "a100-80gb", "rtx-4090", "rtx-pro-6000")


def _cost(device: str, model: str = "llama-3.1-8b", **changes: Any) -> CostModel:
    options: dict[str, Any] = {
        "tensor_parallel": 1,
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 128,
        "max_model_len": 16384,
    }
    choice = changes.pop("choice", MeasuredTable())
    return build_cost(choice, find_model(model), find_device(device), **options | changes)


_COSTS = {device: _cost(device) for device in _DEVICES}


def _decode(batch: int, context: int) -> StepWork:
    return StepWork([], batch, batch * context, context, batch)


@pytest.mark.parametrize("device", _DEVICES)
def test_a_decode_takes_no_less_than_reading_the_weights(device: str) -> None:
    model, peak = find_model("llama-3.1-8b"), find_device(device).read_bytes_per_s
    weights = 2 * (model.total_parameters - model.vocab * model.hidden)
    for batch, context in ((1, 16), (1, 1000), (32, 1000)):
        floor_s = (weights + batch * context * 131072) / peak
        time_s = _COSTS[device].step_time_s(_decode(batch, context))
        assert floor_s < time_s < 3 * floor_s


@pytest.mark.parametrize("device", _DEVICES)
def test_a_long_prefill_runs_below_the_arithmetic_peak(device: str) -> None:
    flops = 2 * 7.0e9 * 2048
    time_s = _COSTS[device].step_time_s(StepWork([(2048, 0)], 0, 0, 0, 1))
    assert 0.3 < flops / time_s / find_device(device).bf16_flop_per_s < 1.05


@pytest.mark.parametrize("device", _DEVICES)
@given(batch=st.integers(1, 127), context=st.integers(1, 16000), more=st.integers(1, 384))
def test_more_work_takes_longer_but_for_measured_dips(
    device: str, batch: int, context: int, more: int
) -> None:
    # The tables have dips of their own: a larger tile or another split may be faster.
    cost = _COSTS[device]
    base = cost.step_time_s(_decode(batch, context))
    assert cost.step_time_s(_decode(batch + 1, context)) > 0.93 * base
    assert cost.step_time_s(_decode(batch, context + more)) > 0.97 * base
    one = cost.step_time_s(StepWork([(more, context)], 0, 0, 0, 1))
    assert cost.step_time_s(StepWork([(more + 1, context)], 0, 0, 0, 1)) > 0.93 * one
    assert cost.step_time_s(StepWork([(more, context + 8)], 0, 0, 0, 1)) > 0.97 * one


@pytest.mark.parametrize("device", _DEVICES)
def test_prefill_and_decode_together_take_longer_than_either(device: str) -> None:
    cost = _COSTS[device]
    prefill = StepWork([(512, 0)], 0, 0, 0, 1)
    both = StepWork([(512, 0)], 16, 16 * 1000, 1000, 17)
    split = StepWork([(256, 0), (256, 256)], 16, 16 * 1000, 1000, 17)
    alone = [cost.step_time_s(prefill), cost.step_time_s(_decode(16, 1000))]
    assert max(alone) < cost.step_time_s(both) < sum(alone)
    # The same tokens of one prompt in two chunks are about the same work.
    assert cost.step_time_s(split) == pytest.approx(cost.step_time_s(both), rel=0.1)


@pytest.mark.parametrize("device", _DEVICES)
def test_a_ragged_batch_costs_a_little_more(device: str) -> None:
    cost = _COSTS[device]
    even, ragged = _decode(32, 1000), StepWork([], 32, 32 * 1000, 8000, 32)
    ratio = cost.step_time_s(ragged) / cost.step_time_s(even)
    assert 1.0 < ratio < 1.1


@pytest.mark.parametrize("device", _DEVICES)
def test_a_chunk_of_one_token_is_a_decode_to_the_kernel(device: str) -> None:
    cost = _COSTS[device]
    decodes = StepWork([], 17, 16 * 1000 + 720, 1000, 17)
    assert cost.step_time_s(StepWork([(1, 719)], 16, 16 * 1000, 1000, 17)) == (
        cost.step_time_s(decodes)
    )
    assert cost.step_time_s(StepWork([(1, 719)], 0, 0, 0, 1)) == (
        cost.step_time_s(StepWork([], 1, 720, 720, 1))
    )
    with_chunk = StepWork([(300, 0), (1, 719)], 16, 16 * 1000, 1000, 18)
    assert cost.step_time_s(with_chunk) == (
        cost.step_time_s(StepWork([(300, 0)], 17, 16 * 1000 + 720, 1000, 18))
    )


@pytest.mark.parametrize("device", ["rtx-4090", "rtx-pro-6000"])
@pytest.mark.parametrize("longest", [1000, 2000, 4000])
def test_a_long_decode_stretches_a_step_with_a_prefill(device: str, longest: int) -> None:
    cost, profile = _COSTS[device], profile_of_device(device)
    assert profile.mixed is not None
    even, ragged = (StepWork([(256, 128)], 32, 32000, most, 33) for most in (1000, longest))
    with_attention, without = (
        cost.step_time_s(work) for work in (even, StepWork([(288, 0)], 0, 0, 0, 33))
    )
    columns = [np.array([float(x)]) for x in (256, 128, 32, 1000, longest)]
    ratio = float(mixed_ragged_ratio(profile.mixed.coefficients, *columns)[0])
    added = cost.step_time_s(ragged) - with_attention
    # Attention is what a step has beyond its dense layers: less than all, more than the difference.
    assert (ratio - 1) * (with_attention - without) <= added <= (ratio - 1) * with_attention
    assert (added > 0) is (longest > 1000)


def test_times_are_plain_floats_and_repeat() -> None:
    work = StepWork([(300, 17), (5, 0)], 7, 7 * 123, 400, 8)
    for cost in _COSTS.values():
        first = cost.step_time_s(work)
        assert type(first) is float
        assert cost.step_time_s(work) == first


def test_the_host_bounds_an_empty_or_tiny_step_and_overhead_is_added() -> None:
    idle = StepWork([], 0, 0, 0, 0)
    assert _COSTS["h200"].step_time_s(idle) == 13e-6
    slow = _cost("h200", choice=MeasuredTable(host_overhead_s=0.5))
    work = _decode(4, 100)
    assert slow.step_time_s(work) == _COSTS["h200"].step_time_s(work) + 0.5


def test_questions_out_of_range_are_counted_with_their_distance() -> None:
    cost = _cost("h200")
    assert cost.warnings() == []
    cost.step_time_s(_decode(128, 8192))
    cost.step_time_s(_decode(128, 16384))
    assert cost.warnings() == [
        "profile h200-vllm-0.24: mean context of a decode batch: asked up to 16,384, measured up "
        "to 4,096, 4.00 times as far (2 times); beyond it the fitted formula is extrapolated"
    ]


def test_beyond_the_limits_times_keep_growing() -> None:
    cost = _COSTS["a100-80gb"]
    at, past = (cost.step_time_s(_decode(batch, 500)) for batch in (128, 256))
    assert at < past < 2 * at
    long, longer = (cost.step_time_s(_decode(8, context)) for context in (16384, 32768))
    assert longer > long


@pytest.mark.parametrize("model", ["opt-13b", "llama-2-7b", "qwen2.5-7b", "qwen3-4b"])
@pytest.mark.parametrize("device", ["h200", "a100-80gb"])
def test_any_model_is_served_and_what_stands_in_is_said(device: str, model: str) -> None:
    cost = _cost(device, model)
    weights = find_model(model).weight_bytes("bf16")
    time_s = cost.step_time_s(_decode(8, 512))
    floor_s = (weights + 8 * 512 * find_model(model).kv_bytes_per_token("bf16")) / (
        find_device(device).read_bytes_per_s
    )
    assert 0.8 * floor_s < time_s < 2.5 * floor_s
    said = any("stands in" in line for line in cost.warnings())
    assert said is (model != "qwen3-4b")


def test_latent_attention_and_experts_are_priced_and_said() -> None:
    cost = _cost("h200", "deepseek-v3", tensor_parallel=8, weight_dtype="fp8")
    assert len(cost.warnings()) == 2
    # 8 ranks read 37e9 active parameters' share, at one byte, for one token.
    assert 37e9 / 8 / 4.8e12 < cost.step_time_s(_decode(1, 1000)) < 10 * 37e9 / 8 / 4.8e12


def test_tensor_parallel_shortens_a_step_by_less_than_its_ranks() -> None:
    one, four = (_cost("h200", "llama-3.1-70b", tensor_parallel=n) for n in (1, 4))
    ratio = one.step_time_s(_decode(32, 1000)) / four.step_time_s(_decode(32, 1000))
    assert 2.5 < ratio < 4


def test_fp8_weights_shorten_a_decode() -> None:
    wide, narrow = (_cost("h200", weight_dtype=dtype) for dtype in ("bf16", "fp8"))
    assert 0.5 < narrow.step_time_s(_decode(1, 100)) / wide.step_time_s(_decode(1, 100)) < 0.85


@pytest.mark.parametrize(
    ("device", "changes", "sentence"),
    [
        ("h100", {}, "nothing was measured on h100"),
        ("rtx-4090", {"model": "qwen3-8b"}, "serves nothing else, got qwen3-8b"),
        ("a100-80gb", {"weight_dtype": "fp8"}, "no matrix products with weights in fp8"),
        ("a100-80gb", {"kv_dtype": "fp8"}, "no decode attention over a KV cache in fp8"),
        ("h200", {"tensor_parallel": 3}, "3 ranks cannot share evenly"),
        ("h200", {"tensor_parallel": 16}, "no all-reduce between 16 devices"),
        ("h200", {"choice": MeasuredTable(profile="h20")}, "did you mean h200-vllm-0.24"),
        ("h200", {"choice": MeasuredTable(profile="a100-vllm-0.14")}, "measured on a100-80gb"),
    ],
)
def test_what_a_profile_cannot_serve_is_refused(
    device: str, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((ProfileError, ConfigError)) as caught:
        _cost(device, **changes)
    assert sentence in str(caught.value)


def test_profiles_say_where_they_come_from() -> None:
    found = profiles()
    assert [profile.name for profile in found] == [
        "a100-vllm-0.14", "h200-vllm-0.24", "rtx4090-llmservingsim", "rtxpro6000-llmservingsim",
    ]  # fmt: skip
    for profile in found:
        assert not profile.block_size_varies
        assert profile.block_tokens_measured in (16, 64)
        assert all(len(source.sha256) == 64 and source.licence for source in profile.sources)
        assert find_profile(profile.device).name == profile.name


def test_a_profile_survives_its_file_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "again.json"
    for profile in profiles():
        save(profile, path)
        first = path.read_bytes()
        assert len(first) < 500_000
        save(load(path), path)
        assert path.read_bytes() == first


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "is not JSON"), ("[]", "not a profile of format 1"), ('{"format": 1}', "is damaged")],
)
def test_damaged_profiles_get_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=sentence):
        load(path)


def test_no_time_is_below_zero_or_without_end() -> None:
    for cost in _COSTS.values():
        for new in (1, 7, 2048, 5000):
            for cached in (0, 1, 16384, 200_000):
                time_s = cost.step_time_s(StepWork([(new, cached)], 1, cached + 1, cached + 1, 2))
                assert 0 < time_s < math.inf
