"""Law 6: a run that leaps leaves the bytes of one that steps, whatever the configuration."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from simkv.config.run import Measure, RunConfig
from simkv.cost.choice import MeasuredTable, Roofline
from simkv.kv.layout import ContiguousMax
from simkv.obs.recorder import Tables
from simkv.rng import stream
from simkv.route.policy import LeastOutstanding, RoundRobin
from simkv.sim.simulate import simulate
from simkv.workload.trace import Trace, make_trace
from tests.sim.runs import run_config


def random_trace(seed: int, rows: int, *, gap_s: float, closed: bool, patience: bool) -> Trace:
    """Draw requests that share prefixes, name each other's outputs, and follow each other."""
    draws = stream(seed, "trace")
    named = draws.random() < 0.5
    after, segments, prompts, outputs = [], [], [], []
    for row in range(rows):
        output = int(draws.integers(0, 90))
        before = int(draws.integers(-1, row)) if row and draws.random() < 0.5 else -1
        if before >= 0:
            content = [*segments[before], (10 * row + 10, int(draws.integers(1, 60)))]
        else:
            content = [(int(draws.integers(3)), 50), (10 * row + 10, int(draws.integers(1, 150)))]
        own = 0 if draws.random() < 0.7 else int(draws.integers(1, 30))
        prompts.append(sum(tokens for _, tokens in content) + own)
        if named and not own and output:
            content.append((10 * row + 15, output))
        segments.append(content)
        outputs.append(output)
        after.append(before if closed and draws.random() < 0.7 else -1)
    # Times on a grid meet the ends of steps, and each other.
    arrival_s = np.cumsum(draws.exponential(gap_s, rows))
    if draws.random() < 0.5:
        arrival_s = np.round(arrival_s, 2)
    arrival_s[np.array(after) >= 0] = np.nan
    think_s = np.where(draws.random(rows) < 0.3, 0.0, draws.exponential(0.3, rows))
    trace = make_trace(
        arrival_s=arrival_s,
        prompt_tokens=prompts,
        output_tokens=outputs,
        segments=segments,
        after=after,
        think_s=think_s,
        priority=draws.integers(0, 3, rows),
        granularity_tokens=1,
    )
    patience_s = np.where(draws.random(rows) < 0.3, draws.exponential(0.5, rows), math.inf)
    return replace(trace, patience_s=patience_s) if patience else trace


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    block_tokens = draw(st.sampled_from((1, 3, 7, 16, 48, 256)))
    slots = draw(st.sampled_from((420, 700, 1500, 20_000)))
    config = run_config(
        block_tokens=block_tokens,
        num_blocks=max(2, slots // block_tokens + 1),
        sharing=draw(st.booleans()),
        base_s=draw(st.sampled_from((0.01, 0.0037))),
        prefill_token_s=draw(st.sampled_from((0.0, 1.1e-5))),
        context_token_s=draw(st.sampled_from((0.0, 1.3e-7))),
        num_replicas=draw(st.integers(1, 3)),
        routing=draw(st.sampled_from((RoundRobin(), LeastOutstanding()))),
        measure=Measure(
            warmup_s=draw(st.sampled_from((0.0, 0.3))), drain=draw(st.booleans()), steps=True
        ),
        max_num_batched_tokens=draw(st.sampled_from((2048, 256, 40))),
        max_num_seqs=draw(st.sampled_from((64, 64, 5, 1))),
        max_model_len=1000,
        policy=draw(st.sampled_from(("fcfs", "priority"))),
        long_prefill_token_threshold=draw(st.sampled_from((0, 0, 30))),
        reserve_full_prompt=draw(st.sampled_from((True, True, False))),
        watermark_ratio=draw(st.sampled_from((0.0, 0.0, 0.05))),
    )
    if draw(st.integers(0, 5)) == 0:
        config = replace(config, kv=ContiguousMax(num_slots=max(slots, 1000)))
    cost = draw(st.sampled_from((None, None, None, Roofline(), MeasuredTable())))
    return config if cost is None else replace(config, cost=cost)


def bytes_of(table: pa.Table) -> bytes:
    return b"".join(bytes(batch.serialize()) for batch in table.combine_chunks().to_batches())


def compare(config: RunConfig, trace: Trace) -> tuple[Tables, Tables]:
    leaps, steps = (simulate(config, trace, leaps=on) for on in (True, False))
    assert bytes_of(leaps.requests) == bytes_of(steps.requests)
    assert leaps.memory.num_rows == steps.memory.num_rows
    for name in steps.memory.column_names:
        one, two = leaps.memory[name].to_numpy(), steps.memory[name].to_numpy()
        assert one == pytest.approx(two, rel=1e-9, abs=1e-9)
    assert leaps.warnings == steps.warnings
    assert leaps.summary["num_steps"] == steps.summary["num_steps"]
    assert leaps.summary["busy_ratio"] == pytest.approx(steps.summary["busy_ratio"], rel=1e-9)
    return leaps, steps


def compare_steps(leaps: Tables, steps: Tables) -> None:
    """Compare tables of steps: a replica's are in order, several replicas' need not be."""
    assert leaps.steps is not None
    assert steps.steps is not None
    order = [("replica", "ascending"), ("start_s", "ascending")]
    ours, theirs = leaps.steps.sort_by(order), steps.steps.sort_by(order)
    for name in ours.column_names:
        one, two = ours[name].to_numpy(), theirs[name].to_numpy()
        if name == "step_s":
            assert one == pytest.approx(two, rel=1e-9, abs=1e-9)
        else:
            assert (one == two).all(), name


runs = given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from((2, 15, 40, 80)),
    gap_s=st.sampled_from((0.0, 0.005, 0.05, 0.5)),
    closed=st.booleans(),
    patience=st.sampled_from((False, False, True)),
    config=configs(),
)


def check(
    seed: int, rows: int, gap_s: float, closed: bool, patience: bool, config: RunConfig
) -> None:
    trace = random_trace(seed, rows, gap_s=gap_s, closed=closed, patience=patience)
    leaps, steps = compare(config, trace)
    compare_steps(leaps, steps)
    for name in ("num_preemptions", "hit_tokens", "num_aborted"):
        if steps.summary[name]:
            event(name)


@runs
def test_leaps_change_no_byte(
    seed: int, rows: int, gap_s: float, closed: bool, patience: bool, config: RunConfig
) -> None:
    check(seed, rows, gap_s, closed, patience, config)


@pytest.mark.slow
@settings(settings.get_profile("long"), max_examples=10_000)
@runs
def test_leaps_change_no_byte_in_many_runs(
    seed: int, rows: int, gap_s: float, closed: bool, patience: bool, config: RunConfig
) -> None:
    check(seed, rows, gap_s, closed, patience, config)
