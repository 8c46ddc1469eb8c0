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
one step.
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
        self.kv.lend(sum(needed))
        self.kv.advance(num_steps * num)
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
        ended = decodes.pop_ended()
        if ended and self._writers:
            self._settle_family([request for _, request in ended])
        for request, num_tokens, computed_before in plan.entries:
            if computed_before + num_tokens < request.num_tokens:
                continue  # the chunk ends before the prompt does: nothing is sampled
            place = self._prefills.pop(request)
            request.num_tokens += 1
            if request.caught_up_s is None:
                request.catch_up(end_s)
            if request.num_tokens >= self._last_tokens(request):
                ended.append((place, request))
            else:
                self._join(request, place)
        if len(ended) > 1:
            ended.sort()
        for place, request in ended:
            self._finish(request, place, end_s)
        return [request for _, request in ended]

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
        if not self._is_gathered:
            self._gather()
        plan = StepPlan()
        if not self._continue(plan):
            self._scatter()
            return super()._decide(now_s)
        if self.waiting:
            plan.hold = self._plan_waiting(plan, now_s)
        self._start(plan)
        if self.decodes.offsets and not plan.entries and self._stays(plan.hold):
            plan.num_steps = self._num_steps()
        return plan

    def _continue(self, plan: StepPlan) -> bool:
        """Give running requests their next tokens; change nothing and say False if some get none.

        Decodes go first here. They do in the batch too, or chunks leave enough of the budget.
        """
        decodes, threshold = self.decodes, self._long_prefill_threshold()
        budget = self.policy.max_num_batched_tokens - len(decodes)
        lent = needed = decodes.blocks_needed(decodes.step, 1)[0]
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
                needed -= -more // self.kv.block_tokens
            if self._writers and self._writers.writes_to(request):
                return False
            plan.entries.append((request, num_tokens, computed))
            budget -= num_tokens
        if budget < 0 or needed > self.kv.num_free_blocks:
            return False
        self._budget, self._threshold = budget, threshold
        decodes.ahead = 1
        self.kv.lend(lent)
        for request, num_tokens, computed in plan.entries:
            if computed + num_tokens >= request.capacity_tokens:
                self.kv.grow(request, computed + num_tokens)
        return True

    def _start(self, plan: StepPlan) -> None:
        super()._start(plan)
        decodes, work = self.decodes, plan.work
        num = len(decodes.offsets)
        if num:
            after = decodes.step + 1
            work.num_decodes += num
            work.num_sampled += num
            work.decode_context_tokens += decodes.sum_offsets + num * after
            longest = decodes.longest() + after
            if longest > work.max_decode_context_tokens:
                work.max_decode_context_tokens = longest

    def _num_steps(self) -> int:
        """Return for how many steps nobody ends and memory covers what the group needs."""
        decodes = self.decodes
        more = min(decodes.steps_to_next_end(), self.max_leap_steps) - 1
        if more <= 0:
            return 1
        return 1 + decodes.steps_covered(self.kv.num_free_blocks, decodes.step + 1, more)

    def _stays(self, hold: Hold | None) -> bool:
        """Whether what holds the head of the queue does so until the batch changes."""
        if hold is Hold.MEMORY:
            # Evicted hits could make its prompt too long for the rest of the budget.
            chunked = self.policy.chunked_prefill
            return chunked and not (self._writers and self._writers.writes_to(self.waiting.head()))
        if hold is Hold.TOKEN_BUDGET and self._budget > 0:
            return not self._writers or not self._writers.writes_to(self.waiting.head())
        return True

    def _match(self, request: Request) -> int:
        if self._writers:
            self._settle_family([request])
        return super()._match(request)

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

    def _last_tokens(self, request: Request) -> int:
        """Return the known tokens with which a request ends."""
        return min(request.final_tokens + 1, self.max_model_len)

    def _join(self, request: Request, place: int) -> None:
        self.decodes.join(request, place, self._last_tokens(request))
        segments = self.kv.open_segments(request)
        if segments:
            self._writers.add(request, segments)

    def _finish(self, request: Request, place: int, end_s: float) -> None:
        at = bisect_left(self._places, place)
        del self._places[at], self.running[at]
        self._writers.remove(request)
        self.kv.settle(request)
        self.kv.release(request)
        request.move(Status.FINISHED)
        request.finish_s = end_s

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
            if computed == request.num_tokens - 1 and computed >= request.prompt_tokens:
                self._join(request, place)
            else:
                self._prefills[request] = place
        self._is_gathered = True


def _far_first(request: Request) -> int:
    return -request.computed_tokens
