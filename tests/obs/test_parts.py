"""Where requests' time goes, on runs of 10 ms a step that are worked out by hand."""

import pytest

from simkv.config.run import Measure
from simkv.obs.parts import PARTS
from simkv.sim.simulate import simulate
from simkv.workload.trace import make_trace
from tests.sim.runs import run_config


def parts_of(arrival_s, prompt_tokens, output_tokens, **config):
    """Return the parts of each request in ms, those that are zero left out."""
    trace = make_trace(
        arrival_s=arrival_s, prompt_tokens=prompt_tokens, output_tokens=output_tokens
    )
    rows = simulate(run_config(**config), trace, check=True).requests.to_pylist()
    return [{name: pytest.approx(1000 * row[name]) for name in PARTS if row[name]} for row in rows]


def test_a_request_waits_for_the_step_under_way():
    assert parts_of([0.0, 0.004], [10, 10], [3, 2]) == [
        {"prefill_s": 10, "decode_s": 20},
        {"waited_step_s": 6, "prefill_s": 10, "decode_s": 10},
    ]


def test_for_a_batch_slot():
    assert parts_of([0.0, 0.004], [10, 10], [3, 1], max_num_seqs=1)[1] == {
        "waited_step_s": 6,
        "waited_batch_slot_s": 20,
        "prefill_s": 10,
    }


def test_for_the_token_budget():
    # Chunks of 100, 100 and 50; the second request has room beside the last.
    first, second = parts_of([0.0, 0.0], [250, 10], [2, 1], max_num_batched_tokens=100)
    assert first == {"prefill_s": 30, "decode_s": 10}
    assert second == {"waited_token_budget_s": 20, "prefill_s": 10}


def test_for_a_budget_that_takes_its_whole_prompt():
    second = parts_of(
        [0.0, 0.0],
        [60, 60],
        [1, 1],
        max_num_batched_tokens=100,
        max_model_len=100,
        chunked_prefill=False,
    )[1]
    assert second == {"waited_token_budget_s": 10, "prefill_s": 10}


def test_for_memory():
    # 10 blocks of 16: the first request takes 8 until its fifth token.
    second = parts_of([0.0, 0.0], [120, 40], [5, 1], num_blocks=11)[1]
    assert second == {"waited_memory_s": 50, "prefill_s": 10}


def test_behind_a_preemption_and_through_one():
    # 10 blocks: 4 and 6 for the first two. At 10 ms the first needs a fifth, so the second loses
    # its own; nobody is admitted in that step. At 50 ms the first has its five tokens and is gone:
    # the second computes its 91 tokens again, the third has its block.
    first, second, third = parts_of([0.0] * 3, [64, 90, 8], [5, 3, 1], num_blocks=11)
    assert first == {"prefill_s": 10, "decode_s": 40}
    assert second == {"prefill_s": 10, "preempted_s": 40, "recompute_s": 10, "decode_s": 10}
    assert third == {"waited_memory_s": 40, "waited_preemption_s": 10, "prefill_s": 10}


def test_a_request_that_is_preempted_again_and_again_in_its_prefill():
    # 6 blocks of 16, 40 tokens a step. The first holds 3 blocks from 10 ms on, the second 39 tokens
    # in the others; for the rest it needs a seventh, so it gives all back, and is admitted again
    # in the step after. At 170 ms the first takes the block for its last token.
    first, second = parts_of(
        [0.0, 0.001],
        [32, 60],
        [18, 2],
        num_blocks=7,
        max_num_batched_tokens=40,
        reserve_full_prompt=False,
    )
    assert first == {"prefill_s": 10, "decode_s": 170}
    assert second == {
        "waited_step_s": 9,
        "prefill_s": 10,  # at 10 ms
        "preempted_s": 7 * 10 + 20,  # at 20, 40, ... 140 ms, and from 160 to 180 ms
        "recompute_s": 7 * 10 + 20,  # at 30, 50, ... 150 ms, and from 180 to 200 ms
        "decode_s": 10,
    }


def test_without_output_all_is_prefill():
    assert parts_of([0.0], [10], [0]) == [{"prefill_s": 10}]


def test_what_has_not_ended_is_not_known():
    trace = make_trace(
        arrival_s=[0.0, 1.0, 1.0], prompt_tokens=[10, 10, 10], output_tokens=[200, 500, 9]
    )
    config = run_config(max_num_seqs=1, measure=Measure(drain=False))
    running, *queued = simulate(config, trace, check=True).requests.to_pylist()
    assert running["waited_memory_s"] == 0
    assert running["prefill_s"] == pytest.approx(0.01)
    assert running["decode_s"] is None
    assert all(row[name] is None for row in queued for name in PARTS)
