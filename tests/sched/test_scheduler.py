"""Each rule of a step by hand: entries are (request, new tokens, tokens before)."""

import pytest

from simkv.errors import InvariantError
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Status
from tests.sched.driver import Driver


def test_a_prompt_in_one_step_then_a_token_a_step() -> None:
    run = Driver()
    one = run.add(100, 4)
    assert [run.entries() for _ in range(4)] == [
        [(0, 100, 0)],
        [(0, 1, 100)],
        [(0, 1, 101)],
        [(0, 1, 102)],
    ]
    assert one.status is Status.FINISHED
    assert (one.first_scheduled_s, one.first_token_s, one.finish_s) == (0, 1, 4)
    assert run.entries() == []
    # The 104th token is never computed, and 103 tokens fill 6 blocks of 16.
    assert run.kv.num_stored == 6


def test_a_prompt_is_split_by_the_budget_and_decodes_go_first() -> None:
    run = Driver(max_num_batched_tokens=64)
    run.add(40, 9)
    assert run.entries() == [(0, 40, 0)]
    run.add(150, 2)
    run.add(10, 2)
    assert run.entries() == [(0, 1, 40), (1, 63, 0)]
    assert run.entries() == [(0, 1, 41), (1, 63, 63)]
    assert run.entries() == [(0, 1, 42), (1, 24, 126), (2, 10, 0)]
    assert run.entries() == [(0, 1, 43), (1, 1, 150), (2, 1, 10)]


def test_running_requests_beyond_the_budget_wait_for_a_step() -> None:
    run = Driver(max_num_batched_tokens=2)
    for _ in range(3):
        run.add(1, 9)
    assert run.entries() == [(0, 1, 0), (1, 1, 0)]
    assert run.entries() == [(0, 1, 1), (1, 1, 1)]
    run.drain(30)


def test_work_splits_prefills_from_decodes() -> None:
    run = Driver(max_num_batched_tokens=64)
    run.add(40, 9)
    run.step()
    run.add(150, 2)
    work = run.step().work
    assert work.prefills == [(63, 0)]
    assert (work.num_decodes, work.decode_context_tokens) == (1, 41)
    assert (work.max_decode_context_tokens, work.num_sampled, work.num_tokens) == (41, 1, 64)
    assert run.step().work.num_sampled == 1  # the second chunk samples nothing either
    assert run.step().work.num_sampled == 2


def test_only_max_num_seqs_run_at_once() -> None:
    run = Driver(max_num_seqs=2)
    for _ in range(3):
        run.add(10, 2)
    assert [number for number, _, _ in run.entries()] == [0, 1]
    assert [number for number, _, _ in run.entries()] == [0, 1]
    assert [number for number, _, _ in run.entries()] == [2]


def test_a_request_ends_at_the_longest_length_of_the_model() -> None:
    run = Driver(max_model_len=20)
    one = run.add(18, 9)
    run.drain(9)
    assert (one.num_tokens, one.finish_s) == (20, 2)


def test_a_request_that_ends_with_its_prompt_needs_one_step() -> None:
    run = Driver()
    one = run.add(16, 1)
    run.drain(1)
    assert one.first_token_s == one.finish_s == 1


def test_the_threshold_splits_long_prompts_unless_one_is_alone() -> None:
    run = Driver(long_prefill_token_threshold=30, max_num_batched_tokens=100)
    run.add(250, 2)
    assert run.entries() == [(0, 100, 0)]
    run.add(90, 2)
    run.add(20, 2)
    assert run.entries() == [(0, 30, 100), (1, 30, 0), (2, 20, 0)]
    assert run.entries() == [(0, 30, 130), (1, 30, 30), (2, 1, 20)]


def test_the_adaptive_threshold_is_an_equal_share_of_the_budget() -> None:
    run = Driver(
        long_prefill_token_threshold=30, long_prefill_adaptive=True, max_num_batched_tokens=100
    )
    run.add(250, 2)
    run.add(90, 2)
    assert run.entries() == [(0, 50, 0), (1, 50, 0)]
    run.add(90, 2)
    run.add(90, 2)
    assert run.entries() == [(0, 30, 50), (1, 30, 50), (2, 30, 0), (3, 10, 0)]  # 100 // 4 < 30


