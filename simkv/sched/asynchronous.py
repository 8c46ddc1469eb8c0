"""Continuous batching one step ahead of its own results, as vLLM's asynchronous scheduling does it.

While the device computes one step the next is planned already, so the token that a request samples
in the first is not known yet: a **placeholder** stands for it. Everything else is decided as in
``scheduler.Scheduler``. The rules are numbered as there (9 of the account of vLLM 0.32).
"""

from collections import deque

from simkv.errors import InvariantError
from simkv.kv.manager import KVManager
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler

_MOST_OPEN = 2  # the step under way and the one behind it


class AsyncScheduler(Scheduler):
    """Plans a step while the one before it is under way.

    An executor plans while ``wants_plan``, and commits the plan that ``due`` names each time.
    Parameters are those of ``Scheduler``.
    """

    def __init__(self, policy: VllmV1, kv: KVManager, *, max_model_len: int) -> None:
        super().__init__(policy, kv, max_model_len=max_model_len)
        self._plans: deque[StepPlan] = deque()
        self._has_ended = False
        self._had_ended = False

    @property
    def wants_plan(self) -> bool:
        """Whether there is anything to plan, or an end to take note of (rule 9.1)."""
        return self.num_unfinished > 0 or self._has_ended

    @property
    def num_open_plans(self) -> int:
        """Plans without a result."""
        return len(self._plans)

    def due(self, planned: StepPlan | None) -> StepPlan | None:
        """Return the plan to commit next, None where another is to be planned first (rule 9.1).

        ``planned`` is what was just planned, None where there was nothing to plan.
        """
        if planned is not None and len(self._plans) == 1:
            more = planned.entries or self.num_unfinished or self._had_ended
            return None if more else planned
        return self._plans[0]

    def abort(self, request: Request) -> None:
        """Drop a request that its client gave up; what is in flight for it comes to nothing."""
        self._end(request, Status.ABORTED)

    def fork(self, parent: Request, child: Request, now_s: float) -> bool:
        """Refuse: ahead of its results a request's tokens are not known, nor what would be shared.

        Raises
        ------
        InvariantError
            Always.
        """
        raise InvariantError("a request cannot be forked while steps are planned ahead")

    def plan(self, now_s: float) -> StepPlan:
        """Decide the next step; it may be the second that has no result yet."""
        if len(self._plans) == _MOST_OPEN:
            raise InvariantError(f"{_MOST_OPEN} plans before this one have not been committed")
        self._had_ended, self._has_ended = self._has_ended, False
        plan = self._decide(now_s)
        for request, num_tokens, _ in plan.entries:
            request.in_flight_tokens += num_tokens
            if request.computed_tokens >= request.num_tokens + request.num_placeholders:
                request.num_placeholders += 1  # its token will come (rule 9.2)
        self._plans.append(plan)
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[Request]:
        """Take the result of the oldest plan; return the requests that finished in it (rule 9.4).

        What comes for a request that has ended is dropped. One that was preempted meanwhile gets
        its token all the same, and may finish by it while it waits (rule 9.5).
        """
        if not self._plans or plan is not self._plans[0]:
            raise InvariantError("a plan is committed that is not the oldest")
        self._plans.popleft()
        finished = []
        for request, num_tokens, computed_before in plan.entries:
            request.in_flight_tokens -= num_tokens
            if request.status in (Status.FINISHED, Status.ABORTED):
                continue
            if computed_before + num_tokens < request.num_tokens:
                continue  # the chunk ends before the prompt does: nothing is sampled
            request.num_tokens += 1
            if request.caught_up_s is None:
                request.catch_up(result.end_s)
            if request.status is Status.RUNNING:
                request.num_placeholders -= 1
                self.kv.register(request, request.computed_tokens - request.num_placeholders)
            num_known = request.num_tokens
            if num_known > request.final_tokens or num_known >= self.max_model_len:
                self._end(request, Status.FINISHED)
                request.finish_s = result.end_s
                finished.append(request)
        return finished

    def _end(self, request: Request, status: Status) -> None:
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.kv.release(request)
        else:
            self.waiting.remove(request)
        request.move(status)
        self._has_ended = True

    def _plan_running(self, plan: StepPlan) -> None:
        """Give running requests their next tokens, placeholders counted (rules 3.2 and 9.3)."""
        running, position = self.running, 0
        while position < len(running) and self._budget > 0:
            request = running[position]
            computed, unknown = request.computed_tokens, request.num_placeholders
            num_tokens = request.num_tokens + unknown - computed
            if 0 < self._threshold < num_tokens:
                num_tokens = self._threshold
            num_tokens = min(num_tokens, self._budget, self.max_model_len - computed - 1)
            is_last_on_its_way = unknown > 0 and computed + 1 - unknown >= request.final_tokens
            if num_tokens <= 0 or is_last_on_its_way:
                position += 1
                continue
            if computed + num_tokens >= request.capacity_tokens:
                position = self._grow(plan, position, request, computed + num_tokens)
                if request.status is Status.PREEMPTED:
                    return
            plan.entries.append((request, num_tokens, computed))
            self._budget -= num_tokens
            position += 1

    def _preempt(self, plan: StepPlan, victim: Request) -> None:
        super()._preempt(plan, victim)
        victim.num_placeholders = 0
