"""The clock against results that are known in closed form."""

import numpy as np
import pytest

from simkv.rng import stream
from simkv.sim.simulate import simulate
from simkv.workload.trace import make_trace
from tests.sim.runs import run_config


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_waiting_time_of_a_deterministic_server(load):
    # M/D/1 (Pollaczek-Khinchine): one request at a time, each exactly one step of 10 ms.
    # Mean wait = load * service / (2 (1 - load)).
    service_s, rows = 0.01, 60_000
    gaps_s = stream(11, "arrivals", str(load)).exponential(service_s / load, rows)
    trace = make_trace(
        arrival_s=np.cumsum(gaps_s), prompt_tokens=[8] * rows, output_tokens=[1] * rows
    )
    summary = simulate(run_config(base_s=service_s, max_num_seqs=1), trace).summary
    expected_s = load * service_s / (2 * (1 - load))
    # Relative standard error of the mean wait over 60,000 arrivals: 1 % at 0.3, 2 % at 0.8.
    assert summary["queue_s"]["mean"] == pytest.approx(expected_s, rel=0.05)
    assert summary["busy_ratio"] == pytest.approx(load, rel=0.02)


def test_littles_law_holds_exactly_over_a_run_that_starts_and_ends_empty():
    # The integral of the number of requests in the system is the sum of their times in it.
    draws = stream(5, "little")
    rows = 2_000
    trace = make_trace(
        arrival_s=np.cumsum(draws.exponential(0.05, rows)),
        prompt_tokens=draws.integers(1, 300, rows),
        output_tokens=draws.integers(1, 60, rows),
    )
    config = run_config(prefill_token_s=1e-5, decode_s=2e-4, max_num_seqs=8, num_replicas=2)
    summary = simulate(config, trace).summary
    in_system = (summary["mean_running"] + summary["mean_waiting"]) * summary["makespan_s"]
    assert in_system == pytest.approx(summary["e2e_s"]["mean"] * rows, rel=1e-9)


def test_latency_of_a_single_request_by_hand():
    # 1,000 prompt tokens under a budget of 400: chunks of 400, 400 and 200, then four decodes at
    # contexts 1,001 to 1,004. Step = 10 ms + 0.1 ms a prompt token + 1 ms a decode + 1 us a token
    # attended to (400, 800, 1,000; then the contexts).
    trace = make_trace(arrival_s=[2.0], prompt_tokens=[1000], output_tokens=[5])
    config = run_config(
        prefill_token_s=1e-4, decode_s=1e-3, context_token_s=1e-6, max_num_batched_tokens=400
    )
    tables = simulate(config, trace)
    ttft_s = 3 * 0.010 + 1000 * 1e-4 + (400 + 800 + 1000) * 1e-6
    decode_s = 4 * (0.010 + 0.001) + (1001 + 1002 + 1003 + 1004) * 1e-6
    summary = tables.summary
    assert ttft_s == pytest.approx(0.1322)
    assert summary["ttft_s"]["mean"] == pytest.approx(ttft_s, abs=1e-12)
    assert summary["tpot_s"]["mean"] == pytest.approx(decode_s / 4, abs=1e-12)
    assert summary["e2e_s"]["mean"] == pytest.approx(ttft_s + decode_s, abs=1e-12)
    assert summary["queue_s"]["mean"] == 0
    assert summary["num_steps"] == 7
    assert summary["makespan_s"] == pytest.approx(2.0 + ttft_s + decode_s)


def test_saturation_throughput_by_hand():
    # 800 requests at once, eight at a time: 100 waves of one prefill step (8 x 16 tokens) and 63
    # decode steps of eight.
    trace = make_trace(arrival_s=[0.0] * 800, prompt_tokens=[16] * 800, output_tokens=[64] * 800)
    config = run_config(prefill_token_s=1e-4, decode_s=1e-3, max_num_seqs=8)
    summary = simulate(config, trace).summary
    wave_s = (0.010 + 128 * 1e-4) + 63 * (0.010 + 8 * 1e-3)
    assert summary["makespan_s"] == pytest.approx(100 * wave_s)
    assert summary["requests_per_s"] == pytest.approx(8 / wave_s)
    assert summary["output_tokens_per_s"] == pytest.approx(8 * 64 / wave_s)
    assert summary["mean_running"] == pytest.approx(8)
    assert summary["overloaded"] is False  # all at once: there is no span in which a queue grows


def test_memory_bounds_the_batch_by_hand():
    # Blocks of 16; 10 usable. A request of 31 + 2 tokens stores 32: two blocks; five fit.
    trace = make_trace(arrival_s=[0.0] * 10, prompt_tokens=[31] * 10, output_tokens=[2] * 10)
    tables = simulate(run_config(num_blocks=11), trace)
    assert tables.summary["num_steps"] == 4  # two waves of a prefill and a decode
    assert tables.summary["mean_running"] == pytest.approx(5)
    # Step 1 of a wave stores 31 tokens of 32 slots, step 2 fills the block.
    assert tables.summary["memory"]["tail_ratio"] == pytest.approx(5 * 0.5 / 160)
    assert tables.summary["memory"]["tokens_ratio"] == pytest.approx(5 * 31.5 / 160)
