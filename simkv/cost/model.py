"""What a cost model is: the time of a step from the numbers that describe its work."""

from typing import Protocol

from simkv.sched.work import StepWork


class CostModel(Protocol):
    """Prices steps. It keeps no state that changes a later price."""

    def step_time_s(self, work: StepWork) -> float:
        """Return the time from one step's start to the next one's, a plain float."""
        ...

    def warnings(self) -> list[str]:
        """Return what was asked outside the measured range: what, how far, how often."""
        ...
