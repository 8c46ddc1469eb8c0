"""What a cost model is: the time of a step from the numbers that describe its work."""

from typing import Protocol

from simkv.sched.work import StepWork


class CostModel(Protocol):
    """Prices steps. It keeps no state that changes a later price."""

    def step_time_s(self, work: StepWork) -> float:
        """Return the time from one step's start to the next one's, a plain float."""
        ...

    def step_times_s(self, work: StepWork, num_steps: int) -> list[float]:
        """Return the times of steps on end in which every sequence decodes, as plain floats.

        Parameters
        ----------
        work
            The first of the steps: decodes only. In each later one every context is a token longer.

        Returns
        -------
        list of float
            Each equals ``step_time_s`` of its own step to the last bit. Nothing is counted as asked
            outside the measured range: steps may turn out not to be done. ``note`` does that.
        """
        ...

    def note(self, work: StepWork, num_steps: int) -> None:
        """Count what of ``step_times_s`` was done and lies outside the measured range.

        Parameters
        ----------
        work
            The last of the steps.
        """
        ...

    def warnings(self) -> list[str]:
        """Return what was asked outside the measured range: what, how far, how often."""
        ...
