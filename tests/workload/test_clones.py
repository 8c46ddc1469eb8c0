import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import ConfigError
from simkv.workload.clones import isolate, sample
from simkv.workload.source import Transform
from simkv.workload.trace import make_trace
from simkv.workload.transform import apply

NAN = float("nan")


def talk():
    """Return two turns of a session, the second naming the first one's output, and a stranger."""
    return make_trace(
        arrival_s=[0.0, NAN, 1.0],
        prompt_tokens=[10, 17, 10],
        output_tokens=[4, 2, 3],
        segments=[[(1, 10), (2, 4)], [(1, 10), (2, 4), (3, 3)], [(1, 10)]],
        session=[0, 0, -1],
        turn=[0, 1, 0],
        after=[-1, 0, -1],
        think_s=[NAN, 0.5, NAN],
        tenant=[0, 0, 1],
        priority=[0, 0, 2],
        granularity_tokens=1,
    )


def test_samples_stand_behind_the_first_and_only_that_one_goes_on():
    trace = sample(talk(), 3)
    assert trace.num_requests == 9
    assert trace.prompt_tokens.tolist() == [10] * 3 + [17] * 3 + [10] * 3
    assert trace.segments(0) == [(1, 10), (2, 4)]
    assert trace.segments(1) == trace.segments(2) == [(1, 10)]
    assert trace.segments(3) == trace.segments(5) == [(1, 10), (2, 4), (3, 3)]
    assert trace.after.tolist() == [-1, -1, -1, 0, 0, 0, -1, -1, -1]
    assert trace.priority.tolist() == [0] * 6 + [2] * 3


@given(num_samples=st.integers(1, 4), lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_a_sample_s_content_ends_with_its_prompt(num_samples, lengths):
    total = sum(lengths)
    prompt = [max(1, total - 3), total + 2]
    segments = [(number, length) for number, length in enumerate(lengths)]
    trace = make_trace(
        prompt_tokens=prompt,
        output_tokens=[9, 9],
        arrival_s=[0.0, 1.0],
        segments=[segments, segments],
    )
    many = sample(trace, num_samples)
    for row in range(many.num_requests):
        covered = sum(tokens for _, tokens in many.segments(row))
        known = total if row % num_samples == 0 else min(total, prompt[row // num_samples])
        assert covered == known
        ids = [number for number, _ in many.segments(row)]
        assert ids == list(range(len(ids)))


def test_tenants_and_sessions_can_be_kept_apart():
    trace = talk()
    assert isolate(trace, "all") is trace
    for within in ("tenant", "session"):
        apart = isolate(trace, within)
        first, second, stranger = (
            [number for number, _ in apart.segments(row)] for row in range(3)
        )
        assert first == second[:2]
        assert stranger[0] not in second
        assert np.array_equal(apart.segment_tokens, trace.segment_tokens)


def test_the_transform_does_all_of_it():
    transform = Transform(num_samples=2, share_within="session", patience_s=3.0)
    trace = apply(talk(), transform, seed=0)
    assert trace.num_requests == 6
    assert trace.patience_s.tolist() == [3.0] * 6
    assert trace.segments(0)[0] == trace.segments(1)[0] != trace.segments(4)[0]


@pytest.mark.parametrize(("key", "value"), [("num_samples", 0), ("patience_s", 0.0)])
def test_values_out_of_range_are_named(key, value):
    with pytest.raises(ConfigError, match=f"^workload.transform.{key}: got"):
        Transform(**{key: value})