def test_without_chunks_a_prompt_that_does_not_fit_blocks_those_behind_it() -> None:
    run = Driver(chunked_prefill=False, max_num_batched_tokens=100, max_model_len=100)
    for prompt_tokens in (60, 50, 10):
        run.add(prompt_tokens, 2)
    assert run.entries() == [(0, 60, 0)]
    assert run.entries() == [(0, 1, 60), (1, 50, 0), (2, 10, 0)]


def test_a_blocked_head_blocks_all_behind_it() -> None:
    run = Driver(num_blocks=11)  # 160 slots
    run.add(100, 20)
    run.add(70, 2)  # 5 blocks, 3 are free
    run.add(10, 2)
    assert run.entries() == [(0, 100, 0)]
    assert run.entries() == [(0, 1, 100)]
    assert len(run.scheduler.waiting) == 2


def test_the_full_prompt_must_fit_though_only_a_chunk_is_computed() -> None:
    for check, admitted in ((True, [0]), (False, [0, 1])):
        run = Driver(num_blocks=11, max_num_batched_tokens=116, reserve_full_prompt=check)
        run.add(100, 20)
        run.add(70, 2)
        assert [number for number, _, _ in run.entries()] == admitted


def test_the_check_reserves_nothing_for_the_admissions_behind_it() -> None:
    # 20 usable blocks. The first takes 4 for its chunk and would need 13; the second needs 16.
    run = Driver(num_blocks=21, max_num_batched_tokens=90, long_prefill_token_threshold=60)
    run.add(200, 2)
    run.add(250, 2)
    assert run.entries() == [(0, 60, 0), (1, 30, 0)]


def test_the_watermark_counts_only_while_something_runs() -> None:
    run = Driver(num_blocks=11, watermark_ratio=0.5)  # int(5.5) blocks stay free
    run.add(100, 3)  # 7 of 10 blocks: alone, so nothing is kept free
    run.add(16, 2)
    assert run.entries() == [(0, 100, 0)]
    assert run.entries() == [(0, 1, 100)]
    assert run.entries() == [(0, 1, 101)]
    assert run.entries() == [(1, 16, 0)]


def test_a_second_sample_of_a_prompt_hits_the_blocks_of_the_first_in_the_same_step() -> None:
    run = Driver()
    run.add(40, 2, segments=[(1, 40)])
    run.add(40, 2, segments=[(1, 40)])
    plan = run.step()
    assert [(one.id, new, before) for one, new, before in plan.entries] == [
        (0, 40, 0),
        (1, 8, 32),
    ]
    assert plan.hit_tokens == 32
    assert run.requests[1].hit_tokens == 32


def two_full_pool(policy: str) -> Driver:
    """Return 9 usable blocks with two requests of 4 blocks each that are about to need a fifth."""
    run = Driver(num_blocks=10, policy=policy)
    run.add(63, 30, priority=0)
    run.add(63, 30, priority=1)
    assert run.entries() == [(0, 63, 0), (1, 63, 0)]
    assert run.entries() == [(0, 1, 63), (1, 1, 63)]
    return run


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_where_memory_is_short_the_last_or_least_important_starts_again(policy: str) -> None:
    run = two_full_pool(policy)
    plan = run.step()
    assert [(one.id, new, before) for one, new, before in plan.entries] == [(0, 1, 64)]
    assert [one.id for one in plan.preempted] == [1]
    last = run.requests[1]
    assert (last.status, last.computed_tokens, last.lost_tokens) == (Status.PREEMPTED, 0, 64)
    # It knows 65 tokens now and would need a fifth block for the full-prompt check.
    assert run.entries() == [(0, 1, 65)]
    run.drain(99)
    # Of its 4 blocks one was evicted by the other's sixth; 3 were hit again.
    assert (last.num_preemptions, last.recomputed_tokens) == (1, 16)
    assert last.finish_s is not None


def test_nothing_is_admitted_in_a_step_with_a_preemption() -> None:
    run = two_full_pool("fcfs")
    run.add(1, 1)
    plan = run.step()
    assert (len(plan.preempted), plan.new) == (1, [])
    assert list(run.scheduler.waiting) == [run.requests[1], run.requests[2]]


