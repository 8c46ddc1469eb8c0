"""Continuous batching in leaps: the decisions of ``scheduler.Scheduler``, at a cost per change.

Between two changes of the batch its steps are alike but for contexts growing. So the requests that
decode are kept as one group, whose members are written down when one of them is touched, and a plan
says for how many steps it holds. ``Scheduler`` decides every step from every request; that is the
reference, and it decides here too wherever memory or the token budget is short: everything is
written down first, and gathered again before the next step.

A leap is exact where nothing that the reference would look at can change its mind on the way:
nobody ends, memory covers all growth, and the head of the queue stays blocked. It does: while
decodes only take memory, what the head needs and what is free shrink by the same blocks at most,
and its hits can only grow by what somebody writes into a segment that it names; then the leap is
one step. Requests that were forked share blocks that they write to: the reference decides for all.
"""

from bisect import bisect_left
from collections.abc import Iterable

from simkv.errors import InvariantError
from simkv.kv.manager import Lender
from simkv.sched.decodes import Decodes
from simkv.sched.hold import Hold
from simkv.sched.naming import Writers
from simkv.sched.plan import Entry, StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler
from simkv.sched.work import StepWork

_MOST_STEPS = 4096


class LeapingScheduler(Scheduler):
    """Decides for as many steps at once as nothing changes in.

    A plan's entries are those of requests that do not decode; ``entries_of`` lists all.

    Parameters
    ----------
    policy, max_model_len
        As for ``Scheduler``.
    kv
        Memory that may be lent to a group.
    max_leap_steps
        Most steps of one plan.
    """

    kv: Lender

    def __init__(
        self,
        policy: VllmV1,
        kv: Lender,
        *,
        max_model_len: int,
        max_leap_steps: int = _MOST_STEPS,
    ) -> None:
        super().__init__(policy, kv, max_model_len=max_model_len)
        self.max_leap_steps = max_leap_steps
        self.decodes = Decodes(kv.block_tokens, grows=kv.grows)
        self._writers = Writers()
        self._prefills: dict[Request, int] = {}
        # Running requests have ascending numbers, their places; they are found by them.
        self._places: list[int] = []
        self._num_places = 0
        self._is_gathered = True

    def abort(self, request: Request) -> None:
        """Drop a request that its client gave up, between two steps."""
        if self._open is None:
            self._scatter()
        super().abort(request)

    def fork(self, parent: Request, child: Request, now_s: float) -> bool:
        """Let a new request go on from where a running one is, between two steps."""
        if self._open is None:
            self._scatter()
        return super().fork(parent, child, now_s)

    def plan(self, now_s: float) -> StepPlan:
        """Decide the next steps; without tokens there is nothing to do."""
        if self._open is not None:
            raise InvariantError("the plan before this one has not been committed")
        plan = None
        if not (self.waiting or self._prefills) and self._is_gathered:
            plan = self._go_on()
        if plan is None:
            plan = self._decide(now_s)
        self._open = plan if plan.num_tokens else None
        return plan

    def proceed(self, plan: StepPlan, num_steps: int) -> list[int]:
        """Note that so many steps of the open plan are done and that the next one has begun.

        Returns the blocks that the group took in each of the steps that have begun.
        """
        if plan is not self._open or not 0 < num_steps < plan.num_steps:
            raise InvariantError(f"{num_steps} of {plan.num_steps} planned steps cannot be passed")
        decodes, work = self.decodes, plan.work
        num = work.num_decodes
        needed = decodes.blocks_needed(decodes.step + 1, num_steps)
        decodes.step += num_steps
        self.kv.lend(sum(needed), num_steps * num)
        work.decode_context_tokens += num_steps * num
        work.max_decode_context_tokens += num_steps
        plan.num_steps -= num_steps
        return needed

    def commit(self, plan: StepPlan, result: StepResult) -> list[Request]:
        """Take the result of a plan; return the requests that finished in its last step."""
        if not self._is_gathered or plan is not self._open:
            return super().commit(plan, result)
        if result.num_steps != 1:
            self.proceed(plan, result.num_steps - 1)
        self._open = None
        decodes, end_s = self.decodes, result.end_s
        decodes.step += 1
        decodes.ahead = 0
        ended = decodes.pop_ended() if decodes.next_end() <= decodes.step else []
        if ended and self._writers.segments:
            self._settle_family([request for _, request in ended])
        for request, num_tokens, computed_before in plan.entries:
            if computed_before + num_tokens < request.num_tokens:
                continue  # the chunk ends before the prompt does: nothing is sampled
            place = self._prefills.pop(request)
            request.num_tokens += 1
            if request.caught_up_s is None:
                request.catch_up(end_s)
            last_tokens = min(request.final_tokens + 1, self.max_model_len)
            if request.num_tokens >= last_tokens:
                ended.append((place, request))
            else:
                self._join(request, place, last_tokens)
        if len(ended) > 1:
            ended.sort()
        return [self._finish(request, place, end_s) for place, request in ended]

    def refresh(self) -> None:
        """Write down how far each member of the group is, for whoever looks at requests."""
        decoding = [request for request in self.running if request in self.decodes.offsets]
        self._settle(decoding)

    def entries_of(self, plan: StepPlan) -> list[Entry]:
        """Return the entries of an open plan, the group's among them, in the order of the batch."""
        self.refresh()
        entries = {entry[0]: entry for entry in plan.entries}
        for request in self.decodes.offsets:
            entries[request] = (request, 1, request.computed_tokens - 1)
        return [entries[request] for request in self.running if request in entries]

    def _decide(self, now_s: float) -> StepPlan:
        if not self._is_gathered and not self._has_forked:
            self._gather()
        plan = StepPlan()
        if self._has_forked or not self._continue(plan):
            self._scatter()
            return super()._decide(now_s)
        if self.waiting:
            plan.hold = self._plan_waiting(plan, now_s)
        self._start(plan)
        if self.decodes.offsets and not plan.entries and self._stays(plan.hold):
            plan.num_steps = self._num_steps(self.kv.num_free_blocks)
        return plan

    def _go_on(self) -> StepPlan | None:
        """Plan for a group alone that nobody waits to join; None where it is short of something."""
        decodes, kv = self.decodes, self.kv
        num, after = len(decodes.offsets), decodes.step + 1
        lent, free = decodes.phases[decodes.step % decodes.block_tokens], kv.num_free_blocks
        if not 0 < num <= self.policy.max_num_batched_tokens or lent > free:
            return None
        decodes.ahead = 1
        kv.lend(lent, num)
        context, longest = decodes.sum_offsets + num * after, decodes.longest() + after
        work = StepWork([], num, context, longest, num)
        return StepPlan([], work, self._num_steps(free - lent), [], [], [], num)

    def _continue(self, plan: StepPlan) -> bool:
        """Give running requests their next tokens; change nothing and say False if some get none.

        Decodes go first here. They do in the batch too, or chunks leave enough of the budget.
        """
        decodes, threshold = self.decodes, self._long_prefill_threshold()
        budget = self.policy.max_num_batched_tokens - len(decodes.offsets)
        lent = needed = decodes.phases[decodes.step % decodes.block_tokens]
        for request, place in self._prefills.items():
            computed = request.computed_tokens
            num_tokens = request.num_tokens - computed
            if num_tokens > 1 and 0 < threshold < num_tokens:
                num_tokens = threshold
            if num_tokens > budget:
                if place < decodes.last_place:
                    return False
                num_tokens = budget
            if num_tokens <= 0:
                break
            more = computed + num_tokens - request.capacity_tokens
            if more > 0:
                needed -= -more // decodes.block_tokens
            if self._writers.segments and self._writers.writes_to(request):
                return False
            plan.entries.append((request, num_tokens, computed))
            budget -= num_tokens
        if budget < 0 or needed > self.kv.num_free_blocks:
            return False
        self._budget, self._threshold = budget, threshold
        decodes.ahead = 1
        if lent:
            self.kv.lend(lent, 0)
        for request, num_tokens, computed in plan.entries:
            if computed + num_tokens >= request.capacity_tokens:
                self.kv.grow(request, computed + num_tokens)
        return True

    def _start(self, plan: StepPlan) -> None:
        super()._start(plan)
        decodes, work = self.decodes, plan.work
        num, after = len(decodes.offsets), decodes.step + 1
        if num:
            work.num_decodes += num
            work.num_sampled += num
            work.decode_context_tokens += decodes.sum_offsets + num * after
            longest = decodes.longest() + after
            if longest > work.max_decode_context_tokens:
                work.max_decode_context_tokens = longest

    def _num_steps(self, num_free_blocks: int) -> int:
        """Return for how many steps nobody ends and memory covers what the group needs."""
        decodes = self.decodes
        more = decodes.next_end() - decodes.step - 1
        if more >= self.max_leap_steps:
            more = self.max_leap_steps - 1
        if not more:
            return 1
        return 1 + decodes.steps_covered(num_free_blocks, decodes.step + 1, more)

    def _stays(self, hold: Hold | None) -> bool:
        """Whether what holds the head of the queue does so until the batch changes."""
        if hold is Hold.MEMORY:
            # Evicted hits could make its prompt too long for the rest of the budget.
            chunked = self.policy.chunked_prefill
            return chunked and not self._writers.writes_to(self.waiting.head())
        if hold is Hold.TOKEN_BUDGET and self._budget > 0:
            return not self._writers.writes_to(self.waiting.head())
        return True

    def _match(self, request: Request) -> int:
        if self._writers.segments:
            self._settle_family([request])
        return self.kv.match(request)

    def _note_admission(
        self, plan: StepPlan, request: Request, hit_tokens: int, now_s: float
    ) -> None:
        super()._note_admission(plan, request, hit_tokens, now_s)
        if self._is_gathered:
            self._prefills[request] = self._next_place()

    def _next_place(self) -> int:
        """Give a place to the request that is the last of the batch."""
        self._num_places += 1
        self._places.append(self._num_places)
        return self._num_places

    def _join(self, request: Request, place: int, last_tokens: int) -> None:
        self.decodes.join(request, place, last_tokens)
        if self.kv.shares:
            segments = self.kv.open_segments(request)
            if segments:
                self._writers.add(request, segments)

    def _finish(self, request: Request, place: int, end_s: float) -> Request:
        at = bisect_left(self._places, place)
        del self._places[at], self.running[at]
        if self._writers.segments:
            self._writers.remove(request)
        self.kv.retire(request)
        request.move(Status.FINISHED)
        request.finish_s = end_s
        return request

    def _settle_family(self, requests: Iterable[Request]) -> None:
        """Register what all have written that write into the content of some requests."""
        family = set(self._writers.family(requests))
        self._settle([request for request in self.running if request in family])

    def _settle(self, requests: list[Request]) -> None:
        """Write down some members, given in the order of the batch: who is ahead was so first."""
        for request in requests:
            if request in self.decodes.offsets:
                self.decodes.write_down(request)
        for request in sorted(requests, key=_far_first):
            self.kv.settle(request)

    def _scatter(self) -> None:
        """Write everything down and let the group go: the reference decides from here on."""
        if not self._is_gathered:
            return
        self.refresh()
        self.decodes.clear()
        self._writers.clear()
        self._is_gathered = False

    def _gather(self) -> None:
        """Form the group of those that decode."""
        self._places.clear()
        self._prefills.clear()
        for request in self.running:
            place, computed = self._next_place(), request.computed_tokens
            # One that came back and has yet to give its first token is not in step with the group,
            # even if a chunk has left it one token to compute.
            in_step = computed == request.num_tokens - 1 and computed >= request.prompt_tokens
            if in_step and request.caught_up_s is not None:
                last_tokens = min(request.final_tokens + 1, self.max_model_len)
                self._join(request, place, last_tokens)
            else:
                self._prefills[request] = place
        self._is_gathered = True


def _far_first(request: Request) -> int:
    return -request.computed_tokens
