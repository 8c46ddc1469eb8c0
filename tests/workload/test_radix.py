"""Compressing token sequences, against an obvious comparison of all pairs."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.rng import stream
from simkv.workload.radix import compress


def shared_by_id(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    shared = 0
    for (id_a, tokens_a), (id_b, tokens_b) in zip(a, b, strict=False):
        if id_a != id_b:
            break
        assert tokens_a == tokens_b
        shared += tokens_a
    return shared


def shared_by_token(a: list[int], b: list[int]) -> int:
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    return shared


# Few different tokens, so that prefixes are shared often; some sequences extend earlier ones.
sequences = st.lists(
    st.tuples(
        st.lists(st.integers(0, 2), max_size=12),
        st.integers(0, 12),
        st.sampled_from(["", "salt"]),
    ),
    max_size=8,
)


@given(sequences)
def test_same_ids_mean_the_same_prefix_for_every_pair(drawn):
    tokens = [row for row, _, _ in drawn]
    cuts = [[cut] for _, cut, _ in drawn]
    roots = [root for _, _, root in drawn]
    rows = compress([np.array(row, dtype=np.int64) for row in tokens], cuts, roots)
    for i, row in enumerate(rows):
        ends = np.cumsum([n for _, n in row]).tolist()
        assert (ends[-1] if ends else 0) == len(tokens[i])
        if 0 < cuts[i][0] < len(tokens[i]):
            assert cuts[i][0] in ends
        assert all(n > 0 for _, n in row)
        for j in range(i):
            expected = shared_by_token(tokens[i], tokens[j]) if roots[i] == roots[j] else 0
            assert shared_by_id(row, rows[j]) == expected
            common = {id_ for id_, _ in row} & {id_ for id_, _ in rows[j]}
            assert sum(n for id_, n in row if id_ in common) == expected
    flat = [id_ for row in rows for id_, _ in row]
    assert list(dict.fromkeys(flat)) == list(range(len(set(flat))))


def test_a_split_that_comes_later_shows_in_earlier_sequences():
    first, second = np.array([1, 2, 3, 4]), np.array([1, 2, 9])
    assert compress([first, second], [[], []]) == [[(0, 2), (1, 2)], [(0, 2), (2, 1)]]


def test_prompt_end_is_a_boundary():
    assert compress([np.arange(5)], [[3]]) == [[(0, 3), (1, 2)]]


def test_an_empty_sequence_has_no_segments():
    assert compress([np.arange(0), np.arange(2)], [[], []]) == [[], [(0, 2)]]


@pytest.mark.parametrize("kind", ["many", "conversation"])
def test_it_is_fast_enough_to_run_at_every_load(kind):
    draw = stream(0, "test", kind)
    if kind == "many":
        rows = [np.concatenate([[1] * 50, draw.integers(0, 9, 1950)]) for _ in range(300)]
    else:
        whole = draw.integers(0, 100_000, 100 * 10_000)
        rows = [whole[: 10_000 * (turn + 1)] for turn in range(100)]
    start_s = time.perf_counter()
    segments = compress(rows, [[len(row) - 100] for row in rows])
    assert time.perf_counter() - start_s < 5  # 0.01 s and 0.1 s on an idle core
    assert [sum(n for _, n in row) for row in segments] == [len(row) for row in rows]
