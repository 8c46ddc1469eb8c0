"""Runs as a user sees them: what happens to every request, and why."""

import math

import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.config.run import Measure
from simkv.errors import TraceError
from simkv.kv.layout import ContiguousMax, HashChain, NoSharing, Paged
from simkv.kv.usage import COUNTS
from simkv.obs.files import flatten
from simkv.rng import stream
from simkv.route.policy import LeastOutstanding
from simkv.sim.simulate import simulate
from simkv.workload.trace import Trace, make_trace
from tests.sim.runs import run_config


def random_trace(seed: int, rows: int = 300) -> Trace:
    draws = stream(seed, "trace")
    shared = [[(int(draws.integers(4)), 64)] for _ in range(rows)]
    return make_trace(
        arrival_s=np.cumsum(draws.exponential(0.02, rows)),
        prompt_tokens=draws.integers(64, 400, rows),
        output_tokens=draws.integers(0, 80, rows),
        segments=shared,
        granularity_tokens=1,
    )


@given(
    seed=st.integers(0, 1000),
    block_tokens=st.sampled_from([1, 7, 16, 48]),
    sharing=st.booleans(),
    num_replicas=st.integers(1, 3),
    slots=st.integers(500, 4000),
    window=st.sampled_from([(0, "all"), (0, "all"), (90, "all"), (90, "half")]),
    ahead=st.booleans(),
)
def test_laws_of_a_run(seed, block_tokens, sharing, num_replicas, slots, window, ahead):
    trace = random_trace(seed, 60)
    config = run_config(
        kv=Paged(
            block_tokens=block_tokens,
            num_blocks=slots // block_tokens + 1,
            sharing=HashChain() if sharing else NoSharing(),
            sliding_window_tokens=window[0],
            window_layers=window[1],
        ),
        num_replicas=num_replicas,
        async_scheduling=ahead,
        prefill_token_s=1e-5,
        max_num_batched_tokens=256,
        max_num_seqs=16,
        reserve_full_prompt=False,
    )
    tables = simulate(config, trace, check=True)
    requests, summary = tables.requests.to_pandas(), tables.summary
    # Law 3: nothing is lost.
    assert summary["num_finished"] + summary["num_rejected"] == trace.num_requests
    # Law 4: times in order.
    done = requests[requests.status == "finished"]
    assert (done.arrival_s <= done.first_scheduled_s).all()
    with_token = done[done.output_tokens > 0]
    assert (with_token.first_scheduled_s < with_token.first_token_s).all()
    assert (with_token.first_token_s <= with_token.finish_s).all()
    assert with_token.first_token_s.notna().all()
    assert done[done.output_tokens == 0].first_token_s.isna().all()
    assert (done.hit_tokens < done.prompt_tokens).all()
    # Law 1, in the series too: the accounts add up to the pool at every moment.
    memory = tables.memory.to_pandas()
    pool = slots // block_tokens * block_tokens
    accounts = [name for name in COUNTS if name not in ("rounding", "logical_tokens")][:-1]
    assert memory[accounts].sum(axis=1).to_numpy() == pytest.approx(pool, rel=1e-9)
    assert summary["memory"]["pool_slots"] == pool * num_replicas


def test_a_step_planned_ahead_makes_an_arrival_wait_one_step_more():
    # Steps of 10 ms. The second request comes at 5 ms. Planned when the first step ends, it is
    # behind the step that the device begins then: tokens at 30 ms instead of 20 ms.
    trace = make_trace(arrival_s=[0.0, 0.005], prompt_tokens=[8, 8], output_tokens=[4, 1])
    for ahead, first_token_s in ((False, [0.01, 0.02]), (True, [0.01, 0.03])):
        requests = simulate(run_config(async_scheduling=ahead), trace).requests.to_pandas()
        assert requests.first_token_s.tolist() == pytest.approx(first_token_s)
        assert requests.finish_s[0] == pytest.approx(0.04)


def test_an_empty_plan_ahead_takes_no_time():
    # The first request's only token is on its way, so nothing is planned behind its step.
    trace = make_trace(arrival_s=[0.0, 0.005], prompt_tokens=[8, 8], output_tokens=[1, 1])
    requests = simulate(run_config(async_scheduling=True), trace).requests.to_pandas()
    assert requests.finish_s.tolist() == pytest.approx([0.01, 0.02])


