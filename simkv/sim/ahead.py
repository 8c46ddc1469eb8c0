"""One replica whose steps are planned while the ones before them are under way.

The device takes plans in order, each as soon as the one before it is done; planning itself takes no
time here. So an arrival during a step is planned when that step ends, and runs one step later.
"""

from collections import deque
from collections.abc import Callable

import simpy

from simkv.cost.model import CostModel
from simkv.errors import InvariantError
from simkv.obs.recorder import Recorder
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request
from simkv.sim.clock import Clock
from simkv.sim.replica import Replica


class AheadReplica(Replica):
    """Executes the plans of an asynchronous scheduler, one SimPy event a step.

    Parameters are those of ``Replica``.
    """

    scheduler: AsyncScheduler

    def __init__(
        self,
        env: Clock,
        index: int,
        scheduler: AsyncScheduler,
        cost: CostModel,
        recorder: Recorder,
        on_finish: Callable[[int, Request], None],
        on_abort: Callable[[int, Request], None],
    ) -> None:
        super().__init__(env, index, scheduler, cost, recorder, on_finish, on_abort)
        self._queued: deque[StepPlan] = deque()

    def _start(self, event: simpy.Event) -> None:
        """Plan ahead as far as that goes, then let the device do the step that is due."""
        scheduler, now_s = self.scheduler, self.env.now
        if self._given_up:
            self._abort()
        while scheduler.wants_plan or scheduler.num_open_plans:
            planned = None
            if scheduler.wants_plan:
                planned = scheduler.plan(now_s)
                self._count(planned)
                if planned.entries:
                    self._queued.append(planned)
                self._check_progress(planned)
            due = scheduler.due(planned)
            if due is None:
                continue
            if due.entries:
                # The step before it ended just now, or there was none: it begins now.
                step_s = self.cost.step_time_s(due.work)
                self.recorder.step(self.index, now_s, step_s, due, scheduler)
                self._plan = due
                self.env.at(now_s + step_s, self._end, priority=self._priority)
                return
            self._commit(due)
        self._busy = False
        self._note()

    def _end(self, event: simpy.Event) -> None:
        self._queued.popleft()
        for request in self._commit(self._plan):
            # More than 0 where its last token came after a preemption had taken its memory.
            self.outstanding_tokens -= request.final_tokens - request.computed_tokens
            self.on_finish(self.index, request)
        self._start(event)

    def _check_progress(self, planned: StepPlan) -> None:
        """Raise InvariantError where requests would wait for ever (law 5)."""
        if not (planned.preempted or self._queued) and self.scheduler.num_unfinished:
            raise InvariantError(
                f"replica {self.index} schedules nothing at {self.env.now} s although "
                f"{self.scheduler.num_unfinished} requests wait"
            )
