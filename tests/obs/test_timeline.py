"""Timelines keep the rules of the trace-event format, and say what happened."""

import dataclasses
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.config.run import Measure, RunConfig
from simkv.errors import InputError
from simkv.kv.layout import ContiguousMax
from simkv.obs.recorder import Tables
from simkv.obs.timeline import Timeline
from simkv.rng import stream
from simkv.sim.simulate import simulate
from simkv.workload.trace import Trace, make_trace
from tests.sim.runs import run_config
from tests.sim.test_simulate import random_trace

Event = dict[str, Any]


def draw(
    config: RunConfig, trace: Trace, path: Path, *, check: bool = False, **options: int
) -> tuple[Tables, list[Event], list[str]]:
    with Timeline(path, **options) as timeline:
        tables = simulate(config, trace, check=check, watchers=[timeline])
    return tables, json.loads(path.read_text())["traceEvents"], timeline.warnings()


def of_kind(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["ph"] == kind]


def nested(spans: list[Event]) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each outer span of one lane with those inside, checking that they nest."""
    outer: Event | None = None
    inside: list[Event] = []
    # The sort is stable: of two that begin together, the one written first contains the other.
    for span in sorted(spans, key=lambda one: one["ts"]):
        if outer is not None and span["ts"] + span["dur"] <= outer["ts"] + outer["dur"]:
            inside.append(span)
            continue
        if outer is not None:
            assert span["ts"] >= outer["ts"] + outer["dur"], "spans of a lane overlap"
            yield outer, inside
        outer, inside = span, []
    if outer is not None:
        yield outer, inside


def check_format(events: list[Event]) -> None:
    """Check what a viewer relies on, and that names and parts are where they belong."""
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in of_kind(events, "M")}
    pids, lanes = {pid for pid, _ in named}, [tid for _, tid in named if tid > 1_000_000]
    assert len(set(lanes)) == len(lanes)
    assert not pids & set(lanes)
    for event in events:
        assert event["ph"] in {"M", "C", "X"}
        assert (event["pid"], event["tid"]) in named
        assert isinstance(event["name"], str)
        if event["ph"] != "M":
            assert isinstance(event["ts"], int)
            assert event["ts"] >= 0
        if event["ph"] == "C":
            assert all(value >= 0 for value in event["args"].values())
    spans: dict[tuple[int, int], list[Event]] = {}
    for event in of_kind(events, "X"):
        assert isinstance(event["dur"], int)
        assert event["dur"] >= 0
        spans.setdefault((event["pid"], event["tid"]), []).append(event)
    for lane in spans.values():
        for outer, inside in nested(lane):
            assert outer["name"].startswith("request ")
            number = int(outer["name"].removeprefix("request "))
            assert [one["args"]["request"] for one in inside] == [number] * len(inside)
            ends = [outer["ts"], *(one["ts"] + one["dur"] for one in inside)]
            # What a request does fills its span without a gap.
            assert [one["ts"] for one in inside] == ends[: len(inside)]
            assert not inside or ends[-1] == outer["ts"] + outer["dur"]
            assert all(one["name"] != other["name"] for one, other in pairwise(inside))


@given(
    seed=st.integers(0, 1000),
    slots=st.integers(500, 3000),
    num_replicas=st.integers(1, 3),
    ahead=st.booleans(),
    drain=st.booleans(),
    contiguous=st.booleans(),
    patience_s=st.sampled_from([math.inf, 2.0, 0.3]),
)
def test_a_timeline_keeps_the_rules_and_tells_what_the_tables_tell(
    seed: int,
    slots: int,
    num_replicas: int,
    ahead: bool,
    drain: bool,
    contiguous: bool,
    patience_s: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    layout = {"kv": ContiguousMax(num_slots=slots)} if contiguous else {"num_blocks": slots // 16}
    config = run_config(
        **layout,
        num_replicas=num_replicas,
        async_scheduling=ahead,
        max_model_len=480,
        max_num_batched_tokens=256,
        max_num_seqs=8,
        reserve_full_prompt=False,
        measure=Measure(drain=drain),
    )
    path = tmp_path_factory.mktemp("timeline") / "out.json"
    patience = stream(seed, "patience").exponential(patience_s, 40)
    trace = dataclasses.replace(random_trace(seed, 40), patience_s=patience)
    tables, events, warnings = draw(config, trace, path, check=True)
    check_format(events)
    assert warnings == []
    drawn = {event["name"]: event for event in of_kind(events, "X") if "status" in event["args"]}
    for row in tables.requests.to_pylist():
        if row["status"] == "rejected" or row["arrival_s"] is None:
            assert f"request {row['request']}" not in drawn
            continue
        span = drawn[f"request {row['request']}"]
        assert span["ts"] == round(1e6 * row["arrival_s"])
        assert span["args"]["status"] == row["status"]
        if row["finish_s"] is None:
            continue
        assert span["ts"] + span["dur"] == round(1e6 * row["finish_s"])
        inside = [
            one for one in of_kind(events, "X") if one["args"].get("request") == row["request"]
        ]
        for name, parts in (
            ("prefill", ["prefill_s"]),
            ("decode", ["decode_s"]),
            ("preempted", ["preempted_s"]),
            ("recompute", ["recompute_s"]),
            ("queue", [part for part in row if part.startswith("waited_")]),
        ):
            # Each of a request's stays is rounded to a microsecond at both ends.
            drawn_us = sum(one["dur"] for one in inside if one["name"] == name)
            slack_us = 1 + row["num_preemptions"]
            assert abs(drawn_us - 1e6 * sum(row[part] for part in parts)) <= slack_us


def test_a_preemption_by_hand(tmp_path: Path) -> None:
    # Worked out in test_parts.test_behind_a_preemption_and_through_one; 10 blocks of 16.
    trace = make_trace(arrival_s=[0.0] * 3, prompt_tokens=[64, 90, 8], output_tokens=[5, 3, 1])
    _, events, _ = draw(run_config(num_blocks=11), trace, tmp_path / "out.json")
    spans = [
        (event["args"]["request"], event["name"], event["ts"] // 1000, event["dur"] // 1000)
        for event in of_kind(events, "X")
        if "request" in event["args"]
    ]
    assert spans == [
        (0, "prefill", 0, 10), (0, "decode", 10, 40),
        (2, "queue", 0, 50), (2, "prefill", 50, 10),
        (1, "prefill", 0, 10), (1, "preempted", 10, 40), (1, "recompute", 50, 10),
        (1, "decode", 60, 10),
    ]  # fmt: skip
    counted = [
        (event["ts"] // 1000, *event["args"].values())
        for event in of_kind(events, "C")
        if event["name"] == "requests"
    ]
    assert counted == [(0, 2, 1), (10, 1, 2), (50, 2, 0), (60, 1, 0), (70, 0, 0)]
    blocks = [
        (event["ts"] // 1000, event["args"]["used"], event["args"]["free"])
        for event in of_kind(events, "C")
        if event["name"] == "blocks"
    ]
    assert blocks == [(0, 10, 0), (10, 5, 5), (50, 7, 3), (60, 6, 4), (70, 0, 10)]


def test_lanes_are_used_again(tmp_path: Path) -> None:
    trace = make_trace(
        arrival_s=[0.0, 0.001, 0.5, 0.501], prompt_tokens=[8] * 4, output_tokens=[2] * 4
    )
    _, events, _ = draw(run_config(), trace, tmp_path / "out.json")
    lanes = [event["tid"] for event in of_kind(events, "X") if "status" in event["args"]]
    assert lanes == [1_000_001, 1_000_002] * 2


def test_same_run_same_bytes(tmp_path: Path) -> None:
    config = run_config(num_blocks=100, num_replicas=2, max_num_seqs=8)
    for name in ("one", "two"):
        draw(config, random_trace(3), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_full_timeline_ends_and_says_so(tmp_path: Path) -> None:
    config = run_config(num_blocks=100, max_num_seqs=8)
    whole, all_events, _ = draw(config, random_trace(3), tmp_path / "all.json")
    cut, events, warnings = draw(config, random_trace(3), tmp_path / "out.json", max_events=500)
    assert cut.requests.equals(whole.requests)
    check_format(events)
    # What was under way then is drawn up to there.
    assert 500 <= len(events) < 800 < len(all_events)
    assert max(event["ts"] + event.get("dur", 0) for event in of_kind(events, "X")) > 0
    (told,) = warnings
    assert f"after {len(events):,} events" in told
    assert f"s of {whole.summary['makespan_s']:,.1f} s" in told


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("before")

    def fail() -> None:
        with Timeline(path):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [
        ("out.json", "before")
    ]


def test_a_folder_is_no_timeline(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a file for the timeline"):
        Timeline(tmp_path)
