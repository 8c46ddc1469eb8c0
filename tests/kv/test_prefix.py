"""The prefix cache by hand: short stories whose every number can be counted on paper."""

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.prefix import PrefixCache
from simkv.kv.sequence import Segments, Sequence, cover
from tests.kv.lockstep import Lockstep, twins


def sequence(number: int, prompt: Segments, output_tokens: int = 1) -> Sequence:
    prompt_tokens = sum(tokens for _, tokens in prompt)
    total = prompt_tokens + output_tokens
    return Sequence(
        id=number,
        segments=cover(prompt, total, number),
        num_tokens=prompt_tokens,
        final_tokens=total - 1,
    )


def admit(kv: Accounts, new: Sequence, num_tokens: int | None = None) -> int:
    """Admit a sequence with all of its prompt, or so much after the hit; return the hit."""
    hit = kv.match(new)
    target = new.num_tokens if num_tokens is None else hit + num_tokens
    assert kv.admit(new, target, hit_tokens=hit, full_tokens=0, watermark_ratio=0)
    new.computed_tokens = target
    kv.advance(target)
    return hit


def queue(kv: Accounts) -> list[tuple[int, int]]:
    """List the cached blocks nobody holds, the next to be evicted first."""
    assert kv.cache is not None
    return [
        (run.lane.segment, block)
        for run in kv.cache.idle_runs()
        for block in reversed(range(run.lo, run.hi))
    ]


def pool(num_usable: int, block_tokens: int = 4) -> Accounts:
    return Accounts(block_tokens=block_tokens, num_blocks=num_usable + 1, prefix_caching=True)


def test_a_whole_prompt_hit_computes_its_last_block_again() -> None:
    kv = pool(10)
    first = sequence(0, [(1, 8)])
    assert admit(kv, first) == 0
    kv.release(first)
    assert queue(kv) == [(1, 1), (1, 0)]
    second = sequence(1, [(1, 8)])
    assert admit(kv, second) == 4  # (8 - 1) // 4 blocks at most
    assert kv.num_stored == 3  # block 1 is there twice now
    assert queue(kv) == [(1, 1)]
    kv.release(second)
    assert queue(kv) == [(1, 1), (1, 1), (1, 0)]


def test_a_longer_prompt_hits_the_whole_of_a_shorter_one() -> None:
    kv = pool(10)
    admit(kv, sequence(0, [(1, 8)]))
    assert kv.match(sequence(1, [(1, 8), (2, 1)])) == 8
    assert kv.match(sequence(2, [(1, 7), (3, 5)])) == 4  # parts in the second block
    assert kv.match(sequence(3, [(1, 3), (4, 9)])) == 0


def test_a_request_hits_what_is_planned_in_the_same_step() -> None:
    kv = pool(10)
    admit(kv, sequence(0, [(1, 12)]), 9)
    assert kv.match(sequence(1, [(1, 12)])) == 8  # two full blocks of the chunk of 9


def test_blocks_leave_in_the_order_of_their_release_deep_end_first() -> None:
    kv = pool(6)
    one, two = sequence(0, [(1, 9)]), sequence(1, [(2, 9)])
    admit(kv, one)
    admit(kv, two)
    kv.release(two)
    kv.release(one)
    assert queue(kv) == [(2, 1), (2, 0), (1, 1), (1, 0)]  # the third blocks have no hash
    admit(kv, sequence(2, [(3, 15)]))  # 2 blank ones, then 2 evictions
    assert (kv.num_evicted, queue(kv)) == (2, [(1, 1), (1, 0)])


def test_an_eviction_shortens_the_deep_end_of_a_run_and_a_hit_takes_the_shallow_end() -> None:
    kv = pool(8)
    old = sequence(0, [(1, 32)])
    admit(kv, old)
    kv.release(old)
    admit(kv, sequence(1, [(1, 8), (2, 4)]))  # 2 hit blocks and 1 evicted for the third
    assert queue(kv) == [(1, 6), (1, 5), (1, 4), (1, 3), (1, 2)]
    assert kv.match(sequence(2, [(1, 32)])) == 28
    admit(kv, sequence(3, [(3, 12)]))
    assert queue(kv) == [(1, 3), (1, 2)]
    assert kv.match(sequence(4, [(1, 32)])) == 16


