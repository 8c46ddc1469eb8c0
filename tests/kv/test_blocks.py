"""The physical manager by hand: tables, the free queue, windows; its laws find damage."""

from collections.abc import Callable

import pytest

from simkv.errors import InvariantError
from simkv.kv.blocks import Blocks
from simkv.kv.groups import FullAttention, WindowAttention
from simkv.kv.invariants import check_memory
from simkv.kv.sequence import Sequence, cover


def admitted(kv: Blocks, number: int, prompt_tokens: int, segment: int = 1) -> Sequence:
    one = Sequence(
        id=number,
        segments=cover([(segment, prompt_tokens)], prompt_tokens + 100, number),
        num_tokens=prompt_tokens,
        final_tokens=prompt_tokens + 99,
    )
    hit = kv.match(one)
    assert kv.admit(one, prompt_tokens, hit_tokens=hit, full_tokens=0, watermark_ratio=0)
    one.computed_tokens = prompt_tokens
    kv.advance(prompt_tokens)
    return one


def paged(num_blocks: int = 11, window_tokens: int | None = None, half: bool = False) -> Blocks:
    window = WindowAttention(window_tokens=window_tokens or 1, step_tokens=64)
    groups = (FullAttention(), window) if half else (window,)
    return Blocks(
        block_tokens=4,
        num_blocks=num_blocks,
        prefix_caching=True,
        groups=groups if window_tokens else (FullAttention(),),
    )


def test_blocks_are_taken_in_order_and_cached_ones_freed_from_the_deep_end() -> None:
    kv = paged()
    one = admitted(kv, 0, 10)
    assert kv.block_table(one) == [1, 2, 3]
    kv.release(one)
    # 3 has no content to hit and goes to the head; 1 and 2 to the end, the deeper first.
    assert list(kv.pool.free_blocks()) == [3, 4, 5, 6, 7, 8, 9, 10, 2, 1]
    assert kv.pool.queue_digest() == "a651868c254d72d4"


def test_a_whole_prompt_hit_computes_its_last_block_again_in_a_duplicate() -> None:
    kv = paged()
    first, second = admitted(kv, 0, 8), admitted(kv, 1, 8)
    assert (kv.block_table(first), kv.block_table(second)) == ([1, 2], [1, 3])
    assert dict(kv.pool.copies()) == {(0, 1, 0): [1], (0, 1, 1): [2, 3]}
    check_memory(kv, [first, second])


def test_what_slides_out_of_the_window_is_free_and_can_be_hit() -> None:
    kv = paged(window_tokens=5)
    one = admitted(kv, 0, 16)
    one.num_tokens += 1
    assert kv.grow(one, 17)
    # After 16 tokens a window of 5 sees the last 4 of them and itself: blocks 0 to 2 are out.
    assert kv.block_table(one) == [0, 0, 0, 4, 5]
    assert list(kv.pool.free_blocks()) == [6, 7, 8, 9, 10, 3, 2, 1]
    other = admitted(kv, 1, 14)
    assert kv.block_table(other) == [0, 0, 3, 6]
    assert kv.usage().tokens == 4 + 4 + 2  # block 4, the hit block 3, and 2 of block 6


def test_the_shorter_hit_of_two_groups_counts() -> None:
    kv = paged(num_blocks=21, window_tokens=9, half=True)
    one = admitted(kv, 0, 20)
    assert [kv.block_table(one, group) for group in (0, 1)] == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    one.num_tokens += 1
    assert kv.grow(one, 21)  # after 20 tokens a window of 9 has left 3 blocks
    assert kv.block_table(one, 1) == [0, 0, 0, 9, 10, 12]
    assert list(kv.pool.free_blocks()) == [*range(13, 21), 8, 7, 6]
    short = Sequence(id=1, segments=cover([(1, 12)], 20, 1), num_tokens=12, final_tokens=19)
    assert kv.match(short) == 8
    other = admitted(kv, 2, 20, segment=2)  # 10 blocks: evicts blocks 8 and 7 of the window
    assert list(kv.pool.free_blocks()) == [6]
    assert kv.match(short) == 4
    one.computed_tokens += 1
    kv.advance(1)
    check_memory(kv, [one, other])


def damage_refs(kv: Blocks, one: Sequence) -> None:
    kv.pool._refs[1] += 1


def damage_queue(kv: Blocks, one: Sequence) -> None:
    kv.pool._free.popitem()


def damage_index(kv: Blocks, one: Sequence) -> None:
    kv.pool._index.clear()


def damage_cached(kv: Blocks, one: Sequence) -> None:
    kv.pool.num_cached_free += 1


def damage_table(kv: Blocks, one: Sequence) -> None:
    one.table[0].blocks.reverse()


def damage_null(kv: Blocks, one: Sequence) -> None:
    one.table[0].num_null = 1


def damage_tail(kv: Blocks, one: Sequence) -> None:
    kv._tail_slots_twice += 1


def damage_length(kv: Blocks, one: Sequence) -> None:
    one.computed_tokens -= 4


DAMAGE = (
    damage_refs, damage_queue, damage_index, damage_cached, damage_table, damage_null,
    damage_tail, damage_length,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_damage_is_found(damage: Callable[[Blocks, Sequence], None]) -> None:
    kv = paged()
    one = admitted(kv, 0, 14)
    check_memory(kv, [one])
    damage(kv, one)
    with pytest.raises(InvariantError):
        check_memory(kv, [one])
