"""Shares of time and stories of requests, worked out by hand."""

from typing import Any

import pyarrow as pa
import pytest

from simkv.obs.explain import (
    part_metrics,
    render_parts,
    render_story,
    sentence,
    story,
    totals,
)
from simkv.obs.parts import PARTS
from simkv.sim.simulate import simulate
from simkv.workload.trace import make_trace
from tests.obs.test_metrics import table
from tests.sim.runs import run_config


def row(arrival_s: float, **parts: float) -> dict[str, Any]:
    """Return a request whose moments follow from its parts."""
    waited_s = sum(value for name, value in parts.items() if name.startswith("waited"))
    scheduled_s = arrival_s + waited_s
    token_s = scheduled_s + parts["prefill_s"]
    return {
        "arrival_s": arrival_s,
        "first_scheduled_s": scheduled_s,
        "first_token_s": token_s,
        "finish_s": token_s + parts.get("decode_s", 0.0),
        **parts,
    }


def test_shares_of_ttft_and_of_its_slowest_percent() -> None:
    # 150 requests with a TTFT of 1 s: half memory, half prefill. Two with 10 s: the P99 of these
    # 152 is at place 149.49, between the last of the ones and the first of the others.
    fast = [row(0.0, waited_memory_s=0.5, prefill_s=0.5, decode_s=3.0)] * 150
    slow = [
        row(0.0, waited_memory_s=6.0, waited_batch_slot_s=3.0, prefill_s=1.0),
        row(0.0, waited_memory_s=1.0, waited_token_budget_s=8.0, prefill_s=1.0),
    ]
    told = part_metrics(table([*fast, *slow]))
    assert told["parts"]["decode_s"] == pytest.approx(150 * 3.0)
    assert told["parts"]["waited_memory_s"] == pytest.approx(150 * 0.5 + 7.0)
    assert told["ttft_p99_parts"]["waited_memory_ratio"] == pytest.approx(7 / 20)
    assert told["ttft_p99_parts"]["waited_batch_slot_ratio"] == pytest.approx(3 / 20)
    assert sum(told["ttft_p99_parts"].values()) == pytest.approx(1)
    assert told["ttft_parts"]["waited_memory_ratio"] == pytest.approx((150 * 0.5 + 7) / (150 + 20))
    assert sum(told["ttft_parts"].values()) == pytest.approx(1)
    assert sentence(told["ttft_p99_parts"]) == (
        "40.0 % waiting for the token budget, 35.0 % waiting for KV blocks, "
        "15.0 % waiting for a batch slot, 10.0 % prefill"
    )


def test_what_a_preemption_before_the_first_token_costs_is_lost() -> None:
    # Admitted at 2 s, a second of prefill, two out of the batch, half a second again.
    one = {
        "arrival_s": 1.0, "first_scheduled_s": 2.0, "first_token_s": 5.5, "finish_s": 6.0,
        "num_preemptions": 1, "waited_memory_s": 1.0, "prefill_s": 1.0, "preempted_s": 2.0,
        "recompute_s": 0.5, "decode_s": 0.5,
    }  # fmt: skip
    ratios = part_metrics(table([one]))["ttft_parts"]
    assert ratios["lost_ratio"] == pytest.approx(2.5 / 4.5)
    assert ratios["prefill_ratio"] == pytest.approx(1.0 / 4.5)
    assert sum(ratios.values()) == pytest.approx(1)


def test_shares_of_nothing() -> None:
    told = part_metrics(table([]))
    assert set(told["ttft_parts"].values()) == {None}
    assert set(told["parts"].values()) == {0.0}
    assert sentence(told["ttft_parts"]) == ""
    assert "-" in render_parts(told)


@pytest.fixture(scope="module")
def requests() -> pa.Table:
    """The three of ``test_parts.test_behind_a_preemption_and_through_one``, and a rejected one."""
    trace = make_trace(
        arrival_s=[0.0] * 4, prompt_tokens=[64, 90, 8, 900], output_tokens=[5, 3, 1, 1]
    )
    return simulate(run_config(num_blocks=11), trace, check=True).requests


def test_a_story_adds_up(requests: pa.Table) -> None:
    told = story(requests, 1)
    assert sum(told[name] for name in PARTS) == pytest.approx(told["e2e_s"]) == 0.07
    assert told["ttft_s"] == pytest.approx(0.01)
    assert told["e2e_rank_ratio"] == pytest.approx(2 / 3)
    assert render_story(told).splitlines() == [
        "request 1: 90 prompt tokens, 3 output tokens, on replica 0",
        "arrived                0.0000 s",
        "admitted               0.0000 s   0.0000 s in the queue, 0.0 % of requests were faster",
        "first token            0.0100 s   0.0100 s TTFT, 0.0 % of requests were faster",
        "last token             0.0700 s   0.0700 s end to end, 66.7 % of requests were faster",
        "",
        "where its time went                                        s    share",
        "  prefill                                             0.0100   14.3 %",
        "  decode                                              0.0100   14.3 %",
        "  preempted, once                                     0.0400   57.1 %",
        "  computing again (90 tokens)                         0.0100   14.3 %",
    ]


def test_a_story_that_ends_at_once(requests: pa.Table) -> None:
    assert render_story(story(requests, 3)).splitlines()[1:] == [
        "rejected when it arrived: exceeds-pool"
    ]


def test_totals_are_of_those_that_finished(requests: pa.Table) -> None:
    seconds = totals(requests)
    assert sum(seconds.values()) == pytest.approx(0.05 + 0.07 + 0.06)
    assert seconds["waited_memory_s"] == pytest.approx(0.04)
