import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ConfigError
from simkv.workload.arrivals import Closed, Gamma, Poisson
from simkv.workload.lengths import Empirical, Fixed, Lognormal, Paired, Zipf
from simkv.workload.prefixes import Prefixes, Tenants
from simkv.workload.sessions import FixedTurns, GeometricTurns, Sessions
from simkv.workload.synthetic import Synthetic, generate
from simkv.workload.think import ConstantThink, ExponentialThink
from simkv.workload.trace import Trace

TALKS = Sessions(turns=GeometricTurns(mean_turns=3.0, max_turns=9))


def columns(trace: Trace):
    return {
        name: getattr(trace, name)
        for name in Trace.__dataclass_fields__
        if isinstance(getattr(trace, name), np.ndarray)
    }


def same(one: Trace, other: Trace) -> bool:
    return all(
        np.array_equal(column, columns(other)[name], equal_nan=column.dtype.kind == "f")
        for name, column in columns(one).items()
    )


def shared_tokens(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """Length of the common prefix, as the segments say."""
    shared = 0
    for (id_one, tokens_one), (id_other, tokens_other) in zip(one, other, strict=False):
        if id_one != id_other:
            break
        shared += min(tokens_one, tokens_other)
        if tokens_one != tokens_other:
            break
    return shared


PREFIX_TOKENS = 5


@given(
    seed=st.integers(0, 10**6),
    num_requests=st.integers(1, 25),
    has_prefixes=st.booleans(),
    turns=st.one_of(
        st.builds(FixedTurns, num_turns=st.integers(1, 4)),
        st.builds(GeometricTurns, mean_turns=st.floats(1, 4), max_turns=st.integers(1, 6)),
    ),
    loop=st.sampled_from(["open", "closed"]),
    clients=st.one_of(st.none(), st.integers(1, 5)),
    limit=st.one_of(st.none(), st.integers(40, 80)),
)
def test_segments_share_exactly_what_the_talks_share(
    seed, num_requests, has_prefixes, turns, loop, clients, limit
):
    trace = generate(
        Synthetic(
            num_requests=num_requests,
            arrivals=Poisson() if clients is None else Closed(num_clients=clients),
            prompt=Zipf(min_tokens=1, max_tokens=6),
            output=Zipf(min_tokens=1, max_tokens=6),
            tenants=Tenants(num_tenants=2),
            prefixes=Prefixes(num_prompts=2, tokens=Fixed(tokens=PREFIX_TOKENS))
            if has_prefixes
            else None,
            sessions=Sessions(turns=turns, loop=loop, max_context_tokens=limit),
        ),
        seed=seed,
    )
    told = []  # the slow way: every token of a session by name
    said: dict[int, list[object]] = {}
    by_turn = sorted(range(trace.num_requests), key=lambda row: trace.turn[row])
    for row in by_turn:
        session = int(trace.session[row])
        if session not in said:
            prefix = trace.segments(row)[0][0] if has_prefixes else None
            said[session] = [(prefix, k) for k in range(PREFIX_TOKENS if has_prefixes else 0)]
        new = int(trace.prompt_tokens[row]) - len(said[session])
        assert new >= 1
        said[session] += [("user", row, k) for k in range(new)]
        said[session] += [("model", row, k) for k in range(int(trace.output_tokens[row]))]
        told.append((row, list(said[session])))
    for row, words in told:
        segments = trace.segments(row)
        ends = np.cumsum([tokens for _, tokens in segments]).tolist()
        assert all(tokens > 0 for _, tokens in segments)
        assert not ends or ends[-1] <= len(words)
        if ends and ends[-1] > trace.prompt_tokens[row]:
            assert int(trace.prompt_tokens[row]) in ends  # a boundary at the prompt's end
        for other, other_words in told:
            if other == row:
                continue
            pairs = zip(words, other_words, strict=False)
            common = next(
                (at for at, (a, b) in enumerate(pairs) if a != b), min(len(words), len(other_words))
            )
            # A last answer is nobody's prompt, so nothing says that it is shared, and nothing is.
            assert shared_tokens(segments, trace.segments(other)) == common


def test_many_requests_have_the_moments_of_their_laws():
    trace = generate(
        Synthetic(num_requests=100_000, arrivals=Gamma(rate_per_s=8.0, cv=1.5)), seed=3
    )
    gaps = np.diff(trace.arrival_s)
    assert gaps.mean() == pytest.approx(1 / 8, rel=4 * 1.5 / math.sqrt(100_000))
    assert trace.num_requests == 100_000
    assert trace.granularity_tokens == 1
    assert len(trace.segment_id) == 0  # nothing is shared
    assert (trace.session == -1).all()


def test_system_prompts_and_tenants_are_popular_as_zipf_says():
    rows, prompts, tenants = 60_000, 5, 3
    trace = generate(
        Synthetic(
            num_requests=rows,
            tenants=Tenants(num_tenants=tenants, exponent=1.0),
            prefixes=Prefixes(num_prompts=prompts, exponent=1.2, tokens=Zipf(max_tokens=90)),
        ),
        seed=5,
    )
    weight = np.arange(1.0, prompts + 1) ** -1.2
    share = np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3)
    expected = rows * np.outer(share, weight / weight.sum()).reshape(-1)
    counts = np.bincount(trace.segment_id, minlength=tenants * prompts)
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.01
    assert np.array_equal(trace.segment_id // prompts, trace.tenant)  # each tenant its own set
    assert np.array_equal(np.diff(trace.segment_offset), np.ones(rows))
    lengths = {
        (i, n)
        for i, n in zip(trace.segment_id.tolist(), trace.segment_tokens.tolist(), strict=True)
    }
    assert len(lengths) == tenants * prompts  # a system prompt has one length
    assert (trace.prompt_tokens > trace.segment_tokens).all()


def test_sessions_have_their_turns_and_think_times():
    trace = generate(
        Synthetic(
            num_requests=60_000,
            sessions=Sessions(
                turns=GeometricTurns(mean_turns=3.0, max_turns=1000),
                think=ExponentialThink(mean_s=7.0),
                loop="open",
            ),
        ),
        seed=1,
    )
    turns = np.bincount(trace.session)
    error = 4 * math.sqrt(3.0 * 2.0 / len(turns))
    assert trace.num_requests == 60_000
    assert turns.mean() == pytest.approx(3.0, abs=error)  # variance of a geometric: m (m - 1)
    assert (np.diff(trace.arrival_s) >= 0).all()
    order = np.lexsort((trace.turn, trace.session))
    gaps = np.diff(trace.arrival_s[order])[trace.turn[order][1:] > 0]
    assert gaps.mean() == pytest.approx(7.0, rel=4 / math.sqrt(len(gaps)))
    assert (trace.after == -1).all()


def test_closed_sessions_name_what_releases_each_turn():
    trace = generate(
        Synthetic(num_requests=500, sessions=replace(TALKS, think=ConstantThink(think_s=2.0))),
        seed=1,
    )
    follows = trace.turn > 0
    assert np.array_equal(np.isnan(trace.arrival_s), follows)
    assert np.array_equal(trace.after >= 0, follows)
    before = trace.after[follows]
    assert np.array_equal(trace.session[before], trace.session[follows])
    assert np.array_equal(trace.turn[before], trace.turn[follows] - 1)
    assert (trace.think_s[follows] == 2.0).all()
    assert np.isnan(trace.think_s[~follows]).all()


@pytest.mark.parametrize("sessions", [None, TALKS])
def test_a_closed_loop_is_one_chain_a_client(sessions):
    trace = generate(
        Synthetic(
            num_requests=400,
            arrivals=Closed(num_clients=7, think=ConstantThink(think_s=3.0), ramp_s=14.0),
            sessions=sessions,
        ),
        seed=2,
    )
    roots = np.flatnonzero(trace.after == -1)
    assert trace.arrival_s[roots].tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    assert np.isnan(np.delete(trace.arrival_s, roots)).all()
    followed = trace.after[trace.after >= 0]
    assert len(followed) == len(set(followed.tolist())) == 393  # nobody releases two
    assert (trace.after < np.arange(400)).all()
    starts = trace.turn == 0
    later = starts & (trace.after >= 0)
    assert (trace.think_s[later] == 3.0).all()
    if sessions is not None:
        # A client starts a session when its last one has ended with its last turn.
        last_turn = {s: trace.turn[trace.session == s].max() for s in set(trace.session.tolist())}
        for row in np.flatnonzero(later):
            before = trace.after[row]
            assert trace.session[before] == trace.session[row] - 7
            assert trace.turn[before] == last_turn[trace.session[before]]


def test_a_session_ends_before_it_passes_the_limit():
    workload = Synthetic(
        num_requests=40,
        prompt=Fixed(tokens=30),
        output=Fixed(tokens=20),
        sessions=Sessions(turns=FixedTurns(num_turns=4), max_context_tokens=100),
    )
    trace = generate(workload, seed=1)  # turns of 50, 100, 150 and 200 tokens
    assert trace.num_requests == 20
    assert trace.notes == ("20 turns beyond max_context_tokens 100 were not generated",)
    assert set((trace.prompt_tokens + trace.output_tokens).tolist()) == {50, 100}
    with pytest.raises(ConfigError, match="no request fits into 40 tokens"):
        generate(replace(workload, sessions=Sessions(max_context_tokens=40)), seed=1)


def test_a_duration_ends_the_arrivals():
    workload = Synthetic(num_requests=10**6, duration_s=100.0, arrivals=Poisson(rate_per_s=50.0))
    trace = generate(workload, seed=1)
    assert trace.num_requests == pytest.approx(5000, abs=4 * math.sqrt(5000))
    assert trace.arrival_s[-1] <= 100.0
    with pytest.raises(ConfigError, match="nothing arrives"):
        generate(replace(workload, arrivals=Poisson(rate_per_s=1e-6)), seed=1)


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "recorded.csv"
    rows = "".join(f"{at},{10 + at},{500 + at}\n" for at in range(20))
    path.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    return str(path)


def test_empirical_lengths_come_alone_or_in_pairs(recorded):
    law = Empirical(path=recorded)
    paired = generate(Synthetic(num_requests=4000, prompt=law, output=Paired()), seed=1)
    assert (paired.output_tokens - paired.prompt_tokens == 490).all()
    counts = np.bincount(paired.prompt_tokens, minlength=30)[10:]
    assert scipy.stats.chisquare(counts).pvalue > 0.01
    alone = generate(Synthetic(num_requests=4000, prompt=law, output=law), seed=1)
    assert set(alone.prompt_tokens.tolist()) == set(range(10, 30))
    assert set(alone.output_tokens.tolist()) == set(range(500, 520))
    assert abs(np.corrcoef(alone.prompt_tokens, alone.output_tokens)[0, 1]) < 4 / math.sqrt(4000)


def test_a_seed_is_a_trace_and_each_law_has_its_own_stream():
    workload = Synthetic(num_requests=300, prefixes=Prefixes(), sessions=TALKS)
    trace = generate(workload, seed=1)
    assert same(trace, generate(workload, seed=1))
    assert not same(trace, generate(workload, seed=2))
    other = generate(replace(workload, output=Fixed(tokens=9), arrivals=Gamma()), seed=1)
    by_turn, by_turn_other = (np.lexsort((drawn.turn, drawn.session)) for drawn in (trace, other))
    for name in ("session", "turn", "tenant", "think_s"):
        one, two = getattr(trace, name)[by_turn], getattr(other, name)[by_turn_other]
        assert np.array_equal(one, two, equal_nan=name == "think_s")
    first = trace.turn[by_turn] == 0
    assert np.array_equal(
        trace.prompt_tokens[by_turn][first], other.prompt_tokens[by_turn_other][first]
    )


@pytest.mark.parametrize(
    ("kind", "given", "path"),
    [
        (Synthetic, {"num_requests": 0}, "workload.num_requests"),
        (Synthetic, {"duration_s": 0.0}, "workload.duration_s"),
        (Synthetic, {"duration_s": 9.0, "arrivals": Closed()}, "workload.duration_s"),
        (Synthetic, {"prompt": Fixed(tokens=0)}, "workload.prompt.tokens"),
        (Synthetic, {"output": Lognormal(mean_tokens=1.0, sigma=9.0)}, "workload.output.sigma"),
        (Synthetic, {"output": Paired()}, "workload.output"),
        (Tenants, {"num_tenants": 0}, "workload.tenants.num_tenants"),
        (Tenants, {"exponent": -1.0}, "workload.tenants.exponent"),
        (Prefixes, {"num_prompts": 0}, "workload.prefixes.num_prompts"),
        (Prefixes, {"tokens": Fixed(tokens=0)}, "workload.prefixes.tokens.tokens"),
        (FixedTurns, {"num_turns": 0}, "workload.sessions.turns.num_turns"),
        (GeometricTurns, {"mean_turns": 0.5}, "workload.sessions.turns.mean_turns"),
        (GeometricTurns, {"max_turns": 0}, "workload.sessions.turns.max_turns"),
        (Sessions, {"max_context_tokens": 1}, "workload.sessions.max_context_tokens"),
        (
            Sessions,
            {"think": ExponentialThink(mean_s=-1.0)},
            "workload.sessions.think.mean_s",
        ),
    ],
)
def test_values_out_of_range_name_their_path(kind, given, path):
    with pytest.raises(ConfigError) as caught:
        kind(**given)
    assert caught.value.path == path
