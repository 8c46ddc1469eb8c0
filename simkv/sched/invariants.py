"""Laws of scheduling (3 to 5 of docs/invariants.md), as functions that raise ``InvariantError``.

``check_plan`` and ``check_progress`` look at a step that has just been planned, ``check_requests``
holds at any time between two calls of the scheduler. What a request's memory looks like is the
matter of ``simkv.kv.invariants``.
"""

from collections import Counter
from collections.abc import Iterable

from simkv.errors import InvariantError
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler

_QUEUED = (Status.WAITING, Status.PREEMPTED)


def check_requests(scheduler: Scheduler, arrived: Iterable[Request]) -> None:
    """Check that every request that arrived is in the one place where its status says it is."""
    waiting, running = Counter(scheduler.waiting), Counter(scheduler.running)
    num_live = 0
    for request in arrived:
        in_queue, in_batch = request.status in _QUEUED, request.status is Status.RUNNING
        if (waiting[request], running[request]) != (in_queue, in_batch):
            raise InvariantError(
                f"request {request.id} is {request.status.value}, yet {waiting[request]} times in "
                f"the queue and {running[request]} times in the batch"
            )
        num_live += in_queue or in_batch
        _check_request(scheduler, request)
    if num_live != scheduler.num_unfinished:
        raise InvariantError(
            f"{scheduler.num_unfinished} requests are unfinished, {num_live} of them have arrived"
        )
    if len(scheduler.running) > scheduler.policy.max_num_seqs:
        raise InvariantError(
            f"{len(scheduler.running)} requests run, {scheduler.policy.max_num_seqs} may"
        )


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    """Check that a plan is within the budget, of running requests, each once and going on."""
    num_tokens = 0
    for request, new, before in plan.entries:
        if request.status is not Status.RUNNING or new < 1:
            raise InvariantError(f"request {request.id}, {request.status.value}, gets {new} tokens")
        if before + new != request.computed_tokens:
            raise InvariantError(
                f"request {request.id} has computed {request.computed_tokens} tokens after {new} "
                f"on top of {before}"
            )
        num_tokens += new
    if num_tokens > scheduler.policy.max_num_batched_tokens:
        raise InvariantError(
            f"{num_tokens} tokens are planned, {scheduler.policy.max_num_batched_tokens} may be"
        )
    planned = Counter(request for request, _, _ in plan.entries)
    if planned.total() != len(planned):
        raise InvariantError(f"a request is planned {max(planned.values())} times in one step")
    if plan.work.num_tokens != num_tokens:
        raise InvariantError(f"{num_tokens} tokens are planned, {plan.work.num_tokens} are priced")
    for request in (*plan.new, *plan.resumed):
        if request not in planned or plan.preempted:
            raise InvariantError(f"request {request.id} is admitted and not planned, or too late")


def check_progress(scheduler: Scheduler, plan: StepPlan) -> None:
    """Check that a step does something while there is something to do.

    Beside a step under way, the next may be empty: its requests wait for their last token.
    """
    if isinstance(scheduler, AsyncScheduler) and scheduler.num_open_plans > 1:
        return
    if not plan.entries and not plan.preempted and scheduler.num_unfinished:
        raise InvariantError(
            f"nothing is planned although {len(scheduler.running)} requests run and "
            f"{len(scheduler.waiting)} wait"
        )


def _check_request(scheduler: Scheduler, request: Request) -> None:
    """Check a request's own counts: what it knows, has computed and holds."""
    num_sampled = request.num_tokens - request.prompt_tokens
    if not 0 <= num_sampled <= _num_wanted(request):
        raise InvariantError(
            f"request {request.id} has {num_sampled} of {request.output_tokens} output tokens"
        )
    if request.status is Status.RUNNING:
        num_tokens = request.num_tokens + request.num_placeholders
        if not 0 <= request.computed_tokens <= num_tokens:
            raise InvariantError(
                f"request {request.id} has computed {request.computed_tokens} of {num_tokens} "
                "tokens"
            )
    elif request.capacity_tokens:
        raise InvariantError(
            f"request {request.id} is {request.status.value} and holds {request.capacity_tokens} "
            "slots"
        )
    if request.status is Status.FINISHED:
        _check_end(scheduler, request, num_sampled)


def _num_wanted(request: Request) -> int:
    """Return how many tokens it samples: one where no output is asked for, after its prefill."""
    return max(request.output_tokens, 1)


def _check_end(scheduler: Scheduler, request: Request, num_sampled: int) -> None:
    full = num_sampled == _num_wanted(request) or request.num_tokens >= scheduler.max_model_len
    if not full:
        raise InvariantError(
            f"request {request.id} ended with {num_sampled} of {request.output_tokens} tokens"
        )
    times = (
        request.arrival_s,
        request.first_scheduled_s,
        request.first_token_s,
        request.finish_s,
    )
    known = [time_s for time_s in times if time_s is not None]
    if len(known) < len(times) or known != sorted(known):
        raise InvariantError(
            f"request {request.id} arrived, was scheduled, had its first and its last token at "
            f"{times}"
        )
