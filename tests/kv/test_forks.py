"""Forks worked out by hand, for both managers of paged memory and for contiguous memory."""

from collections.abc import Callable

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.contiguous import Reservations
from simkv.kv.groups import FullAttention, WindowAttention
from simkv.kv.invariants import check_memory
from simkv.kv.manager import KVManager
from simkv.kv.ops import MemoryOps
from simkv.kv.sequence import Sequence, cover

Paged = Callable[..., Accounts | Blocks]
PAGED = pytest.mark.parametrize("make", [Accounts, Blocks])
CACHING = pytest.mark.parametrize("caching", [False, True])


def sequence(number: int, prompt_tokens: int, total_tokens: int) -> Sequence:
    return Sequence(
        id=number,
        segments=cover([(1, prompt_tokens)], total_tokens, number),
        num_tokens=prompt_tokens,
        final_tokens=total_tokens - 1,
    )


def compute(kv: KVManager, one: Sequence, target_tokens: int) -> bool:
    """Compute up to a number of tokens, one by one, as a decoding sequence does."""
    while one.computed_tokens < target_tokens:
        one.num_tokens = max(one.num_tokens, one.computed_tokens + 1)
        if not kv.grow(one, one.computed_tokens + 1):
            return False
        one.computed_tokens += 1
        kv.advance(1)
    return True


def prefix(kv: KVManager, prompt_tokens: int, total_tokens: int) -> Sequence:
    first = sequence(0, prompt_tokens, total_tokens)
    assert kv.admit(first, prompt_tokens, hit_tokens=0, full_tokens=0, watermark_ratio=0)
    first.computed_tokens = prompt_tokens
    kv.advance(prompt_tokens)
    return first


def beams(kv: KVManager, prompt_tokens: int, own_tokens: int, num_beams: int) -> list[Sequence]:
    """Compute a prefix once, fork it, and let every beam go on, one token each in turn."""
    total = prompt_tokens + own_tokens + 1
    found = [prefix(kv, prompt_tokens, total)]
    for number in range(1, num_beams):
        child = sequence(number, prompt_tokens, total)
        child.computed_tokens = prompt_tokens
        assert kv.fork(found[0], child)
        found.append(child)
        check_memory(kv, found)
    for step in range(own_tokens):
        for one in found:
            assert compute(kv, one, prompt_tokens + step + 1)
            check_memory(kv, found)
    return found


@PAGED
@CACHING
def test_four_beams_over_full_blocks_copy_nothing(make: Paged, caching: bool) -> None:
    kv = make(block_tokens=16, num_blocks=101, prefix_caching=caching)
    held = beams(kv, 48, 10, 4)
    usage = kv.usage()
    assert 100 - kv.num_free_blocks == 7  # instead of 16
    assert (usage.tokens, usage.tail) == (48 + 4 * 10, 4 * 6)
    assert (usage.logical_tokens, usage.blocks_saved) == (4 * 58, 9)
    assert kv.take_ops() == MemoryOps()
    if isinstance(kv, Blocks):
        assert [kv.block_table(one) for one in held] == [[1, 2, 3, own] for own in (4, 5, 6, 7)]


@PAGED
@CACHING
def test_a_long_prefix_is_kept_once(make: Paged, caching: bool) -> None:
    kv = make(block_tokens=16, num_blocks=101, prefix_caching=caching)
    beams(kv, 1024, 64, 4)
    assert (100 - kv.num_free_blocks) * 16 == 1280  # 4,352 without sharing


@PAGED
@CACHING
def test_a_partial_block_is_copied_for_all_but_its_last_holder(make: Paged, caching: bool) -> None:
    kv = make(block_tokens=16, num_blocks=101, prefix_caching=caching)
    held = beams(kv, 50, 1, 4)
    ops = kv.take_ops()
    assert (ops.num_copies, ops.copied_tokens) == (3, 3 * 2)
    assert kv.take_ops().num_copies == 0
    assert 100 - kv.num_free_blocks == 3 + 4
    assert (kv.usage().tokens, kv.usage().tail) == (48 + 4 * 3, 4 * 13)
    if isinstance(kv, Blocks):
        assert [kv.block_table(one)[3] for one in held] == [5, 6, 7, 4]
        assert ops.copies == [(4, 5), (4, 6), (4, 7)]
    for one in held:
        kv.release(one)
    assert (kv.num_free_blocks, kv.usage().tail) == (100, 0)


@PAGED
@CACHING
def test_a_fork_takes_nothing_until_it_writes(make: Paged, caching: bool) -> None:
    kv = make(block_tokens=16, num_blocks=101, prefix_caching=caching)
    parent, child = prefix(kv, 50, 60), sequence(1, 50, 60)
    before = kv.usage()
    child.computed_tokens = 50
    assert kv.fork(parent, child)
    assert kv.num_free_blocks == 96
    assert kv.usage() == before._replace(logical_tokens=100, blocks_saved=4)
    kv.release(parent)
    parent.computed_tokens = 0
    assert kv.usage() == before
    assert compute(kv, child, 51)
    assert kv.take_ops().num_copies == 0  # it is the last holder
    check_memory(kv, [child])


@PAGED
@CACHING
def test_a_copy_needs_a_block_and_changes_nothing_without(make: Paged, caching: bool) -> None:
    kv = make(block_tokens=16, num_blocks=5, prefix_caching=caching)
    parent, child = prefix(kv, 50, 60), sequence(1, 50, 60)
    child.computed_tokens = 50
    assert kv.fork(parent, child)
    before = kv.usage()
    assert not compute(kv, child, 51)
    assert (kv.usage(), kv.take_ops()) == (before, MemoryOps())
    kv.release(child)
    child.computed_tokens = 0
    assert compute(kv, parent, 51)


def test_every_group_forks_its_own_table() -> None:
    window = WindowAttention(window_tokens=20, step_tokens=64)
    kv = Blocks(
        block_tokens=16, num_blocks=101, prefix_caching=True, groups=(FullAttention(), window)
    )
    held = beams(kv, 50, 30, 3)
    assert kv.take_ops().num_copies == 2 * 2
    for one in held:  # 80 tokens: 5 blocks, of which the window of 20 sees 2
        assert [len(set(kv.block_table(one, group)) - {0}) for group in (0, 1)] == [5, 2]


def test_contiguous_memory_copies_the_whole_prefix() -> None:
    kv = Reservations(num_slots=300, reserve_tokens=100)
    parent, child = prefix(kv, 50, 60), sequence(1, 50, 60)
    child.computed_tokens = 50
    assert kv.fork(parent, child)
    ops = kv.take_ops()
    assert (ops.num_copies, ops.copied_tokens) == (1, 50)
    check_memory(kv, [parent, child])
    third, fourth = sequence(2, 50, 60), sequence(3, 50, 60)
    third.computed_tokens = fourth.computed_tokens = 50
    assert kv.fork(parent, third)
    assert not kv.fork(parent, fourth)
    assert kv.take_ops().num_copies == 1


@PAGED
def test_writing_unasked_to_a_shared_block_is_noticed(make: Paged) -> None:
    kv = make(block_tokens=16, num_blocks=101, prefix_caching=True)
    parent, child = prefix(kv, 50, 60), sequence(1, 50, 60)
    child.computed_tokens = 50
    kv.fork(parent, child)
    parent.capacity_tokens = 64
    with pytest.raises(InvariantError, match="may write to a block that it shares"):
        check_memory(kv, [parent, child])
