"""Continuous batching as vLLM V1 does it: one replica's running and waiting requests.

``plan`` decides what the next step computes, an executor spends the time, ``commit`` takes the
result. The rules are numbered as in the account of vLLM 0.32 that the step logs in the tests come
with; docs/architecture.md walks through a step.
"""

from simkv.errors import InvariantError
from simkv.kv.manager import KVManager
from simkv.sched.hold import Hold
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request, Status
from simkv.sched.waiting import ArrivalQueue, PriorityQueue, WaitingQueue


class Scheduler:
    """Decides, step by step, which requests compute how many tokens.

    Parameters
    ----------
    policy
        Limits and switches.
    kv
        The replica's KV memory.
    max_model_len
        Most tokens of a request, prompt and output together; a prompt must be shorter.
    """

    def __init__(self, policy: VllmV1, kv: KVManager, *, max_model_len: int) -> None:
        self.policy = policy
        self.kv = kv
        self.max_model_len = max_model_len
        self.running: list[Request] = []
        self.waiting: WaitingQueue = (
            PriorityQueue() if policy.policy == "priority" else ArrivalQueue()
        )
        self._budget = 0
        self._threshold = 0
        self._open: StepPlan | None = None
        self._has_forked = False

    @property
    def num_unfinished(self) -> int:
        """Requests that wait or run."""
        return len(self.running) + len(self.waiting)

    def add(self, request: Request) -> None:
        """Queue a request that arrived."""
        self.waiting.add(request)

    def abort(self, request: Request) -> None:
        """Drop a request that its client gave up, between two steps (rules 2.1 and 11.1)."""
        if self._open is not None:
            raise InvariantError(f"request {request.id} cannot be aborted while a plan is open")
        if request.status is Status.RUNNING:
            self.running.remove(request)
            self.kv.release(request)
        else:
            self.waiting.remove(request)
        request.move(Status.ABORTED)

    def fork(self, parent: Request, child: Request, now_s: float) -> bool:
        """Let a new request go on from where a running one is, between two steps.

        The child knows what the parent has computed, and one token more: its own. It shares the
        parent's blocks until either writes to one. False, and nothing is changed, where the batch
        has no place or memory does not take it.
        """
        if self._open is not None or child.num_tokens != parent.computed_tokens + 1:
            raise InvariantError(f"request {parent.id} cannot be forked into {child.id} now")
        if len(self.running) >= self.policy.max_num_seqs:
            return False
        child.computed_tokens = parent.computed_tokens
        if not self.kv.fork(parent, child):
            child.computed_tokens = 0
            return False
        child.move(Status.RUNNING)
        child.first_scheduled_s = now_s
        child.catch_up(now_s)
        self.running.append(child)
        self._has_forked = True
        return True

    def plan(self, now_s: float) -> StepPlan:
        """Decide the next step; without entries there is nothing to do (rules 2 to 4).

        A plan with entries stays open until it is committed; there is one at most.
        """
        if self._open is not None:
            raise InvariantError("the plan before this one has not been committed")
        plan = self._decide(now_s)
        self._open = plan if plan.num_tokens else None
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[Request]:
        """Take the result of a step; return the requests that finished in it (rule 8)."""
        if not 1 <= result.num_steps <= plan.num_steps:
            raise InvariantError(f"{result.num_steps} of {plan.num_steps} planned steps were done")
        if plan.num_tokens and plan is not self._open:
            raise InvariantError("a plan is committed that is not open")
        self._open = None
        finished = []
        for request, num_tokens, computed_before in plan.entries:
            if computed_before + num_tokens < request.num_tokens:
                continue  # the chunk ends before the prompt does: nothing is sampled
            request.num_tokens += 1
            if request.caught_up_s is None:
                request.catch_up(result.end_s)
            num_known = request.num_tokens
            if num_known > request.final_tokens or num_known >= self.max_model_len:
                self.running.remove(request)
                self.kv.release(request)
                request.move(Status.FINISHED)
                request.finish_s = result.end_s
                finished.append(request)
        return finished

    def _decide(self, now_s: float) -> StepPlan:
        plan = StepPlan()
        self._budget = self.policy.max_num_batched_tokens
        self._threshold = self._long_prefill_threshold()
        self._plan_running(plan)
        if self.waiting:
            plan.hold = Hold.PREEMPTION if plan.preempted else self._plan_waiting(plan, now_s)
        self._start(plan)
        if self._has_forked:
            plan.ops = self.kv.take_ops()
        return plan

    def _long_prefill_threshold(self) -> int:
        """Return the most tokens of one prompt in this step, 0 for no such limit (rule 2.2)."""
        threshold, eligible = self.policy.long_prefill_token_threshold, self.num_unfinished
        if not threshold or eligible <= 1:
            return 0
        if self.policy.long_prefill_adaptive:
            return max(threshold, self.policy.max_num_batched_tokens // eligible)
        return threshold

    def _plan_running(self, plan: StepPlan) -> None:
        """Give running requests their next tokens, preempting where memory is short (rule 3)."""
        running, entries, threshold = self.running, plan.entries, self._threshold
        budget, position = self._budget, 0
        while position < len(running) and budget > 0:
            request = running[position]
            computed = request.computed_tokens
            num_tokens = request.num_tokens - computed
            if num_tokens > 1:
                if 0 < threshold < num_tokens:
                    num_tokens = threshold
                num_tokens = min(num_tokens, budget)
            # Below its capacity a request needs no new block and fills none: nothing to ask.
            if computed + num_tokens >= request.capacity_tokens:
                self._budget = budget
                position = self._grow(plan, position, request, computed + num_tokens)
                budget = self._budget
                if request.status is Status.PREEMPTED:
                    return
            entries.append((request, num_tokens, computed))
            budget -= num_tokens
            position += 1
        self._budget = budget

    def _grow(self, plan: StepPlan, position: int, request: Request, target_tokens: int) -> int:
        """Find memory for a running request, preempting others or itself (rules 3.3 to 3.5).

        Returns where it stands in the batch afterwards.
        """
        while not self.kv.grow(request, target_tokens):
            victim = self._victim()
            at = self.running.index(victim)
            del self.running[at]
            if at < position:
                position -= 1
            for index, (other, num_tokens, _) in enumerate(plan.entries):
                if other is victim:
                    del plan.entries[index]
                    self._budget += num_tokens
                    break
            self._preempt(plan, victim)
            if victim is request:
                break
        return position

    def _victim(self) -> Request:
        """Return the request that loses its memory (rule 3.4)."""
        if self.policy.policy == "priority":
            return max(self.running, key=lambda request: request.order[:3])
        return self.running[-1]

    def _preempt(self, plan: StepPlan, victim: Request) -> None:
        self.kv.release(victim)
        victim.lost_tokens = victim.computed_tokens
        victim.computed_tokens = 0
        victim.num_preemptions += 1
        victim.move(Status.PREEMPTED)
        self.waiting.put_back(victim)
        plan.preempted.append(victim)

    def _plan_waiting(self, plan: StepPlan, now_s: float) -> Hold | None:
        """Admit waiting requests from the head for as long as they fit (rule 4).

        Returns what holds the next one, None if all are admitted.
        """
        policy, waiting, running = self.policy, self.waiting, self.running
        while waiting:
            if self._budget <= 0:
                return Hold.TOKEN_BUDGET
            if len(running) >= policy.max_num_seqs:
                return Hold.BATCH_SLOT
            request = waiting.head()
            hit_tokens = self._match(request)
            num_tokens = request.num_tokens - hit_tokens
            if 0 < self._threshold < num_tokens:
                num_tokens = self._threshold
            if num_tokens > self._budget:
                if not policy.chunked_prefill:
                    return Hold.TOKEN_BUDGET
                num_tokens = self._budget
            if not self.kv.admit(
                request,
                hit_tokens + num_tokens,
                hit_tokens=hit_tokens,
                full_tokens=request.num_tokens if policy.reserve_full_prompt else 0,
                watermark_ratio=policy.watermark_ratio if running else 0.0,
            ):
                return Hold.MEMORY
            waiting.pop()
            running.append(request)
            self._note_admission(plan, request, hit_tokens, now_s)
            plan.entries.append((request, num_tokens, hit_tokens))
            self._budget -= num_tokens
        return None

    def _match(self, request: Request) -> int:
        """Return the tokens that a waiting request finds in the prefix cache."""
        return self.kv.match(request)

    def _note_admission(
        self, plan: StepPlan, request: Request, hit_tokens: int, now_s: float
    ) -> None:
        """Keep the statistics of an admission (rule 8.1): resumed requests are counted apart."""
        request.move(Status.RUNNING)
        request.computed_tokens = hit_tokens
        request.caught_up_s = None
        plan.hit_tokens += hit_tokens
        self.kv.advance(hit_tokens)
        if request.num_preemptions:
            request.recomputed_tokens += max(0, request.lost_tokens - hit_tokens)
            plan.resumed.append(request)
        else:
            request.first_scheduled_s = now_s
            request.hit_tokens = hit_tokens
            plan.new.append(request)

    def _start(self, plan: StepPlan) -> None:
        """Count every planned token as computed (rule 2.3) and sum up the work of the step."""
        work, num_decodes, context, most, sampled = plan.work, 0, 0, 0, 0
        for request, num_tokens, computed in plan.entries:
            after = computed + num_tokens
            request.computed_tokens = after
            if after >= request.num_tokens:
                sampled += 1
            if num_tokens == 1 and computed >= request.prompt_tokens:
                num_decodes += 1
                context += after
                if after > most:
                    most = after
            else:
                work.prefills.append((num_tokens, computed))
        work.num_decodes = num_decodes
        work.decode_context_tokens = context
        work.max_decode_context_tokens = most
        work.num_sampled = sampled
        plan.num_tokens = self.policy.max_num_batched_tokens - self._budget
        self.kv.advance(plan.num_tokens)
