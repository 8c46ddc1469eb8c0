"""Reuse over extents against the obvious version, block by block, and the published counts."""

from collections import OrderedDict

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.errors import InputError, TraceError
from simkv.workload.chain import Chains
from simkv.workload.readers.format import ReadOptions
from simkv.workload.readers.mooncake import MOONCAKE
from simkv.workload.readers.servegen_offline import SERVEGEN_OFFLINE
from simkv.workload.readers.weka_agentic import WEKA_AGENTIC
from simkv.workload.reuse import render, reuse
from simkv.workload.trace import Trace, make_trace

Key = tuple[object, ...]
Block = tuple[Key, int]
"""What a block is (everything up to its end), and its tokens."""

prompts = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=14), max_size=14)


def lru_block_by_block(requests: list[list[Block]], capacity: int) -> dict[str, int]:
    cache: OrderedDict[Key, None] = OrderedDict()
    hit_blocks = hit_tokens = evictions = 0
    for request in requests:
        kept = request[:capacity]
        hits = 0
        while hits < len(request) and request[hits][0] in cache:
            hit_tokens += request[hits][1]
            hits += 1
        hit_blocks += hits
        for key, _ in request[:hits]:
            del cache[key]
        while len(cache) + len(kept) > capacity:
            cache.popitem(last=False)
            evictions += 1
        for key, _ in reversed(kept):
            cache[key] = None
        assert len(cache) <= capacity
    return {
        "capacity_blocks": capacity,
        "hit_blocks": hit_blocks,
        "hit_tokens": hit_tokens,
        "evictions": evictions,
    }


def blocks_of(tokens: list[int], size: int, partial_blocks: str) -> list[Block]:
    full = len(tokens) - len(tokens) % size
    ends = list(range(size, full + 1, size))
    if partial_blocks == "keep" and full < len(tokens):
        ends.append(len(tokens))
    return [(tuple(tokens[:end]), (end - 1) % size + 1) for end in ends]


def trace_of(rows: list[list[int]], arrival_s: list[float] | None = None) -> Trace:
    chains = Chains(1)
    for tokens in rows:
        chains.add(np.array(tokens, dtype=np.int64), len(tokens))
    return make_trace(
        prompt_tokens=list(map(len, rows)),
        output_tokens=[1] * len(rows),
        arrival_s=arrival_s,
        segments=chains.segments().rows(),
        granularity_tokens=1,
    )


@given(prompts, st.integers(1, 5), st.sampled_from(["keep", "drop"]), st.data())
def test_extents_count_what_blocks_count(rows, size, partial_blocks, data):
    arrival_s = [float(data.draw(st.integers(0, 3))) for _ in rows]
    interleave = data.draw(st.booleans())
    capacities = [1, 2, 3, 5, 8, 13, 40]
    result = reuse(
        trace_of(rows, arrival_s),
        partial_blocks=partial_blocks,
        capacity_blocks=capacities,
        interleave=interleave,
        block_tokens=size,
    )
    order = sorted(range(len(rows)), key=lambda row: arrival_s[row] if interleave else 0)
    requests = [blocks_of(rows[row], size, partial_blocks) for row in order]
    keys = [key for request in requests for key, _ in request]
    assert result["num_requests"] == len(rows)
    assert result["blocks"] == len(keys)
    assert result["unique_blocks"] == len(set(keys))
    everything = lru_block_by_block(requests, len(keys) + 1)
    assert result["ideal"] == {key: everything[key] for key in ("hit_blocks", "hit_tokens")}
    assert result["capacities"] == [
        lru_block_by_block(requests, capacity) for capacity in capacities
    ]


@given(st.lists(st.integers(0, 3), min_size=200, max_size=400), st.integers(1, 60))
def test_a_long_run_of_returning_prompts_keeps_the_queue_right(choices, capacity):
    paths = [[0] * 12, [0] * 6 + [1] * 9, [2] * 20, [0] * 5]
    rows = [paths[choice] for choice in choices]
    result = reuse(trace_of(rows), capacity_blocks=[capacity])
    requests = [blocks_of(tokens, 1, "keep") for tokens in rows]
    assert result["capacities"] == [lru_block_by_block(requests, capacity)]


def test_a_worked_example():
    # Blocks of 2: [ab][cd][e], [ab][cx], [ab][cd][e].
    rows = [[1, 2, 3, 4, 5], [1, 2, 3, 9], [1, 2, 3, 4, 5]]
    result = reuse(trace_of(rows), block_tokens=2, capacity_blocks=[3, 4])
    assert (result["blocks"], result["unique_blocks"]) == (8, 4)
    # The second request hits [ab]; the third hits all of its blocks, the last with one token.
    assert result["ideal"] == {"hit_blocks": 4, "hit_tokens": 7}
    # With room for three, [cx] pushes out the oldest block: the tail [e]; the third request then
    # hits [ab][cd] and [cx] goes for [e]. With room for four nothing has to go.
    assert result["capacities"] == [
        {"capacity_blocks": 3, "hit_blocks": 3, "hit_tokens": 6, "evictions": 2},
        {"capacity_blocks": 4, "hit_blocks": 4, "hit_tokens": 7, "evictions": 0},
    ]


