"""Steps a scheduler with all laws on, one second a step."""

from typing import Any

from simkv.kv.accounts import Accounts
from simkv.kv.invariants import check_memory
from simkv.kv.manager import KVManager
from simkv.kv.sequence import Segments, cover
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
        scheduler: type[Scheduler] = Scheduler,
        check_every: int = 1,
        **policy: Any,
    ) -> None:
        self.kv: KVManager = kv or Accounts(
            block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=True
        )
        self.scheduler = scheduler(VllmV1(**policy), self.kv, max_model_len=max_model_len)
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

    def step(self) -> StepPlan:
        """Plan a step, check it, and commit it a second later."""
        plan = self.scheduler.plan(self.now_s)
        checked = self.num_steps % self.check_every == 0
        if checked:
            check_plan(self.scheduler, plan)
            check_progress(self.scheduler, plan)
            check_requests(self.scheduler, self.requests)
            if isinstance(self.kv, Accounts):
                check_memory(self.kv, self.scheduler.running)
        self.now_s += 1
        self.scheduler.commit(plan, StepResult(end_s=self.now_s))
        if checked:
            check_requests(self.scheduler, self.requests)
        self.num_steps += 1
        return plan

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
