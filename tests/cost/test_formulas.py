"""Linear and roofline step times, worked by hand."""

from typing import Any

import pytest

from simkv.cost.build import build_cost
from simkv.cost.catalog import find_device, find_model
from simkv.cost.choice import Cost, Linear, MeasuredTable, Roofline
from simkv.cost.model import CostModel
from simkv.errors import ConfigError
from simkv.sched.work import StepWork


def _cost(choice: Cost, model: str = "llama-3.1-8b", **changes: Any) -> CostModel:
    options: dict[str, Any] = {
        "tensor_parallel": 1,
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 256,
        "max_model_len": 8192,
    }
    return build_cost(choice, find_model(model), find_device("h200"), **options | changes)


def _decode(batch: int, context: int) -> StepWork:
    return StepWork([], batch, batch * context, context, batch)


def test_linear_by_hand() -> None:
    cost = _cost(Linear(base_s=1.0, prefill_token_s=0.1, decode_s=0.01, context_token_s=0.001))
    work = StepWork([(10, 5), (20, 0)], 3, 600, 300, 4)
    assert cost.step_time_s(work) == 1.0 + 0.1 * 30 + 0.01 * 3 + 0.001 * (600 + 15 + 20)
    assert cost.warnings() == []


def test_linear_terms_of_an_engine_by_hand() -> None:
    cost = _cost(Linear(base_s=1.0, prefill_s=0.5, pair_s=0.25, mixed_s=8.0))
    # 2 chunks: 3 tokens over 4 cached ones see 5 + 6 + 7 keys, 2 over none see 1 + 2.
    prefills = StepWork([(3, 4), (2, 0)], 0, 0, 0, 2)
    assert cost.step_time_s(prefills) == 1.0 + 0.5 * 2 + 0.25 * (18 + 3)
    mixed = StepWork([(3, 4), (2, 0)], 1, 9, 9, 3)
    assert cost.step_time_s(mixed) == cost.step_time_s(prefills) + 8.0
    assert cost.step_time_s(StepWork([], 1, 9, 9, 1)) == 1.0


def test_roofline_of_one_decode_reads_the_weights_once() -> None:
    cost = _cost(Roofline(flops_ratio=1.0, bandwidth_ratio=1.0, host_overhead_s=0.0))
    model = find_model("llama-3.1-8b")
    # Every matrix but the embedding table (looked up, one row), and the K and V of 1,000 tokens.
    weights = 2 * (model.total_parameters - model.vocab * model.hidden)
    assert cost.step_time_s(_decode(1, 1000)) == pytest.approx(
        (weights + 1000 * 131072) / 4.8e12, rel=1e-12
    )


def test_roofline_of_a_long_prefill_is_arithmetic() -> None:
    cost = _cost(Roofline(flops_ratio=0.5, bandwidth_ratio=1.0, host_overhead_s=0.0))
    model = find_model("llama-3.1-8b")
    layers = model.total_parameters - 2 * model.vocab * model.hidden
    # 2 FLOPs a weight and token, 4 x heads x head_dim a query-key pair and layer.
    flops = 2 * layers * 2048 + 4 * 32 * 128 * 32 * (2048 * 2049 / 2)
    head_s = model.vocab * model.hidden * 2 / 4.8e12
    work = StepWork([(2048, 0)], 0, 0, 0, 1)
    assert cost.step_time_s(work) == pytest.approx(flops / (0.5 * 989e12) + head_s, rel=1e-12)


def test_roofline_window_caps_what_is_attended_to() -> None:
    choice = Roofline(host_overhead_s=0.0)
    windowed, full = _cost(choice, "mistral-7b-v0.1"), _cost(choice, "mistral-7b")
    assert windowed.step_time_s(_decode(8, 4096)) == pytest.approx(
        full.step_time_s(_decode(8, 4096)), rel=1e-3
    )
    assert windowed.step_time_s(_decode(8, 8000)) == windowed.step_time_s(_decode(8, 4096))
    # Chunks before, across and after the window's edge together make the whole prompt's pairs.
    times = [windowed.step_time_s(StepWork([(512, k * 512)], 0, 0, 0, 0)) for k in range(16)]
    assert times[7] <= times[8] == pytest.approx(times[15])


def test_roofline_reads_more_experts_with_more_tokens() -> None:
    options = {"tensor_parallel": 8, "weight_dtype": "fp8"}
    cost = _cost(Roofline(host_overhead_s=0.0), "deepseek-v3", **options)
    times = [cost.step_time_s(_decode(batch, 1)) for batch in (1, 8, 64)]
    assert times[0] < times[1] < times[2]
    # 64 tokens reach 1 - (248/256)^64 = 87 % of the experts: near the whole model's bytes.
    assert times[2] == pytest.approx(671e9 / 8 / (0.8 * 4.8e12) * 0.88, rel=0.05)


@pytest.mark.parametrize("seconds", [-1.0, 1e300])
@pytest.mark.parametrize(
    ("choice", "part"),
    [(Roofline, "host_overhead_s"), (MeasuredTable, "host_overhead_s"), (Linear, "base_s")],
)
def test_a_part_of_a_step_neither_turns_time_back_nor_overflows_it(
    choice: type, part: str, seconds: float
) -> None:
    with pytest.raises(ConfigError, match=f"cost.{part}: got .*, expected 0 or more, at most 3600"):
        choice(**{part: seconds})
