import math

import numpy as np
import pytest

from simkv.workload.arrivals import Closed
from simkv.workload.load import read_trace
from simkv.workload.prefixes import Prefixes
from simkv.workload.resample import resample
from simkv.workload.sessions import GeometricTurns, Sessions
from simkv.workload.synthetic import Synthetic, generate
from simkv.workload.think import ConstantThink
from simkv.workload.trace import make_trace

TALKS = Synthetic(
    num_requests=900,
    prefixes=Prefixes(num_prompts=3),
    sessions=Sessions(turns=GeometricTurns(mean_turns=3.0)),
)


def by_session(trace):
    """Rows of each session in order of turns."""
    order = np.lexsort((trace.turn, trace.session))
    return {
        number: [row for row in order if trace.session[row] == number]
        for number in np.unique(trace.session)
    }


def shape(trace, rows):
    """What a session looks like but for its ids and its times."""
    return tuple(
        (
            int(trace.prompt_tokens[row]),
            int(trace.output_tokens[row]),
            tuple(tokens for _, tokens in trace.segments(row)),
        )
        for row in rows
    )


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_each_slot_keeps_its_start_and_gets_a_whole_session(loop):
    trace = generate(
        Synthetic(num_requests=300, prefixes=Prefixes(), sessions=Sessions(loop=loop)), seed=1
    )
    drawn = resample(trace, seed=7)
    old, new = by_session(trace), by_session(drawn)
    known = {shape(trace, rows): rows for rows in old.values()}
    assert len(new) == len(old)
    for slot, rows in new.items():
        assert drawn.arrival_s[rows[0]] == trace.arrival_s[old[slot][0]]
        source = known[shape(drawn, rows)]
        gaps, source_gaps = (
            np.diff(one.arrival_s[at]) for one, at in ((drawn, rows), (trace, source))
        )
        assert gaps == pytest.approx(source_gaps, nan_ok=True)
        if loop == "closed":
            assert np.array_equal(drawn.think_s[rows], trace.think_s[source], equal_nan=True)
            assert drawn.after[rows].tolist() == [-1, *rows[:-1]]
    assert (np.diff(drawn.arrival_s[~np.isnan(drawn.arrival_s)]) >= 0).all()


def test_a_copy_shares_the_system_prompt_and_nothing_else():
    trace = generate(TALKS, seed=1)
    drawn = resample(trace, seed=3)
    users = {}
    for row in range(drawn.num_requests):
        for number, _ in drawn.segments(row):
            users.setdefault(number, set()).add(int(drawn.session[row]))
    shared = {number for number, sessions in users.items() if len(sessions) > 1}
    assert shared == {0, 1, 2}  # the three system prompts
    # Sessions that were drawn once or first keep their ids, so that the trace stays itself.
    assert len(set(users) & set(trace.segment_id.tolist())) > 100


def test_what_two_sessions_share_stays_shared_between_copies():
    # Sessions 0 and 1 share id 5 (a document), session 2 has its own.
    trace = make_trace(
        prompt_tokens=[30, 30, 30],
        output_tokens=[1, 1, 1],
        arrival_s=[0.0, 1.0, 2.0],
        segments=[[(5, 10), (6, 20)], [(5, 10), (7, 20)], [(8, 30)]],
        session=[0, 1, 2],
        granularity_tokens=1,
    )
    for seed in range(30):
        drawn = resample(trace, seed=seed)
        rows = [drawn.segments(row) for row in range(3)]
        own = [segments[-1][0] for segments in rows]
        assert len(set(own)) == 3
        assert all(segments[0] == (5, 10) for segments in rows if len(segments) == 2)


def test_the_draw_is_unbiased_and_varies_as_a_bootstrap_does():
    trace = generate(TALKS, seed=1)
    totals = np.bincount(trace.session, weights=trace.prompt_tokens)
    sums = np.array([resample(trace, seed=seed).prompt_tokens.sum() for seed in range(200)])
    spread = totals.std() * math.sqrt(len(totals))
    assert sums.mean() == pytest.approx(totals.sum(), abs=4 * spread / math.sqrt(200))
    assert sums.std() == pytest.approx(spread, rel=4 / math.sqrt(400))


