"""One replica in simulated time: its scheduler plans, the cost model says how long it takes."""

from collections.abc import Callable, Sequence

import simpy
from simpy.events import NORMAL

from simkv.cost.model import CostModel
from simkv.errors import InvariantError
from simkv.obs.recorder import Recorder
from simkv.obs.watch import Watcher
from simkv.route.policy import ReplicaView
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler
from simkv.sim.clock import Clock


class Replica:
    """Executes the plans of one scheduler, one SimPy event a step.

    Parameters
    ----------
    env
        The clock.
    index
        Number of the replica in its cluster.
    scheduler, cost
        Who decides and who says how long it takes.
    recorder
        Takes down steps and memory.
    on_finish, on_abort
        Called with each request that finished, or whose client gave up, in order.

    Whoever is in ``watchers`` looks on.
    """

    def __init__(
        self,
        env: Clock,
        index: int,
        scheduler: Scheduler,
        cost: CostModel,
        recorder: Recorder,
        on_finish: Callable[[int, Request], None],
        on_abort: Callable[[int, Request], None],
    ) -> None:
        self.env = env
        self.index = index
        self.scheduler = scheduler
        self.cost = cost
        self.recorder = recorder
        self.on_finish = on_finish
        self.on_abort = on_abort
        self.watchers: Sequence[Watcher] = ()
        self.outstanding_tokens = 0
        # What happens at one time on several replicas does so in their order.
        self._priority = NORMAL + index
        self._busy = False
        self._plan = StepPlan()
        self._given_up: list[Request] = []
        self._note()

    def submit(self, request: Request) -> None:
        """Queue a request; an idle replica starts once everything due now has arrived."""
        self.scheduler.add(request)
        self.outstanding_tokens += request.final_tokens
        self.recorder.queued(self.index, request)
        for watcher in self.watchers:
            watcher.arrived(self.index, self.env.now, request)
        self._note()
        if not self._busy:
            self._busy = True
            self.env.at(self.env.now, self._start, priority=self._priority)

    def give_up(self, request: Request) -> None:
        """Drop a request that its client gave up, before the next step is planned (rule 2.1)."""
        if request.status not in (Status.FINISHED, Status.ABORTED):
            self._given_up.append(request)

    def run_on(self, until_s: float) -> float:
        """Let everything happen that happens before a time; return when the last of it did."""
        return self.env.now

    def view(self) -> ReplicaView:
        """Return what a router may know."""
        kv = self.scheduler.kv
        return ReplicaView(
            num_waiting=len(self.scheduler.waiting),
            num_running=len(self.scheduler.running),
            outstanding_tokens=self.outstanding_tokens,
            free_ratio=kv.num_free_blocks * kv.block_tokens / kv.pool_slots,
        )

    def _start(self, event: simpy.Event) -> None:
        now_s = self.env.now
        if self._given_up:
            self._abort()
        plan = self.scheduler.plan(now_s)
        self._count(plan)
        if not plan.entries:
            self._rest(plan, event)
            return
        step_s = self.cost.step_time_s(plan.work)
        self.recorder.step(self.index, now_s, step_s, plan, self.scheduler)
        self._plan = plan
        self.env.at(now_s + step_s, self._end, priority=self._priority)

    def _end(self, event: simpy.Event) -> None:
        for request in self._commit(self._plan):
            self.on_finish(self.index, request)
        self._start(event)

    def _commit(self, plan: StepPlan) -> list[Request]:
        finished = self.scheduler.commit(plan, StepResult(end_s=self.env.now))
        for watcher in self.watchers:
            watcher.committed(self.index, self.env.now, finished, self.scheduler)
        return finished

    def _abort(self) -> None:
        for request in self._given_up:
            if request.status not in (Status.FINISHED, Status.ABORTED):
                self.outstanding_tokens -= request.final_tokens - request.computed_tokens
                self.scheduler.abort(request)
                for watcher in self.watchers:
                    watcher.aborted(self.index, self.env.now, request)
                self.on_abort(self.index, request)
        self._given_up.clear()

    def _count(self, plan: StepPlan) -> None:
        """Tell who listens; keep the sum of ``final - computed`` tokens over the unfinished."""
        self.recorder.planned(self.index, self.env.now, plan)
        for watcher in self.watchers:
            watcher.planned(self.index, self.env.now, plan, self.scheduler)
        for request in plan.preempted:
            self.outstanding_tokens += request.lost_tokens
        self.outstanding_tokens -= plan.num_tokens + plan.hit_tokens

    def _rest(self, plan: StepPlan, event: simpy.Event) -> None:
        """Go idle; requests that wait although nothing runs would wait for ever (law 5)."""
        if plan.preempted:
            self._start(event)
            return
        if self.scheduler.num_unfinished:
            raise InvariantError(
                f"replica {self.index} schedules nothing at {self.env.now} s although "
                f"{self.scheduler.num_unfinished} requests wait"
            )
        self._busy = False
        self._note()

    def _note(self) -> None:
        self.recorder.state(self.index, self.env.now, self.scheduler)
