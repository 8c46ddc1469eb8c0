"""Where each request's time went: into which parts its end-to-end latency divides.

A request is in the queue or in the batch, and each moment of its life belongs to one part
(docs/metrics.md). While it is in the queue for the first time the parts are reasons to wait; what
holds the head of a replica's queue holds everybody behind it, so a replica needs to count seconds
for itself only and a request the difference between two readings.
"""

import numpy as np
import numpy.typing as npt

from simkv.sched.hold import Hold
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request

Floats = npt.NDArray[np.float64]

Reading = tuple[float, tuple[float, ...]]
"""A time, and the seconds that each hold had lasted by then."""

_HELD = tuple(f"waited_{hold.name.lower()}_s" for hold in Hold)

WAITS = ("waited_step_s", *_HELD)
"""Parts of the time from arrival to the first admission."""

STAYS = ("prefill_s", "decode_s", "preempted_s", "recompute_s")
"""Parts of the time from there to the last token."""

PARTS = (*WAITS, *STAYS)
"""All parts: they add up to the end-to-end latency."""


class Parts:
    """The parts of every request of a run, as columns.

    Parameters
    ----------
    rows
        Requests of the run.
    """

    def __init__(self, rows: int) -> None:
        self.seconds: dict[str, Floats] = {name: np.zeros(rows) for name in PARTS}

    def columns(
        self,
        *,
        scheduled_s: Floats,
        first_token_s: Floats,
        finish_s: Floats,
        preempted: npt.NDArray[np.int32],
    ) -> dict[str, Floats]:
        """Return the columns, NaN where a part has no end yet.

        Parameters
        ----------
        scheduled_s, first_token_s, finish_s
            Moments of each request, NaN where it has none, ``[rows]``.
        preempted
            How often each was preempted, ``[rows]``.
        """
        seconds = dict(self.seconds)
        # Without preemptions the batch is entered and left once, and nothing had to be kept.
        once = preempted == 0
        # Where no output was asked for, the token that ends the prefill is not told.
        token_s = np.where(np.isnan(first_token_s), finish_s, first_token_s)
        seconds["prefill_s"] = np.where(once, token_s - scheduled_s, seconds["prefill_s"])
        seconds["decode_s"] = np.where(once, finish_s - token_s, seconds["decode_s"])
        ends = dict.fromkeys(WAITS, scheduled_s) | dict.fromkeys(STAYS, finish_s)
        ends["prefill_s"] = token_s
        return {name: np.where(np.isnan(ends[name]), np.nan, seconds[name]) for name in PARTS}


class Timekeeper:
    """Tells the parts apart for the requests of one replica.

    ``arrive``, ``plan`` and ``finish`` are told what happens, in order of time.

    Parameters
    ----------
    parts
        Where the times are kept.
    """

    def __init__(self, parts: Parts) -> None:
        self._seconds = parts.seconds
        self._step_s = parts.seconds["waited_step_s"]
        self._held = [self._seconds[name] for name in _HELD]
        self._held_s = [0.0] * len(Hold)
        self._hold: Hold | None = None
        self._since_s = 0.0
        self._arrived: list[Request] = []
        self._waiting: dict[int, Reading] = {}
        self._resumed_s: dict[int, float] = {}
        self._preempted_s: dict[int, float] = {}

    def arrive(self, request: Request) -> None:
        """Note that a request entered the queue; until the next plan a step is under way."""
        self._arrived.append(request)

    def plan(self, now_s: float, plan: StepPlan) -> None:
        """Note who was admitted and preempted, and what holds the rest from now on."""
        if self._arrived or plan.new or plan.resumed or plan.preempted:
            self._move(plan, self._read(now_s))
        if plan.hold is not self._hold:
            self._count(now_s)
            self._hold = plan.hold

    def finish(self, request: Request) -> None:
        """Note the end of a request; what it did in one stay follows from its moments alone.

        One that has not finished, because its client gave up or the run ends, is forgotten.
        """
        if request.finish_s is None:
            self._forget(request)
            return
        if not request.num_preemptions:
            return
        preempted_s = self._preempted_s.pop(request.id, None)
        if preempted_s is None:
            self._leave(request, request.finish_s)
        else:
            # Its last token was under way when it lost its memory.
            self._seconds["preempted_s"][request.id] += request.finish_s - preempted_s

    def _forget(self, request: Request) -> None:
        if request in self._arrived:
            self._arrived.remove(request)
        for kept in (self._waiting, self._resumed_s, self._preempted_s):
            kept.pop(request.id, None)

    def _count(self, now_s: float) -> None:
        """Count how long the present hold has lasted."""
        if self._hold is not None:
            self._held_s[self._hold] += now_s - self._since_s
        self._since_s = now_s

    def _read(self, now_s: float) -> Reading:
        self._count(now_s)
        return now_s, tuple(self._held_s)

    def _move(self, plan: StepPlan, reading: Reading) -> None:
        now_s = reading[0]
        for request in self._arrived:
            self._waiting[request.id] = reading
        self._arrived.clear()
        for request in plan.preempted:
            self._leave(request, now_s)
            self._preempted_s[request.id] = now_s
        for request in plan.new:
            seen = self._waiting.pop(request.id)
            if seen[0] != request.arrival_s:
                self._step_s[request.id] = seen[0] - request.arrival_s
            if seen is not reading:
                self._admit(request, seen, reading)
        for request in plan.resumed:
            row = request.id
            self._seconds["preempted_s"][row] += now_s - self._preempted_s.pop(row)
            self._resumed_s[row] = now_s

    def _admit(self, request: Request, seen: Reading, reading: Reading) -> None:
        """Write down what a request has waited for since a plan first passed it over."""
        for column, before, after in zip(self._held, seen[1], reading[1], strict=True):
            if before != after:
                column[request.id] = after - before

    def _leave(self, request: Request, now_s: float) -> None:
        """Divide a stay in the batch that ends now."""
        row = request.id
        resumed_s = self._resumed_s.pop(row, None)
        name, from_s = (
            ("prefill_s", request.first_scheduled_s)
            if resumed_s is None
            else ("recompute_s", resumed_s)
        )
        assert from_s is not None  # it was in the batch
        caught_up_s = now_s if request.caught_up_s is None else request.caught_up_s
        self._seconds[name][row] += caught_up_s - from_s
        self._seconds["decode_s"][row] += now_s - caught_up_s
