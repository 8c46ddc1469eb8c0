"""Who may look on while a run goes: told of every plan and every result, changing nothing."""

from collections.abc import Sequence
from typing import Protocol

from simkv.sched.plan import StepPlan
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler


class Watcher(Protocol):
    """Is told what happens on each replica, in order of time."""

    def arrived(self, replica: int, now_s: float, request: Request) -> None:
        """Note that a request entered a replica's queue."""
        ...

    def planned(self, replica: int, now_s: float, plan: StepPlan, scheduler: Scheduler) -> None:
        """Note a plan that was just made."""
        ...

    def committed(
        self, replica: int, now_s: float, finished: Sequence[Request], scheduler: Scheduler
    ) -> None:
        """Note that a plan's result was taken, and who finished by it."""
        ...

    def aborted(self, replica: int, now_s: float, request: Request) -> None:
        """Note that a request's client gave up, between a result and the next plan."""
        ...

    def ended(self, now_s: float) -> None:
        """Note the end of the run; requests may be unfinished."""
        ...