def test_windows_where_there_are_no_sessions():
    whole = np.concatenate([60.0 * at + np.linspace(0.0, 59.0, 10 + at) for at in range(9)])
    arrival_s = np.concatenate([whole, [540.0, 550.0, 560.0]])  # a last window of 20 s
    rows = len(arrival_s)
    window = (arrival_s // 60).astype(int)
    trace = make_trace(
        prompt_tokens=window + 1,
        output_tokens=[1] * rows,
        arrival_s=arrival_s,
        segments=[[(int(at), 1)] for at in window],  # each window has content of its own
        granularity_tokens=1,
    )
    drawn = resample(trace, seed=2)
    slots = (drawn.arrival_s // 60).astype(int)
    seen = []
    for slot in range(9):
        inside = slots == slot
        source = set(drawn.prompt_tokens[inside].tolist())
        assert len(source) == 1
        seen.append(source.pop() - 1)
        offset_s = drawn.arrival_s[inside] - 60.0 * slot
        assert offset_s == pytest.approx(np.linspace(0.0, 59.0, 10 + seen[-1]))
    assert 9 not in seen  # the partial window fills no whole slot
    assert drawn.arrival_s.max() <= 560.0
    assert (slots == 9).sum() > 0
    assert len({int(i) for i in drawn.segment_id}) == 10  # copies share nothing
    assert (np.diff(drawn.arrival_s) >= 0).all()
    assert "10 of the 9 windows with replacement," in drawn.notes[0]
    assert "few" in drawn.notes[0]


def test_single_requests_where_there_are_no_times():
    trace = generate(
        Synthetic(
            num_requests=300, arrivals=Closed(num_clients=4, think=ConstantThink(think_s=1.0))
        ),
        seed=1,
    )
    drawn = resample(trace, seed=1)
    assert drawn.num_requests == 300
    assert np.array_equal(drawn.after, trace.after)  # the clients' chains are the arrival process
    assert np.array_equal(drawn.think_s, trace.think_s, equal_nan=True)
    assert set(drawn.prompt_tokens.tolist()) < set(trace.prompt_tokens.tolist())


def test_a_closed_loop_of_sessions_stays_one_chain_a_client():
    workload = Synthetic(
        num_requests=300, arrivals=Closed(num_clients=4), sessions=Sessions(), prefixes=Prefixes()
    )
    drawn = resample(generate(workload, seed=1), seed=1)
    roots = drawn.after < 0
    assert roots.sum() == 4
    followed = drawn.after[~roots]
    assert len(set(followed.tolist())) == len(followed)
    starts = (drawn.turn == 0) & ~roots
    assert np.array_equal(drawn.session[drawn.after[starts]], drawn.session[starts] - 4)


def test_the_same_seed_is_the_same_draw_whatever_the_trace_holds():
    trace = generate(TALKS, seed=1)
    one, again, other = (resample(trace, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one.prompt_tokens, again.prompt_tokens)
    assert np.array_equal(one.segment_id, again.segment_id)
    assert not np.array_equal(one.prompt_tokens, other.prompt_tokens)


def test_the_azure_hour_keeps_its_windows(shared):
    path = shared("data", "traces", "azure-2023", "AzureLLMInferenceTrace_conv.csv")
    trace = read_trace(path)
    counts = np.bincount((trace.arrival_s // 60).astype(int))
    drawn = resample(trace, seed=1)
    slots = np.bincount((drawn.arrival_s // 60).astype(int))
    assert len(slots) == len(counts) == 59
    assert set(slots[:-1].tolist()) <= set(counts[:-1].tolist())
    assert drawn.arrival_s.max() <= trace.arrival_s.max()


def test_the_mooncake_conversations_keep_what_is_common(shared):
    trace = read_trace(shared("data", "traces", "mooncake", "conversation_trace.jsonl"))
    drawn = resample(trace, seed=1)
    first = drawn.segment_id[drawn.segment_offset[:-1]]
    assert (first == trace.segment_id[0]).all()  # the block that every request shares
    assert drawn.num_requests == pytest.approx(trace.num_requests, rel=0.1)
