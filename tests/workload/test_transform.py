import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ConfigError, TraceError
from simkv.workload.arrivals import Closed, Poisson
from simkv.workload.lengths import Zipf
from simkv.workload.prefixes import Prefixes
from simkv.workload.sessions import GeometricTurns, Sessions
from simkv.workload.source import Transform
from simkv.workload.synthetic import Synthetic, generate
from simkv.workload.trace import Trace, make_trace
from simkv.workload.transform import apply, clip

NAN = float("nan")


def flat(arrival_s, **given):
    rows = len(arrival_s)
    return make_trace(
        **{
            "arrival_s": arrival_s,
            "prompt_tokens": np.arange(rows) + 10,
            "output_tokens": [1] * rows,
            **given,
        }
    )


def talk():
    """Two sessions of three turns, with recorded times and no think times; one lone request."""
    return flat(
        [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
        session=[0, 1, 0, -1, 0, 1, 1],
        turn=[0, 0, 1, 0, 2, 1, 2],
        after=[-1, -1, 0, -1, 2, 1, 5],
    )


def changed(trace, seed=1, max_model_len=None, **given):
    return apply(trace, Transform(**given), seed=seed, max_model_len=max_model_len)


def test_a_window_is_moved_to_zero():
    trace = changed(flat([0.0, 10.0, 10.0, 19.9, 20.0]), start_s=10.0, duration_s=10.0)
    assert trace.arrival_s == pytest.approx([0.0, 0.0, 9.9])
    assert trace.prompt_tokens.tolist() == [11, 12, 13]


def test_an_empty_window_is_an_error():
    with pytest.raises(TraceError, match=r"start_s = 99 s; its last arrival is at 10 s"):
        changed(flat([0.0, 10.0]), start_s=99.0)


def test_a_turn_whose_head_is_cut_comes_at_its_own_time():
    trace = changed(talk(), start_s=15.0, loop="closed")
    assert trace.session.tolist() == [0, -1, 0, 1, 1]
    assert trace.after.tolist() == [-1, -1, 0, -1, 3]
    assert np.array_equal(trace.arrival_s, [5.0, 15.0, NAN, 35.0, NAN], equal_nan=True)
    assert "2 requests lost those that they follow and arrive at their own time" in trace.notes


def test_turns_without_a_time_go_with_their_session():
    trace = flat(
        [0.0, NAN, 5.0, NAN], session=[0, 0, 1, 1], turn=[0, 1, 0, 1], after=[-1, 0, -1, 2]
    )
    late = changed(trace, start_s=5.0)
    assert np.array_equal(late.arrival_s, [0.0, NAN], equal_nan=True)
    assert late.after.tolist() == [-1, 0]
    first = changed(trace, max_requests=2)
    assert first.prompt_tokens.tolist() == [10, 11]


def test_thinning_keeps_whole_sessions_and_its_share():
    sessions = np.repeat(np.arange(4000), 3)
    trace = flat(np.arange(12_000.0), session=sessions, turn=np.tile([0, 1, 2], 4000))
    thin = changed(trace, keep_ratio=0.3)
    assert (np.bincount(thin.session)[np.unique(thin.session)] == 3).all()
    kept = len(np.unique(thin.session))
    assert kept == pytest.approx(1200, abs=4 * math.sqrt(4000 * 0.3 * 0.7))
    other = changed(trace, keep_ratio=0.3, seed=2)
    assert not np.array_equal(thin.session, other.session)


def test_who_waited_for_a_dropped_request_waits_for_the_one_before_it():
    loop = generate(Synthetic(num_requests=200, arrivals=Closed(num_clients=3)), seed=1)
    thin = changed(loop, keep_ratio=0.4)
    roots = np.flatnonzero(thin.after < 0)
    assert len(roots) == 3  # still one chain a client
    assert (thin.arrival_s[roots] == 0).all()
    assert (thin.after < np.arange(thin.num_requests)).all()


def test_nothing_left_is_an_error():
    with pytest.raises(TraceError, match="keep_ratio = 1e-09 leaves none of 3 requests"):
        changed(flat([0.0, 1.0, 2.0]), keep_ratio=1e-9)


def test_rate_and_number_are_scaled_and_limited():
    trace = changed(flat([0.0, 10.0, 30.0, 40.0]), rate_scale=2.0, max_requests=3)
    assert trace.arrival_s.tolist() == [0.0, 5.0, 15.0]


def test_clipping_cuts_outputs_first_then_prompts_and_counts_both():
    trace = make_trace(
        prompt_tokens=[50, 90, 150, 100, 99],
        output_tokens=[50, 30, 40, 0, 3],
        segments=[
            [(0, 50)],
            [(1, 90), (2, 20)],
            [(1, 90), (3, 60), (4, 5)],
            [(1, 90), (5, 10)],
            [(6, 99), (7, 3)],
        ],
        granularity_tokens=1,
    )
    short = clip(trace, 100)
    assert short.prompt_tokens.tolist() == [50, 90, 99, 100, 99]
    assert short.output_tokens.tolist() == [50, 10, 1, 0, 1]
    assert [short.segments(row) for row in range(5)] == [
        [(0, 50)],
        [(1, 90), (2, 10)],
        [(1, 90), (3, 9)],  # what followed the prompt is unknown now
        [(1, 90), (5, 10)],
        [(6, 99), (7, 1)],
    ]
    assert short.notes == ("clipped to 100 tokens: 1 prompts lost 51 tokens and 3 outputs 61",)
    assert clip(short, 100) is short


def test_clipping_is_asked_for_and_needs_a_limit():
    trace = flat([0.0, 1.0], prompt_tokens=[5, 500])
    assert changed(trace, max_model_len=100).prompt_tokens.tolist() == [5, 500]
    clipped = changed(trace, max_model_len=100, too_long="clip")
    assert clipped.prompt_tokens.tolist() == [5, 99]
    with pytest.raises(ConfigError, match=r"workload.transform.too_long: .*unknown"):
        changed(trace, too_long="clip")
    with pytest.raises(ConfigError, match="limit of 1 tokens"):
        changed(trace, max_model_len=1, too_long="clip")


def test_recorded_sessions_are_open_unless_closed_is_asked_for():
    recorded = talk()
    for loop in ("auto", "open"):
        trace = changed(recorded, loop=loop)
        assert np.array_equal(trace.arrival_s, recorded.arrival_s)
        assert (trace.after == -1).all()
        assert trace.notes == ()
    closed = changed(recorded, loop="closed")
    assert closed.after.tolist() == recorded.after.tolist()
    assert np.array_equal(closed.arrival_s, [0.0, 10.0, NAN, 30.0, NAN, NAN, NAN], equal_nan=True)
    assert np.array_equal(closed.think_s, [NAN, NAN, 20.0, NAN, 20.0, 40.0, 10.0], equal_nan=True)
    assert "4 think times are unknown" in closed.notes[0]


def test_turns_without_times_are_closed_unless_open_is_asked_for():
    trace = flat([3.0, NAN, NAN], after=[-1, 0, 1], think_s=[NAN, 2.0, 4.0])
    closed = changed(trace)
    assert closed.after.tolist() == [-1, 0, 1]
    assert np.array_equal(closed.think_s, [NAN, 2.0, 4.0], equal_nan=True)
    opened = changed(trace, loop="open")
    assert opened.arrival_s.tolist() == [3.0, 5.0, 9.0]
    assert (opened.after == -1).all()
    assert "2 requests have no arrival time" in opened.notes[0]


def test_a_trace_without_times_stays_without():
    trace = changed(flat([NAN, NAN, NAN]), max_requests=2)
    assert np.isnan(trace.arrival_s).all()
    assert trace.prompt_tokens.tolist() == [10, 11]


def check(trace: Trace) -> None:
    """What must hold of any trace after any transform, the slow way."""
    assert ((trace.after >= 0) <= np.isnan(trace.arrival_s)).all()
    for row in range(trace.num_requests):
        seen, at = set(), row
        while trace.after[at] >= 0:  # releases never go in a circle and start at a time
            assert at not in seen
            seen.add(at)
            at = int(trace.after[at])
        assert trace.arrival_s[at] >= 0
    before: dict[int, tuple[int, ...]] = {}
    for row in range(trace.num_requests):
        path: tuple[int, ...] = ()
        length = 0
        for number, tokens in trace.segments(row):
            # The same id stands for the same tokens before it, so it starts at the same place.
            assert before.setdefault(number, path) == path
            assert tokens > 0
            path = (*path, number)
            length += tokens
        assert length <= trace.prompt_tokens[row] + trace.output_tokens[row]


@given(
    seed=st.integers(0, 10**6),
    clients=st.one_of(st.none(), st.integers(1, 4)),
    has_sessions=st.booleans(),
    sessions_loop=st.sampled_from(["open", "closed"]),
    loop=st.sampled_from(["auto", "open", "closed"]),
    start_s=st.sampled_from([0.0, 30.0]),
    duration_s=st.sampled_from([None, 100.0]),
    keep_ratio=st.sampled_from([1.0, 0.7]),
    max_requests=st.sampled_from([None, 17]),
    resample=st.booleans(),
    too_long=st.sampled_from(["keep", "clip"]),
)
def test_any_transform_leaves_a_true_trace(
    seed, clients, has_sessions, sessions_loop, loop, start_s, duration_s, keep_ratio,
    max_requests, resample, too_long,
):  # fmt: skip
    workload = Synthetic(
        num_requests=60,
        arrivals=Poisson(rate_per_s=0.3) if clients is None else Closed(num_clients=clients),
        prompt=Zipf(min_tokens=1, max_tokens=30),
        output=Zipf(min_tokens=1, max_tokens=30),
        prefixes=Prefixes(num_prompts=2, tokens=Zipf(min_tokens=1, max_tokens=9)),
        sessions=Sessions(turns=GeometricTurns(mean_turns=3.0), loop=sessions_loop)
        if has_sessions
        else None,
    )
    transform = Transform(
        start_s=0.0 if clients else start_s,
        duration_s=duration_s,
        keep_ratio=keep_ratio,
        max_requests=max_requests,
        resample=resample,
        too_long=too_long,
        loop=loop,
    )
    trace = generate(workload, seed=seed)
    check(trace)
    try:
        once, again = (apply(trace, transform, seed=seed, max_model_len=40) for _ in range(2))
    except TraceError:
        assert keep_ratio < 1 or start_s > 0  # the only ways to have nothing left
        return
    check(once)
    assert np.array_equal(once.arrival_s, again.arrival_s, equal_nan=True)
    assert np.array_equal(once.segment_id, again.segment_id)
    if too_long == "clip":
        assert (once.prompt_tokens + once.output_tokens).max(initial=0) <= 40
    if not resample:
        assert once.num_requests <= (max_requests or 60)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"start_s": -1.0}, "start_s"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"keep_ratio": 0.0}, "keep_ratio"),
        ({"keep_ratio": 1.1}, "keep_ratio"),
        ({"rate_scale": 0.0}, "rate_scale"),
        ({"max_requests": 0}, "max_requests"),
    ],
)
def test_values_out_of_range_name_their_path(given, name):
    with pytest.raises(ConfigError) as caught:
        Transform(**given)
    assert caught.value.path == f"workload.transform.{name}"
