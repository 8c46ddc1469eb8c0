"""Preemption makes progress: whatever arrives ends, under any pressure on memory."""

from collections import Counter

import pytest

from simkv.kv.accounts import Accounts
from simkv.sched.request import Status
from tests.sched.driver import Driver


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_storm_of_preemptions_ends(policy: str) -> None:
    # 500 requests of 200 + 300 tokens at once, in a pool that holds two of them at their end.
    run = Driver(num_blocks=2 * 32 + 1, policy=policy, reserve_full_prompt=False, check_every=101)
    for _ in range(500):
        run.add(200, 300)
    run.drain(500 * 300)
    assert {one.status for one in run.requests} == {Status.FINISHED}
    assert {one.num_tokens for one in run.requests} == {500}
    preemptions = Counter(one.num_preemptions > 0 for one in run.requests)
    assert preemptions[True] > 250
    assert run.kv.num_free_blocks == 64
    assert run.kv.usage().tokens == 0


def test_the_first_in_the_batch_is_never_preempted_while_others_run() -> None:
    run = Driver(num_blocks=40, reserve_full_prompt=False)
    for _ in range(20):
        run.add(100, 200)
    while run.scheduler.num_unfinished:
        first = run.scheduler.running[0] if run.scheduler.running else None
        plan = run.step()
        assert first not in plan.preempted
        if first is not None:
            assert plan.entries[0][0] is first  # and it always goes on
    assert sum(one.num_preemptions for one in run.requests) > 0


def test_the_most_important_is_never_preempted_while_others_run() -> None:
    run = Driver(num_blocks=40, policy="priority", reserve_full_prompt=False)
    for number in range(20):
        run.add(100, 200, priority=-number)
        for _ in range(10):
            best = min(run.scheduler.running, key=lambda one: one.order, default=None)
            assert best not in run.step().preempted
    run.drain(10_000)
    assert sum(one.num_preemptions for one in run.requests) > 0


def test_a_storm_of_the_smallest_blocks_ends() -> None:
    run = Driver(num_blocks=41, block_tokens=1, reserve_full_prompt=False)
    for number in range(60):
        run.add(1 + number % 20, 20)
    run.drain(60 * 40)


def pair_in_chunks(arrivals_s: tuple[float, float]) -> Driver:
    """Return two requests of 4 to 8 blocks, computed in chunks of 2 blocks, in a pool of 9."""
    run = Driver(
        kv=Accounts(block_tokens=16, num_blocks=10, prefix_caching=False),
        policy="priority",
        reserve_full_prompt=False,
        long_prefill_token_threshold=32,
    )
    for arrival_s in arrivals_s:
        run.add(64, 60, arrival_s=arrival_s)
    return run


def test_by_priority_two_that_arrived_one_after_the_other_both_end() -> None:
    pair_in_chunks((-0.1, 0.0)).drain(1000)


def test_by_priority_two_that_arrived_at_once_can_preempt_each_other_for_ever() -> None:
    # vLLM's rule: of equals the first in the batch goes, and that is the one that is further.
    # Without cache and full-prompt check neither gets its prompt together again. vLLM's requests
    # have clock readings of their own; whoever gives out arrival times has to keep them apart.
    run = pair_in_chunks((0.0, 0.0))
    for _ in range(500):
        run.step()
    before = [one.num_tokens for one in run.requests]
    for _ in range(500):
        run.step()
    assert [one.num_tokens for one in run.requests] == before
    assert min(one.num_preemptions for one in run.requests) > 100