def test_a_window_keeps_what_it_sees_and_half_of_the_layers_all():
    # Alone, 320 tokens and 1 more: the window of 32 needs 2 blocks and the one being filled.
    trace = make_trace(arrival_s=[0.0], prompt_tokens=[320], output_tokens=[2])
    for window, layers, num_held in ((0, "all", 21), (32, "all", 3), (32, "half", 24)):
        layout = Paged(num_blocks=101, sliding_window_tokens=window, window_layers=layers)
        config = run_config(kv=layout, measure=Measure(steps=True))
        steps = simulate(config, trace).steps.to_pandas()
        assert 100 - steps.num_free_blocks[1] == num_held


def test_requests_that_can_never_run_are_rejected_with_their_reason():
    trace = make_trace(
        arrival_s=[0.0, 0.0, 0.0, 0.0],
        prompt_tokens=[100, 900, 300, 160],
        output_tokens=[10, 200, 21, 1],
    )
    tables = simulate(run_config(num_blocks=11, max_model_len=1000), trace)
    # 160 usable slots: the third stores 320 tokens, the fourth exactly 160.
    assert tables.requests["status"].to_pylist() == ["finished", "rejected", "rejected", "finished"]
    assert tables.requests["reason"].to_pylist() == ["", "exceeds-model-limit", "exceeds-pool", ""]
    assert tables.summary["rejected"] == {"exceeds-model-limit": 1, "exceeds-pool": 1}
    assert len([text for text in tables.warnings if "rejected" in text]) == 2


def test_a_request_without_output_is_a_prefill():
    trace = make_trace(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[0])
    tables = simulate(run_config(), trace)
    row = tables.requests.to_pylist()[0]
    assert (row["status"], row["first_token_s"], row["finish_s"]) == ("finished", None, 0.01)
    assert tables.summary["ttft_s"]["mean"] is None


def test_a_follow_up_comes_after_the_end_and_the_think_time():
    trace = make_trace(
        arrival_s=[1.0, math.nan, math.nan],
        prompt_tokens=[10, 20, 30],
        output_tokens=[3, 2, 1],
        after=[-1, 0, 1],
        think_s=[math.nan, 0.5, math.nan],
    )
    requests = simulate(run_config(), trace).requests.to_pylist()
    assert [row["arrival_s"] for row in requests] == pytest.approx([1.0, 1.53, 1.55])
    assert requests[2]["finish_s"] == pytest.approx(1.56)


def test_a_rejected_turn_releases_the_next():
    trace = make_trace(
        arrival_s=[1.0, math.nan],
        prompt_tokens=[9999, 20],
        output_tokens=[3, 2],
        after=[-1, 0],
        think_s=[math.nan, 0.25],
    )
    requests = simulate(run_config(max_model_len=1000), trace).requests.to_pylist()
    assert [row["status"] for row in requests] == ["rejected", "finished"]
    assert requests[1]["arrival_s"] == 1.25


def test_a_trace_without_arrivals_is_refused():
    trace = make_trace(prompt_tokens=[10, 10], output_tokens=[1, 1], name="lengths.csv")
    with pytest.raises(TraceError, match=r"lengths.csv: 2 of 2 requests have no arrival time"):
        simulate(run_config(), trace)


def test_a_step_sees_what_arrives_at_its_start():
    # Arrivals on a grid that step ends fall on: each step must already see the one that is due.
    trace = make_trace(arrival_s=[0.0, 0.25, 0.5], prompt_tokens=[4] * 3, output_tokens=[9, 1, 1])
    requests = simulate(run_config(base_s=0.25), trace).requests.to_pylist()
    assert [row["first_scheduled_s"] for row in requests] == [0.0, 0.25, 0.5]


def test_without_draining_the_rest_is_unfinished():
    trace = make_trace(arrival_s=[0.0, 1.0], prompt_tokens=[10, 10], output_tokens=[50, 500])
    tables = simulate(run_config(measure=Measure(drain=False)), trace)
    assert tables.requests["status"].to_pylist() == ["finished", "unfinished"]
    assert tables.summary["num_unfinished"] == 1


