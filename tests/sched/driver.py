"""Steps a scheduler with all laws on, one second a step."""

from typing import Any

from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.invariants import check_memory
from simkv.kv.manager import KVManager
from simkv.kv.sequence import Segments, cover
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.invariants import check_plan, check_progress, check_requests
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler


class Driver:
    """A scheduler, its memory and every request that it was given.

    ``policy`` are the fields of ``VllmV1``. Laws are checked in every step, or in every
    ``check_every``-th.
    """

    def __init__(
        self,
        *,
        num_blocks: int = 1001,
        block_tokens: int = 16,
        max_model_len: int = 8192,
        kv: KVManager | None = None,
        scheduler: type[Scheduler] | None = None,
        check_every: int = 1,
        **policy: Any,
    ) -> None:
        self.kv: KVManager = kv or Accounts(
            block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=True
        )
        chosen = AsyncScheduler if policy.get("async_scheduling") else Scheduler
        self.scheduler = (scheduler or chosen)(
            VllmV1(**policy), self.kv, max_model_len=max_model_len
        )
        self.requests: list[Request] = []
        self.now_s = 0.0
        self.num_steps = 0
        self.check_every = check_every

    def add(
        self,
        prompt_tokens: int,
        output_tokens: int = 1,
        *,
        segments: Segments | None = None,
        arrival_s: float | None = None,
        priority: int = 0,
    ) -> Request:
        """Let a request arrive now; without segments its content is its own."""
        number, total = len(self.requests), prompt_tokens + output_tokens
        request = Request(
            id=number,
            segments=cover(segments or [], total, number),
            num_tokens=prompt_tokens,
            final_tokens=total - 1,
            arrival_s=self.now_s if arrival_s is None else arrival_s,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
        )
        self.requests.append(request)
        self.scheduler.add(request)
        return request

    def fork(self, parent: Request, output_tokens: int) -> Request | None:
        """Let a request go on from what a running one has computed, if there is room."""
        number, known = len(self.requests), parent.computed_tokens
        prompt_tokens = min(parent.prompt_tokens, known)
        total = known + output_tokens
        child = Request(
            id=number,
            segments=cover(cover(parent.segments, known, 0), total, number),
            num_tokens=known + 1,
            final_tokens=total - 1,
            arrival_s=self.now_s,
            prompt_tokens=prompt_tokens,
            output_tokens=total - prompt_tokens,
            priority=parent.priority,
        )
        if not self.scheduler.fork(parent, child, self.now_s):
            return None
        self.requests.append(child)
        return child

    def step(self) -> StepPlan:
        """Plan a step, check it, and commit what is due a second later."""
        scheduler = self.scheduler
        if isinstance(scheduler, AsyncScheduler) and not scheduler.wants_plan:
            plan = StepPlan()
            due = scheduler.due(None) if scheduler.num_open_plans else None
        else:
            plan = scheduler.plan(self.now_s)
            self._check(plan)
            due = scheduler.due(plan) if isinstance(scheduler, AsyncScheduler) else plan
        self.now_s += 1
        if due is not None:
            scheduler.commit(due, StepResult(end_s=self.now_s))
        if self.num_steps % self.check_every == 0:
            check_requests(scheduler, self.requests)
        self.num_steps += 1
        return plan

    def _check(self, plan: StepPlan) -> None:
        """Check all laws of a step that was just planned."""
        if self.num_steps % self.check_every:
            return
        check_plan(self.scheduler, plan)
        check_progress(self.scheduler, plan)
        check_requests(self.scheduler, self.requests)
        if isinstance(self.kv, Accounts | Blocks):
            check_memory(self.kv, self.scheduler.running)

    def entries(self) -> list[tuple[int, int, int]]:
        """Do a step; return the id, the new and the earlier tokens of each entry."""
        return [(request.id, new, before) for request, new, before in self.step().entries]

    def drain(self, max_steps: int) -> None:
        """Step until every request has ended, and check that each has."""
        for _ in range(max_steps):
            if not self.scheduler.num_unfinished:
                break
            self.step()
        ended = (Status.FINISHED, Status.ABORTED)
        assert [one.id for one in self.requests if one.status not in ended] == []
        check_requests(self.scheduler, self.requests)
