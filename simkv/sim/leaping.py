"""One replica that leaps: whole stretches of equal steps at once, and only when somebody looks.

Steps happen when a moment after them is asked about: an arrival, a router's look, a client that
gives up, the end of the run. What was under way then goes on; an arrival or a client that gives up
also ends the leap with the step under way, for the next one must be planned anew.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate

import simpy

from simkv.cost.model import CostModel
from simkv.errors import InvariantError
from simkv.obs.recorder import Recorder
from simkv.route.policy import ReplicaView
from simkv.sched.hold import Hold
from simkv.sched.leaps import LeapingScheduler
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Request
from simkv.sim.clock import Clock
from simkv.sim.replica import Replica

_FEWEST_STEPS = 8


class LeapingReplica(Replica):
    """Executes the plans of a scheduler that leaps.

    Parameters
    ----------
    wakes
        Whether the end of each plan is an event of its own, so that what follows the end of a
        request happens at its time.

    The others are those of ``Replica``; nobody may look on step by step.
    """

    scheduler: LeapingScheduler

    def __init__(
        self,
        env: Clock,
        index: int,
        scheduler: LeapingScheduler,
        cost: CostModel,
        recorder: Recorder,
        on_finish: Callable[[int, Request], None],
        on_abort: Callable[[int, Request], None],
        *,
        wakes: bool,
    ) -> None:
        super().__init__(env, index, scheduler, cost, recorder, on_finish, on_abort)
        self._wakes = wakes
        self._course = recorder.course(index)
        self._ends: list[float] = []  # of the plan's steps, as far as they have been priced
        self._at = 0  # the step under way
        self._next_s = math.inf  # when something happens next
        self._last_s = 0.0  # when something last happened
        self._step_s = math.inf  # a step's length, about
        self._hold: Hold | None = None
        self._has_news = False  # whether somebody arrived since the last plan

    def submit(self, request: Request) -> None:
        """Queue a request; an idle replica starts once everything due now has arrived."""
        now_s = request.arrival_s
        if self._next_s < now_s:
            self.run_on(now_s)
        if len(self._ends) > self._at + 1:
            self._cut()
        self.scheduler.add(request)
        self.outstanding_tokens += request.final_tokens
        self.recorder.queued(self.index, request)
        self._has_news = True
        self._course.note(now_s, self.scheduler)
        if not self._busy:
            self._busy = True
            self._next_s = now_s
            self._set_alarm(now_s)

    def give_up(self, request: Request) -> None:
        """Drop a request that its client gave up, before the next step is planned."""
        self.run_on(self.env.now)
        if len(self._ends) > self._at + 1:
            self._cut()
        super().give_up(request)

    def view(self) -> ReplicaView:
        """Return what a router may know."""
        self.run_on(self.env.now)
        return super().view()

    def run_on(self, until_s: float) -> float:
        """Let everything happen that happens before a time; return when the last of it did."""
        while self._next_s < until_s:
            self._go_on(until_s, bisect_left)
        return self._last_s

    def _wake(self, _event: simpy.Event) -> None:
        """Let everything happen that is due, the present included; there may be nothing."""
        now_s = self.env.now
        while self._next_s <= now_s:
            self._go_on(now_s, bisect_right)

    def _set_alarm(self, time_s: float) -> None:
        if self._wakes:
            self.env.at(time_s, self._wake, priority=self._priority)

    def _cut(self) -> None:
        """End the plan with the step under way."""
        del self._ends[self._at + 1 :]
        self._plan.num_steps = 1
        self._set_alarm(self._ends[-1])

    def _go_on(self, until_s: float, find: Callable[[list[float], float, int], int]) -> None:
        """Go on to the step that is under way at a time; past the plan's last one, plan anew.

        ``find`` says which step that is, given all ends, the time, and where to look from.
        """
        ends, last = self._ends, len(self._ends) - 1
        if last > self._at:
            under_way = find(ends, until_s, self._at)
            if under_way > self._at:
                self._pass(min(under_way, last) - self._at)
            if under_way <= last:
                return
        now_s = self._next_s
        if ends:
            self._last_s = now_s
            for request in self.scheduler.commit(self._plan, StepResult(now_s)):
                self.on_finish(self.index, request)
        self._begin(now_s, math.inf if self._wakes else until_s)

    def _pass(self, num_steps: int) -> None:
        """Note that so many steps are done, and that as many have begun."""
        plan, scheduler, at = self._plan, self.scheduler, self._at
        counters = scheduler.kv.counters()
        more_blocks = scheduler.proceed(plan, num_steps)
        self.cost.note(plan.work, num_steps)
        self.outstanding_tokens -= num_steps * plan.num_tokens
        self._at = at + num_steps
        self._last_s = self._ends[self._at - 1]
        self._next_s = self._ends[self._at]
        times_s = self._ends[at : self._at + 1]
        self.recorder.steps(self.index, times_s, plan.work, more_blocks, counters, scheduler)

    def _begin(self, now_s: float, until_s: float) -> None:
        """Plan, and price as many of the steps as are likely to be done before a time."""
        if self._given_up:
            self.scheduler.refresh()
            self._abort()
        plan = self._next_plan(now_s)
        self._ends = []
        if not plan.num_tokens:
            self._go_idle(now_s)
            return
        self._plan, self._at = plan, 0
        if plan.num_steps == 1:
            step_s = self.cost.step_time_s(plan.work)
            self._ends = [now_s + step_s]
        else:
            likely = _FEWEST_STEPS + (until_s - now_s) / self._step_s
            if likely < plan.num_steps:
                plan.num_steps = int(likely)
            times_s = self.cost.step_times_s(plan.work, plan.num_steps)
            self.cost.note(plan.work, 1)
            step_s = times_s[0]
            times_s[0] = now_s + step_s
            self._ends = list(accumulate(times_s))
        self._step_s = step_s
        self._next_s = self._ends[0]
        self.recorder.step(self.index, now_s, step_s, plan, self.scheduler)
        if self._wakes:
            self._set_alarm(self._ends[-1])

    def _next_plan(self, now_s: float) -> StepPlan:
        """Plan until there is something to do, or nothing at all."""
        while True:
            plan = self.scheduler.plan(now_s)
            # Nobody moved, and what holds the head of the queue goes on to: there is no news.
            if plan.entries or plan.preempted or plan.hold is not self._hold or self._has_news:
                self.recorder.planned(self.index, now_s, plan)
                self._hold, self._has_news = plan.hold, False
                for request in plan.preempted:
                    self.outstanding_tokens += request.lost_tokens
            self.outstanding_tokens -= plan.num_tokens + plan.hit_tokens
            if plan.num_tokens or not plan.preempted:
                return plan

    def _go_idle(self, now_s: float) -> None:
        if self.scheduler.num_unfinished:
            raise InvariantError(
                f"replica {self.index} schedules nothing at {now_s} s although "
                f"{self.scheduler.num_unfinished} requests wait"
            )
        self._busy = False
        self._next_s = math.inf
        self._course.note(now_s, self.scheduler)
