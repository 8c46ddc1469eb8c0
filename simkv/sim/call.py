"""A function call at a simulated time: the only kind of event in a run."""

from collections.abc import Callable
from typing import Any

import simpy


class Call(simpy.Event):
    """Calls a function with itself after a delay.

    Calls at the same time run in order of priority, then of creation: arrivals are urgent, ends of
    steps are not, so that a step which begins at the time of an arrival sees it.
    """

    def __init__(
        self,
        env: simpy.Environment,
        delay_s: float,
        function: Callable[[simpy.Event], None],
        *,
        priority: Any,
    ) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        self.callbacks = [function]
        env.schedule(self, priority, delay_s)
