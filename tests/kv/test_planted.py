"""Errors planted in the accounts, one at a time: the lockstep with the reference finds each."""

from collections.abc import Callable

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.prefix import Holding, Lane, PrefixCache, Run, Stretch
from simkv.kv.sequence import Sequence
from simkv.rng import stream
from tests.kv.lockstep import twins, walk

MOST_WALKS = 40
FOUND = (AssertionError, InvariantError, AttributeError, IndexError, KeyError, ValueError)


def find_newest_copy(lane: Lane, block: int, stop: int) -> tuple[Run, int]:
    run = next(run for run in reversed(lane.runs) if run.lo <= block < run.hi)
    return run, min(run.hi, stop)


def run_over_the_cut(lane: Lane, block: int, stop: int) -> tuple[Run, int]:
    run = next(run for run in lane.runs if run.lo <= block < run.hi)
    return run, stop


def match_whole_prompt(accounts: Accounts, sequence: Sequence) -> int:
    cache, size = accounts.cache, accounts.block_tokens
    assert cache is not None
    return cache.match(accounts._table(sequence).content, sequence.num_tokens // size) * size


def hits_cost_nothing(cache: PrefixCache, content: list[Stretch], hit: int) -> int:
    return 0


def release_shallow_first(cache: PrefixCache, held: Holding) -> None:
    release(cache, list(reversed(held)))


def release_forgets_cuts(cache: PrefixCache, held: Holding) -> None:
    release(cache, [(run, run.lo) for run, _ in held])


def evict_newest(cache: PrefixCache, num_blocks: int) -> None:
    runs = list(cache.idle_runs())
    for run in runs:
        cache._unlink(run)
    for run in reversed(runs):
        cache._append(run)
    evict(cache, num_blocks)


def evict_leaves_lane_end(cache: PrefixCache, num_blocks: int) -> None:
    ends = {run.lane: run.lane.end for run in cache.runs()}
    evict(cache, num_blocks)
    for lane, end in ends.items():
        lane.end = end


def cut_links_shallow_first(cache: PrefixCache, run: Run, block: int) -> Run:
    older = run.older
    shallow = cut(cache, run, block)
    if not run.refs and older is not None:
        cache._unlink(shallow)
        cache._link(shallow, after=older)
    return shallow


def register_always_grows(
    cache: PrefixCache, stretch: Stretch, lo: int, hi: int, held: Holding
) -> None:
    last = held[-1][0] if held else None
    if last is not None and last.lane.segment == stretch.segment and last.hi == lo:
        last.hi = hi
        last.lane.end = max(last.lane.end, hi)
        cache.num_stored += hi - lo
    else:
        register(cache, stretch, lo, hi, held)


def register_in_front(
    cache: PrefixCache, stretch: Stretch, lo: int, hi: int, held: Holding
) -> None:
    register(cache, stretch, lo, hi, held)
    runs = held[-1][0].lane.runs
    runs.insert(0, runs.pop(runs.index(held[-1][0])))


release, evict, register = PrefixCache.release, PrefixCache.evict, PrefixCache.register
cut = PrefixCache._cut

ERRORS: list[tuple[type, str, Callable[..., object]]] = [
    (Lane, "first_copy", find_newest_copy),
    (Lane, "first_copy", run_over_the_cut),
    (Accounts, "match", match_whole_prompt),
    (PrefixCache, "count_idle", hits_cost_nothing),
    (PrefixCache, "release", release_shallow_first),
    (PrefixCache, "release", release_forgets_cuts),
    (PrefixCache, "evict", evict_newest),
    (PrefixCache, "evict", evict_leaves_lane_end),
    (PrefixCache, "_cut", cut_links_shallow_first),
    (PrefixCache, "register", register_always_grows),
    (PrefixCache, "register", register_in_front),
]


def compare() -> None:
    """Run all stories until one goes another way than the reference."""
    twins()
    for seed in range(MOST_WALKS):
        walk(stream(seed, "walk"), 200)


@pytest.mark.parametrize(
    ("owner", "name", "error"), ERRORS, ids=[error.__name__ for _, _, error in ERRORS]
)
def test_planted_error_is_found(
    owner: type, name: str, error: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, error)
    with pytest.raises(FOUND):
        compare()
