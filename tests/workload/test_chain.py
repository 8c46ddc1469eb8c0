"""Segments against the ids themselves: who shares what with whom, and where runs are cut."""

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.workload.chain import Chains, Segments, as_ids

GRANULARITY = 16

# Prompts as words over a small alphabet: they branch, repeat, extend and end inside each other.
words = st.lists(st.lists(st.integers(0, 2), max_size=8), max_size=12)


def chained(prompts: list[list[int]]) -> list[list[int]]:
    """Name every prefix by one id, as publishers do."""
    known: dict[tuple[int, ...], int] = {}
    return [
        [known.setdefault(tuple(word[: end + 1]), len(known)) for end in range(len(word))]
        for word in prompts
    ]


def compress(rows: list[list[int]], lengths: list[int]) -> Segments:
    chains = Chains(GRANULARITY)
    for ids, tokens in zip(rows, lengths, strict=True):
        chains.add(as_ids(ids), tokens)
    return chains.segments()


def row(segments: Segments, number: int) -> list[tuple[int, int]]:
    part = slice(segments.offset[number], segments.offset[number + 1])
    return list(zip(segments.id[part].tolist(), segments.tokens[part].tolist(), strict=True))


def shared_tokens(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> int:
    shared = 0
    for (left_id, left_tokens), (right_id, right_tokens) in zip(left, right, strict=False):
        if left_id != right_id:
            break
        shared += min(left_tokens, right_tokens)
        if left_tokens != right_tokens:
            break
    return shared


def shared_ids(left: list[int], right: list[int]) -> int:
    shared = 0
    for left_id, right_id in zip(left, right, strict=False):
        if left_id != right_id:
            break
        shared += 1
    return shared


@given(words, st.booleans(), st.data())
def test_segments_say_what_the_ids_say(prompts, are_chained, data):
    rows = chained(prompts) if are_chained else prompts
    # Up to a block past the last id (floor counts), or up to a block short of it (ceil counts).
    lengths = [
        max(0, len(ids) * GRANULARITY + data.draw(st.integers(1 - GRANULARITY, GRANULARITY - 1)))
        for ids in rows
    ]
    segments = compress(rows, lengths)
    covered = [
        min(tokens, len(ids) * GRANULARITY) for tokens, ids in zip(lengths, rows, strict=True)
    ]
    content = [row(segments, number) for number in range(len(rows))]
    assert [sum(tokens for _, tokens in parts) for parts in content] == covered
    for left, left_ids in enumerate(rows):
        for right, right_ids in enumerate(rows):
            expected = min(
                shared_ids(left_ids, right_ids) * GRANULARITY, covered[left], covered[right]
            )
            assert shared_tokens(content[left], content[right]) == expected

    starts = defaultdict(set)
    followers = defaultdict(set)
    for parts, ids in zip(content, rows, strict=True):
        at = 0
        for number, tokens in parts:
            assert tokens > 0
            starts[number].add(at)
            at += tokens
        for end in range(len(ids)):
            followers[tuple(ids[:end])].add(ids[end])
    assert all(len(places) == 1 for places in starts.values())
    # Runs are cut where content parts, and nowhere else.
    for parts, ids in zip(content, rows, strict=True):
        cuts = [end for end in range(1, len(ids)) if len(followers[tuple(ids[:end])]) > 1]
        if ids:
            assert len(parts) == len(cuts) + 1


@given(words)
def test_counts_ids(prompts):
    rows = chained(prompts)
    segments = compress(rows, [len(ids) * GRANULARITY for ids in rows])
    assert segments.num_ids == sum(map(len, rows))
    assert segments.num_unique_ids == len({name for ids in rows for name in ids})
    assert segments.num_unchained_ids == 0


def test_runs_grow_and_are_cut_where_requests_part():
    segments = compress([[1, 2], [1, 2, 3, 4], [1, 2, 3, 9]], [32, 64, 60])
    assert [row(segments, number) for number in range(3)] == [
        [(0, 32)],
        [(0, 48), (1, 16)],
        [(0, 48), (2, 12)],
    ]


def test_an_id_behind_two_prefixes_is_two_contents_and_is_counted():
    segments = compress([[1, 7], [2, 7]], [32, 32])
    assert segments.num_unchained_ids == 1
    assert segments.num_unique_ids == 4
    assert not {name for name, _ in row(segments, 0)} & {name for name, _ in row(segments, 1)}


def test_equal_ids_of_different_spaces_are_different_content():
    chains = Chains(64)
    for space in (0, 1, 0):
        chains.add(as_ids([5, 6]), 128, space=space)
    segments = chains.segments()
    assert segments.id.tolist() == [0, 1, 0]
    assert segments.num_unique_ids == 4


def test_a_long_session_stays_one_segment():
    chains = Chains(64)
    for turn in range(1, 200):
        chains.add(np.arange(turn * 10, dtype=np.int64), turn * 640)
    assert set(chains.segments().id.tolist()) == {0}


def test_nothing_gives_nothing():
    segments = compress([[], []], [5, 0])
    assert segments.offset.tolist() == [0, 0, 0]
    assert len(segments.id) == len(segments.tokens) == 0


def test_ids_of_64_bits_stay_apart():
    big = as_ids([2**64 - 1, 2**64 - 2, 7])
    assert big.dtype == np.int64
    assert all(left != right for left, right in pairwise(big.tolist()))


@pytest.mark.parametrize("values", [[1.5], ["a"], [[1]], 7, [True], [2**70], [-1, 2**63]])
def test_what_is_no_id_is_refused(values):
    with pytest.raises(ValueError, match="whole numbers"):
        as_ids(values)