def test_hit_blocks_in_the_free_queue_cost_free_blocks() -> None:
    kv = pool(4)
    old = sequence(0, [(1, 12)])
    admit(kv, old)
    kv.release(old)
    asked = sequence(1, [(1, 12), (2, 8)])  # 3 hit and idle, 2 new, of 4
    assert not kv.admit(asked, 20, hit_tokens=12, full_tokens=0, watermark_ratio=0)
    assert kv.admit(asked, 16, hit_tokens=12, full_tokens=0, watermark_ratio=0)


def test_the_first_registered_copy_is_hit_while_it_lives() -> None:
    kv = pool(8)
    one, two = sequence(0, [(1, 8)]), sequence(1, [(1, 8)])
    admit(kv, one, 4)
    admit(kv, two, 3)  # hits block 0, and waits inside block 1
    for each in (one, two):
        assert kv.grow(each, 8)
        kv.advance(8 - each.computed_tokens)
        each.computed_tokens = 8
    kv.release(one)  # the older copy of block 1 is idle, block 0 still held
    assert queue(kv) == [(1, 1)]
    admit(kv, sequence(2, [(1, 8), (2, 4)]))
    assert queue(kv) == []  # taken, although the younger copy was in use


def test_a_preempted_sequence_hits_its_own_blocks_when_it_comes_back() -> None:
    kv = pool(6)
    one = sequence(0, [(1, 10)], output_tokens=6)
    admit(kv, one)
    one.num_tokens = 13  # three tokens sampled, two of them computed
    assert kv.grow(one, 12)
    kv.advance(2)
    one.computed_tokens = 12
    kv.release(one)
    one.computed_tokens = 0
    assert queue(kv) == [(-1, 2), (1, 1), (1, 0)]  # block 2 ends in the output
    assert admit(kv, one) == 12


def test_a_branch_inside_a_run_cuts_it_and_both_holders_let_go_of_the_right_parts() -> None:
    kv = pool(12)
    trunk = sequence(0, [(1, 20)])
    admit(kv, trunk)
    branch = sequence(1, [(1, 10), (2, 6)])  # shares blocks 0 and 1 of 5
    assert admit(kv, branch) == 8
    assert kv.usage().blocks_saved == 2
    kv.release(trunk)
    assert queue(kv) == [(1, 4), (1, 3), (1, 2)]
    kv.release(branch)
    assert queue(kv) == [(1, 4), (1, 3), (1, 2), (2, 3), (2, 2), (1, 1), (1, 0)]


def test_a_hit_may_start_in_one_copy_and_go_on_inside_another() -> None:
    pools = twins()
    # Blocks 0 to 5 are taken: 0 and 1, what is left of the older copy, then 4 and 5 of the younger.
    # Of that, 7 went for the new block, and 6 will go before the younger 3 and 2.
    assert pools.seen["hit went on inside another copy"] == 1
    assert queue(pools.fast) == [(1, 6), (1, 3), (1, 2)]


def test_a_query_changes_nothing() -> None:
    pools = Lockstep(block_tokens=4, num_blocks=9)
    pools.arrive(0, 0, 20, 1)
    pools.admit(0, -1)
    pools.drop(0)
    pools.arrive(0, -2, 0, 1)
    before = (queue(pools.fast), pools.fast.usage())
    for _ in range(3):
        pools.fast.match(pools.waiting[0])
    assert (queue(pools.fast), pools.fast.usage()) == before


def test_nothing_to_evict_is_a_broken_law() -> None:
    with pytest.raises(InvariantError, match="3 blocks to evict from an empty free queue"):
        PrefixCache().evict(3)
