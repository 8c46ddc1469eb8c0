"""Metrics on small tables whose values are worked out by hand."""

import pyarrow as pa
import pytest

from simkv.obs.metrics import distribution, latencies, meets_objectives, memory_metrics, overload
from simkv.obs.schema import REQUESTS


def table(rows):
    """Build a request table from the columns that matter."""
    neutral = dict.fromkeys(REQUESTS.names, 0) | {"status": "finished", "reason": ""}
    plain = pa.schema(
        [field if not pa.types.is_dictionary(field.type) else (field.name, pa.string())
         for field in REQUESTS]
    )  # fmt: skip
    return pa.Table.from_pylist([neutral | row for row in rows], schema=plain).cast(REQUESTS)


ROWS = [
    {"arrival_s": 1.0, "first_scheduled_s": 1.5, "first_token_s": 2.0, "finish_s": 4.0,
     "output_tokens": 5},
    {"arrival_s": 1.0, "first_scheduled_s": 1.0, "first_token_s": 1.1, "finish_s": 1.1,
     "output_tokens": 1},
    {"arrival_s": 2.0, "first_scheduled_s": None, "first_token_s": None, "finish_s": None,
     "output_tokens": 9, "status": "unfinished"},
]  # fmt: skip


def test_latencies():
    times = latencies(table(ROWS))
    assert times["ttft_s"][:2] == pytest.approx([1.0, 0.1])
    assert times["tpot_s"][0] == pytest.approx(0.5)
    assert times["e2e_s"][:2] == pytest.approx([3.0, 0.1])
    assert times["queue_s"][:2] == pytest.approx([0.5, 0.0])
    assert all(values[2] != values[2] for values in times.values())  # NaN: it has none
    assert times["tpot_s"][1] != times["tpot_s"][1]


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "met"),
    [
        (1.0, 0.5, [True, True, False]),
        (0.9, 0.5, [False, True, False]),
        (1.0, 0.4, [False, True, False]),
        (0.05, 0.5, [False, False, False]),
    ],
)
def test_objectives(ttft_s, tpot_s, met):
    assert meets_objectives(table(ROWS), ttft_s, tpot_s).tolist() == met


def test_a_distribution_interpolates_linearly_and_knows_nothing():
    values = latencies(table(ROWS))["e2e_s"]
    assert distribution(values)["p50"] == pytest.approx(1.55)
    assert distribution(values[2:]) == dict.fromkeys(["mean", "p50", "p90", "p95", "p99", "max"])


def queue(waits_s):
    return table(
        [
            {"arrival_s": float(i), "first_scheduled_s": i + wait, "finish_s": i + wait + 1.0}
            for i, wait in enumerate(waits_s)
        ]
    )


def test_an_overload_is_a_queue_that_grows_to_the_end():
    assert overload(queue([i * 0.5 for i in range(200)])) is not None
    assert overload(queue([20.0] * 200)) is None  # long, but it does not grow
    assert overload(queue([60.0 if 80 < i < 120 else 0.0 for i in range(200)])) is None  # a burst
    assert overload(queue([i * 0.5 for i in range(20)])) is None  # too few to tell


def test_rejected_requests_are_no_queue():
    steady = queue([20.0] * 200).to_pylist()
    rejected = [
        {"arrival_s": i + 0.5, "first_scheduled_s": None, "status": "rejected"} for i in range(200)
    ]
    assert overload(table(steady + rejected)) is None
    growing = queue([i * 0.5 for i in range(200)]).to_pylist()
    assert overload(table(growing + rejected)) == overload(table(growing))


def test_memory_shares():
    means = dict.fromkeys(
        ("num_running", "num_waiting", "rounding", "cached", "unreachable", "blocks_saved"), 0.0
    ) | {
        "tokens": 60.0, "tail": 10.0, "reserved": 20.0, "over_reserved": 10.0, "free": 100.0,
        "logical_tokens": 90.0,
    }  # fmt: skip
    metrics = memory_metrics(means)
    assert metrics["memory"]["pool_slots"] == 200
    assert metrics["memory"]["tail_ratio"] == pytest.approx(0.05)
    assert metrics["memory"]["waste_ratio"] == pytest.approx(0.4)
    assert metrics["sharing"]["logical_ratio"] == pytest.approx(1.5)
