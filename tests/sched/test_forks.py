"""Requests forked while they run: who shares, who copies, and when."""

import pytest

from simkv.errors import InvariantError
from simkv.kv.blocks import Blocks
from simkv.sched.request import Status
from tests.sched.driver import Driver


def test_forked_requests_share_their_prompt_and_copy_its_last_block() -> None:
    kv = Blocks(block_tokens=16, num_blocks=101, prefix_caching=True)
    run = Driver(kv=kv)
    parent = run.add(50, 10)
    assert run.step().ops is None
    children = [run.fork(parent, 9) for _ in range(3)]
    assert kv.num_free_blocks == 96
    plan = run.step()
    assert plan.ops is not None
    assert (plan.ops.num_copies, plan.ops.copied_tokens) == (3, 6)
    # The parent writes first, so it leaves the block; the last holder keeps it.
    assert [kv.block_table(one)[3] for one in run.requests] == [5, 6, 7, 4]
    assert [request.id for request, _, _ in plan.entries] == [0, 1, 2, 3]
    run.drain(20)
    assert all(one is not None and one.finish_s is not None for one in children)
    assert kv.num_free_blocks == 100


def test_a_full_batch_takes_no_fork() -> None:
    run = Driver(max_num_seqs=1)
    parent = run.add(50, 10)
    run.step()
    assert run.fork(parent, 5) is None
    run.drain(20)


def test_a_preempted_fork_comes_back_by_the_prefix_cache() -> None:
    # 5 usable blocks: the copies do not fit, so the youngest is preempted and hits 3 blocks later.
    run = Driver(num_blocks=6, block_tokens=16)
    parent = run.add(50, 10)
    run.step()
    for _ in range(2):
        run.fork(parent, 9)
    plan = run.step()
    assert [request.id for request in plan.preempted] == [2]
    run.drain(60)
    assert [one.status for one in run.requests] == [Status.FINISHED] * 3


def test_nothing_is_forked_ahead_of_results() -> None:
    run = Driver(async_scheduling=True)
    parent = run.add(50, 10)
    run.step()
    with pytest.raises(InvariantError, match="planned ahead"):
        run.fork(parent, 5)