def test_a_prompt_beyond_the_capacity_keeps_its_first_blocks():
    result = reuse(trace_of([[1, 2, 3, 4, 5]] * 2), capacity_blocks=[3])
    assert result["capacities"][0] == {
        "capacity_blocks": 3, "hit_blocks": 3, "hit_tokens": 3, "evictions": 0,
    }  # fmt: skip


def test_outputs_and_unknown_tokens_are_not_counted():
    trace = make_trace(
        prompt_tokens=[10, 10],
        output_tokens=[4, 4],
        # The first names its output too; the second knows only 9 of its 10 tokens.
        segments=[[(0, 9), (1, 1), (2, 4)], [(0, 9)]],
        granularity_tokens=1,
    )
    result = reuse(trace, block_tokens=4)
    assert result["blocks"] == 3 + 2
    assert result["ideal"] == {"hit_blocks": 2, "hit_tokens": 8}


def test_interleaving_takes_equal_times_in_the_order_of_rows():
    rows = [[1, 1], [2, 2], [1, 1]]
    trace = trace_of(rows, [0.0, 5.0, 0.0])
    hits = [
        reuse(trace, capacity_blocks=[2], interleave=interleave)["capacities"][0]["hit_blocks"]
        for interleave in (False, True)
    ]
    assert hits == [0, 2]


def test_blocks_finer_than_the_content_are_counted_and_said():
    trace = make_trace(
        prompt_tokens=[32], output_tokens=[1], segments=[[(0, 32)]], granularity_tokens=16
    )
    result = reuse(trace, block_tokens=4)
    assert result["blocks"] == 8
    assert "finer than what the trace tells apart" in result["notes"][-1]
    assert "note: blocks of 4 tokens" in render(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity_blocks": [0]}, "a capacity of 0 was given, expected 1 or more"),
        ({"block_tokens": 0}, "the block size of 0 was given, expected 1 or more"),
        ({"partial_blocks": "half"}, "got 'half', expected keep or drop"),
        ({"interleave": True}, "1 of 1 requests have no arrival time"),
    ],
)
def test_what_cannot_be_counted_is_said(options, message):
    with pytest.raises(InputError, match=message):
        reuse(trace_of([[1]]), **options)


def test_a_trace_without_content_is_refused():
    with pytest.raises(TraceError, match="says nothing about content"):
        reuse(make_trace(prompt_tokens=[5], output_tokens=[1]))


MOONCAKE_COUNTS = {
    "keep": ((288_500, 182_790, 105_710), (12_847, 32_260, 61_046, 102_290)),
    "drop": ((276_491, 170_899, 105_592), (12_990, 34_193, 62_005, 102_724)),
}


@pytest.mark.parametrize("partial_blocks", ["keep", "drop"])
def test_mooncake_conversation(shared, partial_blocks):
    path = shared("data", "traces", "mooncake", "conversation_trace.jsonl")
    capacities = [1_000, 5_000, 10_000, 50_000]
    result = reuse(
        MOONCAKE.read([path], ReadOptions()),
        partial_blocks=partial_blocks,
        capacity_blocks=capacities,
    )
    counts, hits = MOONCAKE_COUNTS[partial_blocks]
    found = (result["blocks"], result["unique_blocks"], result["ideal"]["hit_blocks"])
    assert result["num_requests"] == 12_031
    assert found == counts
    assert tuple(cache["hit_blocks"] for cache in result["capacities"]) == hits
    if partial_blocks == "keep":
        assert result["ideal"]["hit_tokens"] == 54_098_411
    with path.open("rb") as file:
        rows = [orjson.loads(line) for line in file]
    requests = []
    for row in rows:
        ids, tokens = row["hash_ids"], row["input_length"]
        if partial_blocks == "drop":
            ids = ids[: tokens // 512]
        requests.append(
            [((name,), min(512, tokens - 512 * place)) for place, name in enumerate(ids)]
        )
    assert result["capacities"][1] == lru_block_by_block(requests, 5_000)


def test_weka_agentic(shared):
    folder = shared("data", "traces", "weka-agentic")
    trace = WEKA_AGENTIC.read(sorted(folder.iterdir()), ReadOptions())
    result = reuse(trace, interleave=True, capacity_blocks=[50_000])
    assert (result["blocks"], result["unique_blocks"]) == (19_731_216, 746_991)
    assert result["ideal"]["hit_blocks"] == 18_984_225
    assert result["capacities"][0]["hit_blocks"] == 14_847_385
    assert result["capacities"][0]["evictions"] == 4_833_831


def test_servegen_offline(shared):
    path = shared("data", "traces", "servegen", "offline", "trace_a.head93.jsonl")
    result = reuse(SERVEGEN_OFFLINE.read([path], ReadOptions()))
    assert (result["blocks"], result["prompt_tokens"]) == (1_982, 30_987)
    assert result["ideal"] == {"hit_blocks": 920, "hit_tokens": 14_720}
    assert "0.4750" in render(result)
