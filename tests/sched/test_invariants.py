"""Each law of scheduling finds the damage that it is about."""

from collections.abc import Callable

import pytest

from simkv.errors import InvariantError
from simkv.sched.invariants import check_plan, check_progress, check_requests
from simkv.sched.plan import StepPlan
from simkv.sched.request import Status
from tests.sched.driver import Driver


def busy() -> Driver:
    """Return requests 0, 1 and 3 running, 2 finished and 4 waiting."""
    run = Driver(max_num_seqs=3)
    for output_tokens in (9, 9, 1):
        run.add(20, output_tokens)
    run.step()
    for _ in range(2):
        run.add(20, 9)
    run.step()
    check_requests(run.scheduler, run.requests)
    return run


def lose_a_waiting_request(run: Driver) -> None:
    run.scheduler.waiting.pop()


def run_twice(run: Driver) -> None:
    run.scheduler.running.append(run.requests[0])


def finish_while_running(run: Driver) -> None:
    run.requests[0].status = Status.FINISHED


def forget_that_one_arrived(run: Driver) -> None:
    run.requests.pop(0)


def sample_too_much(run: Driver) -> None:
    run.requests[0].num_tokens = 30


def compute_the_unknown(run: Driver) -> None:
    run.requests[0].computed_tokens = 23


def hold_memory_while_waiting(run: Driver) -> None:
    run.requests[4].capacity_tokens = 16


def end_too_early(run: Driver) -> None:
    run.requests[2].output_tokens = 2


def end_before_the_first_token(run: Driver) -> None:
    run.requests[2].first_token_s = 7.0


def end_without_a_first_token(run: Driver) -> None:
    run.requests[2].first_token_s = None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lose_a_waiting_request, "request 4 is waiting, yet 0 times in the queue and 0 times"),
        (run_twice, "request 0 is running, yet 0 times in the queue and 2 times in the batch"),
        (finish_while_running, "request 0 is finished, yet 0 times in the queue and 1 times"),
        (forget_that_one_arrived, "4 requests are unfinished, 3 of them have arrived"),
        (sample_too_much, "request 0 has 10 of 9 output tokens"),
        (compute_the_unknown, "request 0 has computed 23 of 22 tokens"),
        (hold_memory_while_waiting, "request 4 is waiting and holds 16 slots"),
        (end_too_early, "request 2 ended with 1 of 2 tokens"),
        (end_before_the_first_token, r"first and its last token at \(0.0, 0.0, 7.0, 1.0\)"),
        (end_without_a_first_token, r"first and its last token at \(0.0, 0.0, None, 1.0\)"),
    ],
)
def test_damage_is_found(damage: Callable[[Driver], None], message: str) -> None:
    run = busy()
    damage(run)
    with pytest.raises(InvariantError, match=message):
        check_requests(run.scheduler, run.requests)


def test_a_batch_above_its_limit_is_found() -> None:
    run = Driver(max_num_seqs=1)
    run.add(20, 9)
    run.step()
    extra = run.add(20, 9)
    run.scheduler.waiting.pop()
    run.scheduler.running.append(extra)
    extra.status = Status.RUNNING
    with pytest.raises(InvariantError, match="2 requests run, 1 may"):
        check_requests(run.scheduler, run.requests)


def planned() -> tuple[Driver, StepPlan]:
    run = Driver(max_num_batched_tokens=64)
    run.add(40, 9)
    run.step()
    run.add(40, 9)
    plan = run.scheduler.plan(1.0)
    check_plan(run.scheduler, plan)
    return run, plan


def plan_twice(plan: StepPlan) -> None:
    plan.entries.append(plan.entries[0])


def plan_nothing_for_one(plan: StepPlan) -> None:
    request, _, before = plan.entries[0]
    plan.entries[0] = (request, 0, before)


def plan_a_gap(plan: StepPlan) -> None:
    request, new, before = plan.entries[0]
    plan.entries[0] = (request, new, before + 1)


def plan_for_one_that_waits(plan: StepPlan) -> None:
    plan.entries[0][0].status = Status.WAITING


def price_too_little(plan: StepPlan) -> None:
    plan.work.prefills.pop()


def admit_without_an_entry(plan: StepPlan) -> None:
    del plan.entries[1]
    plan.work.prefills.pop()


def admit_after_a_preemption(plan: StepPlan) -> None:
    plan.preempted.append(plan.entries[0][0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (plan_twice, "a request is planned 2 times in one step"),
        (plan_nothing_for_one, "request 0, running, gets 0 tokens"),
        (plan_a_gap, "request 0 has computed 41 tokens after 1 on top of 41"),
        (plan_for_one_that_waits, "request 0, waiting, gets 1 tokens"),
        (price_too_little, "41 tokens are planned, 1 are priced"),
        (admit_without_an_entry, "request 1 is admitted and not planned"),
        (admit_after_a_preemption, "request 1 is admitted and not planned, or too late"),
    ],
)
def test_a_damaged_plan_is_found(damage: Callable[[StepPlan], None], message: str) -> None:
    run, plan = planned()
    damage(plan)
    with pytest.raises(InvariantError, match=message):
        check_plan(run.scheduler, plan)


def test_a_plan_above_the_budget_is_found() -> None:
    _, plan = planned()
    tight = Driver(max_num_batched_tokens=40)
    with pytest.raises(InvariantError, match="41 tokens are planned, 40 may be"):
        check_plan(tight.scheduler, plan)


def test_idling_while_requests_wait_is_found() -> None:
    run = Driver()
    check_progress(run.scheduler, StepPlan())
    run.add(20, 2)
    with pytest.raises(InvariantError, match="nothing is planned although 0 requests run and 1"):
        check_progress(run.scheduler, StepPlan())