def test_the_warm_up_counts_in_nothing():
    trace = make_trace(arrival_s=[0.0, 10.0], prompt_tokens=[500, 10], output_tokens=[100, 1])
    whole = simulate(run_config(), trace).summary
    late = simulate(run_config(measure=Measure(warmup_s=9.0)), trace).summary
    assert (whole["num_requests"], late["num_requests"]) == (2, 1)
    assert late["ttft_s"]["max"] == pytest.approx(0.01)
    # One step of 10 ms with 10 tokens in a block of 16, in 1.01 s that count.
    pool = 9999 * 16
    assert late["memory"]["tokens_ratio"] == pytest.approx(10 * 0.01 / 1.01 / pool, rel=1e-6)


def test_a_growing_queue_is_called_an_overload():
    trace = make_trace(
        arrival_s=np.arange(400) * 0.01, prompt_tokens=[8] * 400, output_tokens=[4] * 400
    )
    slow = simulate(run_config(max_num_seqs=1), trace)
    fast = simulate(run_config(max_num_seqs=64), trace)
    assert slow.summary["overloaded"]
    assert any("overloaded" in text for text in slow.warnings)
    assert not fast.summary["overloaded"]


def test_an_overload_is_seen_behind_a_long_warm_up():
    # 13 requests arrive a second and 10 are served, one at a time, for 115 s.
    trace = make_trace(
        arrival_s=[i / 13 for i in range(1500)],
        prompt_tokens=[100] * 1500,
        output_tokens=[1] * 1500,
    )
    for warmup_s in (0.0, 60.0, 114.0):
        config = run_config(base_s=0.1, max_num_seqs=1, measure=Measure(warmup_s=warmup_s))
        assert simulate(config, trace).summary["overloaded"]


def test_round_robin_and_least_outstanding():
    # Two long requests would meet on one replica in turn; the other router keeps them apart.
    trace = make_trace(
        arrival_s=[0.0, 0.001, 0.002, 0.003],
        prompt_tokens=[900, 10, 900, 10],
        output_tokens=[90, 1, 90, 1],
    )
    turn = simulate(run_config(num_replicas=2), trace).requests["replica"].to_pylist()
    least = simulate(run_config(num_replicas=2, routing=LeastOutstanding()), trace)
    assert turn == [0, 1, 0, 1]
    assert least.requests["replica"].to_pylist() == [0, 1, 1, 0]


def test_a_warm_up_that_nothing_outlasts_is_warned_about():
    tables = simulate(run_config(measure=Measure(warmup_s=1e6)), random_trace(1, 20))
    assert tables.summary["num_requests"] == 0
    assert any("no request arrives after the warm-up of 1e+06 s" in w for w in tables.warnings)


def test_arrivals_that_the_clock_cannot_tell_from_their_steps_are_refused():
    trace = make_trace(arrival_s=[0.0, 1e13], prompt_tokens=[1, 1], output_tokens=[1, 1])
    with pytest.raises(
        TraceError, match="the last request is due after 1e\\+13 s, expected at most"
    ):
        simulate(run_config(), trace)
    trace = make_trace(
        arrival_s=[0.0, np.nan],
        prompt_tokens=[1, 1],
        output_tokens=[1, 1],
        after=[-1, 0],
        think_s=[np.nan, 1e15],
    )
    with pytest.raises(TraceError, match="due after 1e\\+15 s"):
        simulate(run_config(), trace)


def test_contiguous_reservations_admit_fewer():
    trace = make_trace(arrival_s=[0.0] * 8, prompt_tokens=[100] * 8, output_tokens=[29] * 8)
    tables = simulate(run_config(kv=ContiguousMax(num_slots=1100), max_model_len=512), trace)
    memory = tables.summary["memory"]
    # Two reservations of 512 in 1,100 slots; 76 are in no hole that takes another.
    assert tables.summary["mean_running"] == pytest.approx(2)
    assert memory["unreachable_ratio"] == pytest.approx(76 / 1100)
    assert memory["over_reserved_ratio"] == pytest.approx(2 * (512 - 128) / 1100)
    # Tokens stored: 100 in the first step up to 128 in the last, 114 on average.
    assert memory["tokens_ratio"] == pytest.approx(2 * 114 / 1100)
    assert memory["reserved_ratio"] == pytest.approx(2 * 14 / 1100)


