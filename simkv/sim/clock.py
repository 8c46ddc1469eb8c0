"""The clock of a run: SimPy's, with calls at a time instead of after a delay.

A time that is computed as now and a delay may miss its mark by the last bit; steps of a leap end at
times that were added up beforehand, so they need to be met.
"""

from collections.abc import Callable
from heapq import heappush
from typing import Any

import simpy


class Clock(simpy.Environment):
    """Simulated time."""

    def at(self, time_s: float, function: Callable[[simpy.Event], None], *, priority: Any) -> None:
        """Call a function with its event at a time, now or later.

        Calls at the same time run in order of priority, then of creation: arrivals are urgent, ends
        of steps are not, so that a step which begins at the time of an arrival sees it.
        """
        event = simpy.Event(self)
        event._ok = True
        event._value = None
        event.callbacks = [function]
        heappush(self._queue, (time_s, priority, next(self._eid), event))

    def pass_to(self, time_s: float) -> bool:
        """Let time pass to a moment, if nothing is due before it or then; else do nothing."""
        if self._queue and self._queue[0][0] <= time_s:
            return False
        self._now = time_s
        return True
