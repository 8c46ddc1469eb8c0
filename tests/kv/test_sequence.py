from hypothesis import given
from hypothesis import strategies as st

from simkv.kv.prefix import Stretch, stretches
from simkv.kv.sequence import cover

SEGMENTS = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50)), max_size=6)


def test_what_segments_leave_open_is_the_sequence_s_own() -> None:
    assert cover([(5, 10)], 16, 0) == [(5, 10), (-1, 6)]
    assert cover([(5, 10)], 16, 7) == [(5, 10), (-8, 6)]
    assert cover([], 3, 2) == [(-3, 3)]


def test_what_segments_have_too_much_is_cut_off() -> None:
    assert cover([(5, 10), (6, 4)], 12, 0) == [(5, 10), (6, 2)]
    assert cover([(5, 10), (6, 4)], 10, 0) == [(5, 10)]
    assert cover([(5, 10)], 0, 0) == []


def test_a_block_belongs_to_the_segment_in_which_it_ends() -> None:
    # Segments of 10, 1, 1 and 9 tokens end at 10, 11, 12 and 21.
    content = [(1, 10), (2, 1), (3, 1), (4, 9)]
    assert stretches(content, 4) == [Stretch(1, 0, 2), Stretch(3, 2, 3), Stretch(4, 3, 5)]
    assert stretches(content, 7) == [Stretch(1, 0, 1), Stretch(4, 1, 3)]
    assert stretches(content, 22) == []
    assert stretches(content, 1) == [
        Stretch(1, 0, 10),
        Stretch(2, 10, 11),
        Stretch(3, 11, 12),
        Stretch(4, 12, 21),
    ]


@given(segments=SEGMENTS, total=st.integers(0, 200), block_tokens=st.integers(1, 40))
def test_content_is_covered_exactly_and_its_blocks_follow_each_other(
    segments: list[tuple[int, int]], total: int, block_tokens: int
) -> None:
    content = cover(segments, total, 0)
    assert sum(tokens for _, tokens in content) == total
    blocks = [
        block
        for stretch in stretches(content, block_tokens)
        for block in range(stretch.first, stretch.end)
    ]
    assert blocks == list(range(total // block_tokens))