def test_by_priority_an_entry_of_this_step_is_dropped_and_its_tokens_return() -> None:
    # 8 usable blocks, and the first in the batch is the least important.
    run = Driver(
        num_blocks=9, policy="priority", max_num_batched_tokens=30, reserve_full_prompt=False
    )
    run.add(56, 9, priority=9)
    assert [run.entries(), run.entries()] == [[(0, 30, 0)], [(0, 26, 30)]]
    run.add(15, 9, priority=0)
    run.add(200, 9, priority=1)
    assert run.entries() == [(0, 1, 56), (1, 15, 0), (2, 14, 0)]
    assert run.entries() == [(0, 1, 57), (1, 1, 15), (2, 28, 14)]  # 4 + 1 + 3 blocks
    # Request 0 is planned, then 1 needs a block: 0 goes, and 29 tokens are left for 2.
    assert run.entries() == [(1, 1, 16), (2, 29, 42)]
    assert run.requests[0].status is Status.PREEMPTED


def test_by_priority_the_least_important_goes_itself_and_ends_the_pass() -> None:
    run = Driver(num_blocks=10, policy="priority")
    run.add(63, 30, priority=9)
    run.step()
    run.add(79, 30, priority=0)
    assert run.entries() == [(0, 1, 63), (1, 79, 0)]  # 4 + 5 blocks
    assert run.entries() == []  # though request 1 would have found room
    assert run.entries() == [(1, 1, 79)]


def test_among_equals_by_priority_the_first_in_the_batch_is_the_victim() -> None:
    run = Driver(num_blocks=10, policy="priority")
    run.add(63, 30)
    run.add(63, 30)
    run.step()
    run.step()
    plan = run.step()
    # Request 0 needs a fifth block and takes it; then 1 does, and of two equals 0 goes.
    assert [one.id for one in plan.preempted] == [0]
    assert [one.id for one, _, _ in plan.entries] == [1]


def test_a_request_that_runs_out_of_memory_alone_preempts_itself() -> None:
    run = Driver(num_blocks=4)
    run.add(48, 30)
    run.step()
    plan = run.scheduler.plan(1.0)
    assert (plan.entries, [one.id for one in plan.preempted]) == ([], [0])


def test_by_priority_the_queue_is_in_order_of_priority() -> None:
    run = Driver(policy="priority", max_num_seqs=1)
    for priority in (2, 0, 1):
        run.add(10, 1, priority=priority)
    assert [run.entries()[0][0] for _ in range(3)] == [1, 2, 0]


def test_an_aborted_request_leaves_the_queue_or_the_batch_with_its_memory() -> None:
    run = Driver(max_num_seqs=1)
    one, two = run.add(40, 9), run.add(40, 9)
    run.step()
    for each in (one, two):
        run.scheduler.abort(each)
        assert each.status is Status.ABORTED
    assert run.scheduler.num_unfinished == 0
    assert run.kv.num_free_blocks == 1000
    with pytest.raises(InvariantError, match="cannot go from"):
        one.move(Status.RUNNING)


def test_a_plan_must_be_committed_before_the_next_and_before_an_abort() -> None:
    run = Driver()
    one = run.add(40, 9)
    plan = run.scheduler.plan(0.0)
    with pytest.raises(InvariantError, match="the plan before this one has not been committed"):
        run.scheduler.plan(0.0)
    with pytest.raises(InvariantError, match="request 0 cannot be aborted while a plan is open"):
        run.scheduler.abort(one)
    run.scheduler.commit(plan, StepResult(end_s=1.0))
    with pytest.raises(InvariantError, match="a plan is committed that is not open"):
        run.scheduler.commit(plan, StepResult(end_s=2.0))
    run.scheduler.abort(one)


def test_an_empty_plan_may_be_dropped() -> None:
    run = Driver()
    assert run.scheduler.plan(0.0).entries == []
    assert run.scheduler.plan(1.0).entries == []
    assert run.scheduler.commit(StepPlan(), StepResult(end_s=1.0)) == []


@pytest.mark.parametrize("num_steps", [0, 2])
def test_no_more_steps_are_done_than_planned(num_steps: int) -> None:
    run = Driver()
    run.add(40, 9)
    plan = run.scheduler.plan(0.0)
    with pytest.raises(InvariantError, match=f"{num_steps} of 1 planned steps were done"):
        run.scheduler.commit(plan, StepResult(end_s=1.0, num_steps=num_steps))