def test_sharing_is_seen_in_hits_and_in_memory():
    segments = [[(0, 1024)] for _ in range(4)]
    trace = make_trace(
        arrival_s=[0.0, 1.0, 1.0, 1.0],
        prompt_tokens=[1088] * 4,
        output_tokens=[33, 1, 1, 1],
        segments=segments,
        granularity_tokens=1,
    )
    tables = simulate(run_config(sharing=True, base_s=0.1), trace)
    assert tables.requests["hit_tokens"].to_pylist() == [0, 1024, 1024, 1024]
    assert tables.summary["hit_ratio"] == pytest.approx(3 * 1024 / (4 * 1088))
    assert pc.max(tables.memory["blocks_saved"]).as_py() == pytest.approx(3 * 64)


def test_steps_are_recorded_on_demand():
    trace = random_trace(1, 20)
    tables = simulate(run_config(measure=Measure(steps=True)), trace)
    steps = tables.steps.to_pandas()
    assert len(steps) == tables.summary["num_steps"]
    assert steps.prefill_tokens.sum() + steps.num_decodes.sum() == (
        trace.prompt_tokens.sum() + np.maximum(trace.output_tokens - 1, 0).sum()
    )
    assert simulate(run_config(), trace).steps is None


def test_same_run_same_numbers():
    config = run_config(num_blocks=200, sharing=True, max_num_seqs=16, num_replicas=2)
    one, two = (simulate(config, random_trace(3)) for _ in range(2))
    assert one.requests.equals(two.requests)
    assert one.memory.equals(two.memory)
    assert flatten(one.summary) == flatten(two.summary)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_client_that_gives_up_frees_memory_before_the_next_step(ahead):
    # Steps of 10 ms, one request at a time. The first gives up at 35 ms, while it decodes: its
    # step goes on to 40 ms, then the second begins. The third gives up in the queue, and the
    # fourth, which follows it, never comes.
    trace = make_trace(
        arrival_s=[0.0, 0.0, 0.0, math.nan],
        prompt_tokens=[8, 8, 8, 8],
        output_tokens=[50, 3, 3, 3],
        after=[-1, -1, -1, 2],
        think_s=[math.nan, math.nan, math.nan, 0.0],
        patience_s=[0.035, math.nan, 0.02, math.nan],
    )
    config = run_config(max_num_seqs=1, async_scheduling=ahead)
    tables = simulate(config, trace)
    requests, summary = tables.requests.to_pandas(), tables.summary
    assert requests.status.tolist() == ["aborted", "finished", "aborted", "aborted"]
    # Planned ahead, one more step of the first request is under way when it is dropped.
    assert requests.finish_s[1] == pytest.approx(0.08 if ahead else 0.07)
    assert requests.first_token_s[0] == pytest.approx(0.01)
    assert np.isnan(requests.first_scheduled_s[2])
    assert (summary["num_aborted"], summary["num_finished"], summary["num_unfinished"]) == (3, 1, 0)


@pytest.mark.parametrize("ahead", [False, True])
def test_equal_arrivals_of_equal_priority_do_not_preempt_each_other_for_ever(ahead):
    # Two requests of 4 to 8 blocks, computed in chunks of two, in a pool of nine usable blocks.
    trace = make_trace(arrival_s=[0.0, 0.0], prompt_tokens=[64, 64], output_tokens=[60, 60])
    config = run_config(
        num_blocks=10,
        policy="priority",
        reserve_full_prompt=False,
        long_prefill_token_threshold=32,
        async_scheduling=ahead,
    )
    tables = simulate(config, trace)
    assert tables.summary["num_finished"] == 2
    assert tables.requests["arrival_s"].to_pylist() == [0.0, 0.0]
    assert tables.summary["num_steps"] < 1000
