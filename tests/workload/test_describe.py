"""A trace in numbers: published ones, and by hand."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.workload.describe import describe, render, repeated_tokens
from simkv.workload.load import read_trace
from simkv.workload.radix import compress
from simkv.workload.trace import make_trace


def test_azure_2023(shared):
    path = shared("data", "traces", "azure-2023", "AzureLLMInferenceTrace_conv.csv")
    found = describe(read_trace(path))
    assert found["num_requests"] == 19_366
    assert found["span_s"] == 3501.721937
    assert found["prompt_tokens"]["sum"] == 22_361_870
    assert found["output_tokens"]["sum"] == 4_088_665
    assert found["prompt_tokens"]["p50"] == 1_020
    assert found["output_tokens"]["p50"] == 129
    assert found["prompt_tokens"]["max"] == 14_050
    assert found["interarrival"]["cv"] == pytest.approx(1.094170, abs=5e-7)
    json.dumps(found)


def test_by_hand():
    trace = make_trace(
        prompt_tokens=[10, 20, 30, 40, 50],
        output_tokens=[0, 1, 2, 3, 4],
        arrival_s=[0.0, 1.0, 1.0, 5.0, float("nan")],
        session=[0, 0, 1, -1, 0],
        turn=[0, 1, 0, 0, 2],
        after=[-1, 0, -1, -1, 1],
        tenant=[0, 0, 1, 1, 0],
    )
    found = describe(trace)
    assert found["prompt_tokens"] == {
        "sum": 150, "mean": 30.0, "p50": 30.0, "p90": 46.0, "p99": 49.6, "min": 10, "max": 50,
    }  # fmt: skip
    gaps = found["interarrival"]  # 1, 0, 4: mean 5/3, population variance 17/3 - 25/9 = 26/9
    assert gaps["mean_s"] == pytest.approx(5 / 3)
    assert gaps["cv"] == pytest.approx(np.sqrt(26) / 5)
    assert gaps["p50_s"] == 1.0
    assert gaps["num_ties"] == 1
    assert found["span_s"] == 5.0
    assert found["num_arrivals"] == 4
    assert found["sessions"] == {
        "num_sessions": 2, "num_requests": 4, "turns_mean": 2.0, "turns_max": 3,
        "num_closed_loop": 1,
    }  # fmt: skip
    assert found["num_tenants"] == 2
    assert found["content"] is None


def test_nothing_known_is_none():
    found = describe(make_trace(prompt_tokens=[1], output_tokens=[1]))
    assert found["span_s"] is None
    assert found["interarrival"] is None
    assert found["sessions"] is None
    assert "no arrivals known" in render(found)


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 1), min_size=1, max_size=10),
            st.lists(st.integers(0, 1), max_size=4),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_repeated_tokens_against_all_pairs(drawn):
    prompts = [prompt for prompt, _ in drawn]
    whole = [prompt + output for prompt, output in drawn]
    segments = compress([np.array(row) for row in whole], [[len(row)] for row in prompts])
    trace = make_trace(
        prompt_tokens=[len(row) for row in prompts],
        output_tokens=[len(output) for _, output in drawn],
        segments=segments,
        granularity_tokens=1,
    )
    for row, prompt in enumerate(prompts):
        expected = max(
            (
                sum(1 for n in range(1, len(prompt) + 1) if prompt[:n] == earlier[:n])
                for earlier in whole[:row]
            ),
            default=0,
        )
        assert repeated_tokens(trace)[row] == expected


def test_a_request_that_ends_inside_a_segment_counts_what_it_holds():
    trace = make_trace(
        prompt_tokens=[5, 9, 9, 2],
        output_tokens=[1, 1, 1, 1],
        segments=[[(3, 5)], [(3, 8)], [(3, 8), (4, 1)], [(3, 2)]],
        granularity_tokens=8,
    )
    assert repeated_tokens(trace).tolist() == [0, 5, 8, 2]
    found = describe(trace)["content"]
    assert found["repeated_prompt_tokens"] == 15
    assert found["known_prompt_tokens"] == 5 + 8 + 9 + 2
    assert found["repeated_ratio"] == 15 / 25


def test_rendering_says_what_matters():
    trace = make_trace(
        prompt_tokens=[5, 5],
        output_tokens=[1, 1],
        arrival_s=[0.0, 2.0],
        segments=[[(0, 5)], [(0, 5)]],
        granularity_tokens=16,
        session=[0, 1],
        notes=("a note",),
    )
    text = render(describe(trace))
    assert "told apart every 16 tokens; 50.0% of prompt tokens repeat" in text
    assert "2 with 2 requests" in text
    assert "a note" in text
