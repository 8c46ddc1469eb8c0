"""Every law at every step: what ``simkv run --check`` and the tests switch on.

The laws themselves are with what they are about: ``simkv.kv.invariants``,
``simkv.sched.invariants`` and, for the tables of a whole run, ``simkv.obs.invariants``.
"""

from collections.abc import Sequence

from simkv.errors import InvariantError
from simkv.kv.invariants import check_memory
from simkv.sched.invariants import check_plan, check_progress, check_requests
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler


class Laws:
    """A watcher that raises ``InvariantError`` at the first step that breaks a law.

    Parameters
    ----------
    num_replicas
        Replicas that are watched.
    """

    def __init__(self, num_replicas: int) -> None:
        self._now_s = 0.0
        self._live: list[dict[int, Request]] = [{} for _ in range(num_replicas)]

    def arrived(self, replica: int, now_s: float, request: Request) -> None:
        """Check that the request is new, and keep it until it finishes."""
        self._pass(now_s)
        live = self._live[replica]
        if request.id in live or request.arrival_s != now_s:
            raise InvariantError(
                f"request {request.id} arrives at {now_s} s, again or not at {request.arrival_s} s"
            )
        live[request.id] = request

    def planned(self, replica: int, now_s: float, plan: StepPlan, scheduler: Scheduler) -> None:
        """Check the plan, and memory with its tokens in it."""
        self._pass(now_s)
        check_plan(scheduler, plan)
        check_progress(scheduler, plan)
        check_requests(scheduler, self._live[replica].values())
        check_memory(scheduler.kv, scheduler.running)

    def committed(
        self, replica: int, now_s: float, finished: Sequence[Request], scheduler: Scheduler
    ) -> None:
        """Check those that finished, which are gone after that, and everybody else.

        What they leave in memory is seen when the next step is planned, by nobody before.
        """
        self._pass(now_s)
        live = self._live[replica]
        check_requests(scheduler, live.values())
        for request in finished:
            if request.finish_s != now_s or live.pop(request.id, None) is not request:
                raise InvariantError(
                    f"request {request.id} finishes at {now_s} s, with {request.finish_s} s as its "
                    "end, or without having arrived"
                )

    def aborted(self, replica: int, now_s: float, request: Request) -> None:
        """Check that a request is gone that had arrived."""
        self._pass(now_s)
        live = self._live[replica]
        if live.pop(request.id, None) is not request or request.status is not Status.ABORTED:
            raise InvariantError(f"request {request.id} is given up, yet {request.status.value}")

    def ended(self, now_s: float) -> None:
        """Check that the run does not end before its last event."""
        self._pass(now_s)

    def _pass(self, now_s: float) -> None:
        if not now_s >= self._now_s:
            raise InvariantError(f"time runs backwards, from {self._now_s} to {now_s} s")
        self._now_s = now_s
