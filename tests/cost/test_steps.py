"""Steps on end cost, to the last bit, what each of them costs alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.build import build_cost
from simkv.cost.catalog import find_device, find_model
from simkv.cost.choice import Cost, Linear, MeasuredTable, Roofline
from simkv.cost.model import CostModel
from simkv.cost.outside import Outside
from simkv.cost.table import TableCost
from simkv.sched.work import StepWork

LINEAR = Linear(base_s=0.01, prefill_token_s=1e-5, decode_s=3e-4, context_token_s=7e-8)
CASES: dict[str, tuple[Cost, str, str]] = {
    "linear": (LINEAR, "llama-3.1-8b", "h200"),
    "roofline": (Roofline(), "llama-3.1-8b", "h100"),
    "roofline, window": (Roofline(), "mistral-7b-v0.1", "h100"),
    "roofline, experts": (Roofline(), "deepseek-v3", "h100"),
    "table": (MeasuredTable(), "llama-3.1-8b", "h200"),
    "table, fused": (MeasuredTable(), "llama-3.1-8b", "rtx-4090"),
    "table, overhead": (MeasuredTable(host_overhead_s=0.001), "qwen2.5-7b", "a100-80gb"),
}


def cost_of(name: str) -> CostModel:
    choice, model, device = CASES[name]
    return build_cost(
        choice,
        find_model(model),
        find_device(device),
        tensor_parallel=1,
        weight_dtype="bf16",
        kv_dtype="bf16",
        max_num_batched_tokens=256,
        max_num_seqs=64,
        max_model_len=8192,
    )


COSTS = {name: cost_of(name) for name in CASES}


@st.composite
def decodes(draw: st.DrawFn) -> StepWork:
    """Return decodes of a batch, also beyond the limits that tables are made for."""
    batch = draw(st.integers(1, 70))
    longest = draw(st.integers(1, 10_000))
    total = draw(st.integers(longest + batch - 1, longest * batch))
    return StepWork([], batch, total, longest, batch)


@pytest.mark.parametrize("name", CASES)
@given(work=decodes(), num_steps=st.integers(1, 1500))
def test_steps_on_end_cost_what_each_costs_alone(name: str, work: StepWork, num_steps: int) -> None:
    cost = COSTS[name]
    times_s = cost.step_times_s(work, num_steps)
    alone_s = [cost.step_time_s(work.later(step)) for step in range(num_steps)]
    assert times_s == alone_s
    assert all(type(time_s) is float for time_s in times_s)


@pytest.mark.parametrize("name", ["table", "table, fused"])
@given(batch=st.integers(1, 64), context=st.integers(1, 10_000))
def test_a_row_of_decode_steps_holds_what_a_lookup_gives(
    name: str, batch: int, context: int
) -> None:
    cost = COSTS[name]
    assert isinstance(cost, TableCost)
    piece, share = cost._context.locate(context)
    low, high = cost._decode_s[batch][piece : piece + 2]
    assert cost._decodes_s(batch, context) == low + share * (high - low)
    times_s = cost.step_times_s(StepWork([], batch, batch * context, context, batch), 1)
    assert times_s == [cost._decode_step_s(batch, context)]


@pytest.mark.parametrize("name", ["table", "table, fused"])
@given(new=st.integers(1, 300))
def test_a_chunk_over_nothing_takes_what_a_lookup_gives(name: str, new: int) -> None:
    cost = COSTS[name]
    assert isinstance(cost, TableCost)
    assert cost._prefills_s([(new, 0)]) == cost._chunk_s(new, 0)


@given(work=decodes(), num_steps=st.integers(1, 600))
def test_steps_out_of_range_are_counted_alike(work: StepWork, num_steps: int) -> None:
    cost = COSTS["table"]
    cost._outside = Outside()  # type: ignore[attr-defined]
    for step in range(num_steps):
        cost.step_time_s(work.later(step))
    said = cost.warnings()
    cost._outside = Outside()  # type: ignore[attr-defined]
    cost.step_times_s(work, num_steps)
    assert cost.warnings() == []
    cost.note(work.later(num_steps - 1), num_steps)
    assert cost.warnings() == said
