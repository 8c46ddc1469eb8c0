"""Each law finds the damage that it is about."""

from collections.abc import Callable

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.contiguous import Reservations
from simkv.kv.invariants import check_memory, check_prefixes_closed
from simkv.kv.prefix import Run, stretches
from simkv.kv.sequence import Sequence
from tests.kv.lockstep import Lockstep


def busy_pools() -> Lockstep:
    """Return a trunk of 5 blocks cached, a branch that holds 3 of them and 2 of its own."""
    pools = Lockstep(block_tokens=4, num_blocks=13)
    pools.arrive(0, 0, 20, 1)
    pools.admit(0, -1)
    pools.arrive(0, 12, 9, 1)
    pools.admit(0, -1)
    pools.drop(0)
    pools.check()
    return pools


def runs(pools: Lockstep, *, held: bool) -> list[Run]:
    assert pools.fast.cache is not None
    return [run for run in pools.fast.cache.runs() if bool(run.refs) == held]


def find_a_blank_block(pools: Lockstep) -> None:
    pools.fast._num_blank += 1


def hand_out_too_many(pools: Lockstep) -> None:
    pools.fast._num_blank -= 20


def hold_twice(pools: Lockstep) -> None:
    runs(pools, held=True)[0].refs += 1


def forget_a_reference(pools: Lockstep) -> None:
    runs(pools, held=True)[0].refs -= 1


def queue_a_held_run(pools: Lockstep) -> None:
    assert pools.fast.cache is not None
    pools.fast.cache._append(runs(pools, held=True)[0])


def lose_an_idle_run(pools: Lockstep) -> None:
    assert pools.fast.cache is not None
    pools.fast.cache._unlink(runs(pools, held=False)[0])


def count_a_cached_block_twice(pools: Lockstep) -> None:
    assert pools.fast.cache is not None
    pools.fast.cache.num_idle_blocks += 1
    pools.fast._num_blank -= 1


def leave_a_hole(pools: Lockstep) -> None:
    runs(pools, held=False)[0].lo += 1
    assert pools.fast.cache is not None
    pools.fast.cache.num_idle_blocks -= 1
    pools.fast._num_blank += 1


def age_a_deep_run(pools: Lockstep) -> None:
    lane_runs = runs(pools, held=False)[0].lane.runs
    lane_runs.reverse()


def end_a_lane_too_late(pools: Lockstep) -> None:
    runs(pools, held=False)[0].lane.end += 1


def empty_a_run(pools: Lockstep) -> None:
    run = runs(pools, held=False)[0]
    run.lo = run.hi


def own_a_block_too_much(pools: Lockstep) -> None:
    pools.running[0].table.num_blocks += 1
    pools.fast._num_table_blocks += 1


def register_too_much(pools: Lockstep) -> None:
    sequence = pools.running[0]
    sequence.table.num_blocks += 1
    sequence.table.num_registered += 1
    sequence.capacity_tokens += 4
    sequence.computed_tokens += 4
    pools.fast._num_table_blocks += 1
    pools.fast.advance(4)


def hold_in_the_wrong_order(pools: Lockstep) -> None:
    pools.running[0].table.held.reverse()


def lack_capacity(pools: Lockstep) -> None:
    pools.running[0].capacity_tokens = 8


def compute_too_little_for_the_table(pools: Lockstep) -> None:
    pools.running[0].computed_tokens -= 1
    pools.fast.advance(-1)


def compute_uncounted(pools: Lockstep) -> None:
    pools.fast.advance(1)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (find_a_blank_block, "are not the 12 usable ones"),
        (hand_out_too_many, "the pool has -"),
        (hold_twice, "has 2 references, 1 tables hold it"),
        (forget_a_reference, "are not the 12 usable ones"),
        (queue_a_held_run, "is in the free queue with 1 refs"),
        (lose_an_idle_run, "the free queue has 0 runs, 1 are idle"),
        (count_a_cached_block_twice, "are not the 12 usable ones"),
        (leave_a_hole, "blocks 4 to 5 of segment 1 does not follow older ones of 0 to 3"),
        (age_a_deep_run, "blocks 0 to 3 of segment 1 does not follow older ones of 3 to 5"),
        (end_a_lane_too_late, "end at 5, its lane at 6"),
        (empty_a_run, "are not the 12 usable ones"),
        (own_a_block_too_much, "are not the 12 usable ones"),
        (register_too_much, "holds runs of 5 blocks, 6 of its 7 are registered"),
        (hold_in_the_wrong_order, "after 0 blocks sequence 1 holds the run of blocks 3 to 5"),
        (lack_capacity, "has 8 slots for its 21 computed tokens"),
        (compute_too_little_for_the_table, "leaves 4 slots of 6 blocks of 4 unused"),
        (compute_uncounted, "tails are 3 slots, the accounts say 2"),
    ],
)
def test_damage_is_found(damage: Callable[[Lockstep], None], message: str) -> None:
    pools = busy_pools()
    damage(pools)
    with pytest.raises(InvariantError, match=message):
        check_memory(pools.fast, pools.running)


def test_a_sequence_that_is_not_known_to_hold_memory_is_found() -> None:
    pools = busy_pools()
    with pytest.raises(InvariantError, match="are not the 12 usable ones"):
        check_memory(pools.fast, [])


def test_a_cached_block_without_what_comes_before_it_is_found() -> None:
    pools = busy_pools()
    cache = pools.fast.cache
    assert cache is not None
    check_prefixes_closed(cache, pools.stretches)
    branch = pools.contents[1]
    longer = [(branch[0][0], 16), *branch[1:]]
    with pytest.raises(InvariantError, match="segment 2 begins at block 4 and is cached from 3"):
        check_prefixes_closed(cache, [stretches(longer, 4)])
    with pytest.raises(InvariantError, match="segment 99 before it only to 0"):
        check_prefixes_closed(cache, [stretches([(99, 12), *branch[1:]], 4)])


def reserved() -> tuple[Reservations, list[Sequence]]:
    kv = Reservations(num_slots=100, reserve_tokens=30)
    live = [Sequence(id=n, segments=[], num_tokens=9, final_tokens=9) for n in range(3)]
    for one in live:
        assert kv.admit(one, 9, hit_tokens=0, full_tokens=0, watermark_ratio=0)
    check_memory(kv, live)
    return kv, live


def test_reservations_that_overlap_or_leave_gaps_are_found() -> None:
    kv, live = reserved()
    live[1].table = 29
    with pytest.raises(InvariantError, match="slots 29 to 59 do not follow slot 30"):
        check_memory(kv, live)


def test_holes_that_touch_are_found() -> None:
    kv, live = reserved()
    kv.holes._starts[:], kv.holes._ends[:] = [90, 95], [95, 100]
    with pytest.raises(InvariantError, match="two holes touch at slot 95"):
        check_memory(kv, live)


def test_a_pool_without_cache_has_laws_too() -> None:
    kv = Accounts(block_tokens=4, num_blocks=9, prefix_caching=False)
    one = Sequence(id=0, segments=[(1, 9)], num_tokens=9, final_tokens=9)
    assert kv.admit(one, 9, hit_tokens=0, full_tokens=0, watermark_ratio=0)
    one.computed_tokens = 9
    kv.advance(9)
    check_memory(kv, [one])
    kv._num_blank += 1
    with pytest.raises(InvariantError, match="3 held, 0 cached"):
        check_memory(kv, [one])
