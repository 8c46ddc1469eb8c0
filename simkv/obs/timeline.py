"""A run as a timeline in the trace-event format, which ui.perfetto.dev opens.

Each replica is a process with counters, and with lanes (threads) of requests: a request takes the
lowest free lane from its arrival to its end and is one span there, divided into what it was doing.
Times are whole microseconds, so that spans that touch do so after the viewer's rounding too.
docs/timeline.md shows one.
"""

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from simkv.errors import InputError
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler
from simkv.units import US_PER_S

MAX_EVENTS = 1_000_000
"""A viewer in a browser takes about as many."""

# Numbers of lanes do not repeat in another process and are never a process's own number.
_FIRST_LANE = 1_000_001

_ENDS = {Status.FINISHED: "finished", Status.ABORTED: "aborted"}


@dataclass(slots=True)
class _Span:
    """A request that has not ended: where it is drawn, and what it has been doing since when."""

    request: Request
    replica: int
    lane: int
    phases: list[tuple[float, str]]


@dataclass(slots=True)
class _Process:
    """A replica's lanes that are free now, and the counters that were written last."""

    num_lanes: int = 0
    free_lanes: list[int] = field(default_factory=list)
    counted: dict[str, dict[str, int]] = field(default_factory=dict)


class Timeline:
    """A watcher that writes what it sees into a file, which appears when all is well.

    Used as a context: the file replaces an earlier one at the end, and nothing is left where an
    error ends the run.

    Parameters
    ----------
    path
        The file to write.
    max_events
        After so many the timeline ends, and ``warnings`` says so.

    Raises
    ------
    InputError
        If the path is a folder.
    """

    def __init__(self, path: Path, *, max_events: int = MAX_EVENTS) -> None:
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file for the timeline, such as out.json")
        self.num_events = 0
        self._path = path
        self._max_events = max_events
        path.parent.mkdir(parents=True, exist_ok=True)
        self._partial = path.with_name(f".{path.name}.part")
        self._file = self._partial.open("w", encoding="utf-8")
        self._file.write('{"displayTimeUnit":"ms","traceEvents":[')
        self._processes: dict[int, _Process] = {}
        self._open: dict[int, _Span] = {}
        self._next_lane = _FIRST_LANE
        self._cut_s: float | None = None
        self._end_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            with self._file:
                if kind is None:
                    self._file.write("\n]}\n")
            if kind is None:
                self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)

    def warnings(self) -> list[str]:
        """Return in a sentence that the timeline ends before the run, or nothing."""
        if self._cut_s is None:
            return []
        return [
            f"{self._path} ends at {self._cut_s:,.1f} s of {self._end_s:,.1f} s, after "
            f"{self.num_events:,} events, about as many as a browser takes; to see all, simulate "
            "fewer requests (workload.transform.max_requests)"
        ]

    def arrived(self, replica: int, now_s: float, request: Request) -> None:
        """Give a request a lane."""
        if self._cut_s is not None:
            return
        process = self._process(replica)
        lane = heapq.heappop(process.free_lanes) if process.free_lanes else self._lane(replica)
        self._open[request.id] = _Span(request, replica, lane, [(now_s, "queue")])

    def planned(self, replica: int, now_s: float, plan: StepPlan, scheduler: Scheduler) -> None:
        """Note who moved between queue and batch, and the counters from now on."""
        if self._is_over(now_s):
            return
        for request in plan.preempted:
            span = self._open[request.id]
            _catch_up(span)
            span.phases.append((now_s, "preempted"))
        for request in plan.new:
            self._open[request.id].phases.append((now_s, "prefill"))
        for request in plan.resumed:
            self._open[request.id].phases.append((now_s, "recompute"))
        self._count(replica, now_s, scheduler)

    def committed(
        self, replica: int, now_s: float, finished: Sequence[Request], scheduler: Scheduler
    ) -> None:
        """Draw those that finished."""
        if self._is_over(now_s):
            return
        for request in finished:
            self._close(replica, now_s, request)

    def aborted(self, replica: int, now_s: float, request: Request) -> None:
        """Draw a request whose client gave up."""
        if not self._is_over(now_s):
            self._close(replica, now_s, request)

    def ended(self, now_s: float) -> None:
        """Draw what is unfinished up to the end."""
        self._end_s = now_s
        if self._cut_s is None:
            self._draw_open(now_s)

    def _is_over(self, now_s: float) -> bool:
        """Whether the timeline has ended; it does so with the first call that finds it full."""
        if self._cut_s is None and self.num_events >= self._max_events:
            self._cut_s = now_s
            self._draw_open(now_s)
        return self._cut_s is not None

    def _process(self, replica: int) -> _Process:
        process = self._processes.get(replica)
        if process is None:
            process = self._processes[replica] = _Process()
            self._name("process_name", replica, replica + 1, f"replica {replica}")
        return process

    def _lane(self, replica: int) -> int:
        """Open another lane on a replica."""
        process, lane = self._processes[replica], self._next_lane
        self._next_lane += 1
        process.num_lanes += 1
        self._name("thread_name", replica, lane, f"lane {process.num_lanes}")
        return lane

    def _name(self, kind: str, replica: int, lane: int, name: str) -> None:
        self._write(
            {"ph": "M", "name": kind, "pid": replica + 1, "tid": lane, "args": {"name": name}}
        )

    def _count(self, replica: int, now_s: float, scheduler: Scheduler) -> None:
        """Write the counters that have changed."""
        kv = scheduler.kv
        usage, size = kv.usage(), kv.block_tokens
        cached, free = usage.cached // size, usage.free // size
        counters = {
            "requests": {"batch": len(scheduler.running), "waiting": len(scheduler.waiting)},
            "blocks": {
                "used": kv.pool_slots // size - cached - free,
                "cached": cached,
                "free": free,
            },
        }
        counted = self._process(replica).counted
        for name, values in counters.items():
            if counted.get(name) != values:
                counted[name] = values
                self._write(
                    {"ph": "C", "name": name, "ts": _us(now_s), "pid": replica + 1,
                     "tid": replica + 1, "args": values}
                )  # fmt: skip

    def _close(self, replica: int, now_s: float, request: Request) -> None:
        span = self._open.pop(request.id)
        heapq.heappush(self._process(replica).free_lanes, span.lane)
        self._draw(span, now_s)

    def _draw_open(self, now_s: float) -> None:
        for span in self._open.values():
            self._draw(span, now_s)
        self._open.clear()

    def _draw(self, span: _Span, end_s: float) -> None:
        """Write a request's span, then what it is divided into: whoever contains goes first."""
        request = span.request
        _catch_up(span)
        self._draw_one(
            span,
            f"request {request.id}",
            span.phases[0][0],
            end_s,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            hit_tokens=request.hit_tokens,
            num_preemptions=request.num_preemptions,
            recomputed_tokens=request.recomputed_tokens,
            status=_ENDS.get(request.status, "unfinished"),
        )
        ends = [start_s for start_s, _ in span.phases[1:]] + [end_s]
        for (start_s, name), stop_s in zip(span.phases, ends, strict=True):
            if _us(start_s) < _us(stop_s):
                self._draw_one(span, name, start_s, stop_s, request=request.id)

    def _draw_one(
        self, span: _Span, name: str, start_s: float, end_s: float, **args: object
    ) -> None:
        start_us = _us(start_s)
        self._write(
            {"ph": "X", "name": name, "ts": start_us, "dur": _us(end_s) - start_us,
             "pid": span.replica + 1, "tid": span.lane, "args": args}
        )  # fmt: skip

    def _write(self, event: dict[str, Any]) -> None:
        self._file.write(",\n" if self.num_events else "\n")
        self._file.write(json.dumps(event, separators=(",", ":")))
        self.num_events += 1


def _catch_up(span: _Span) -> None:
    """Divide a stay in the batch, prefill or recompute, where its first token came."""
    caught_up_s, (start_s, name) = span.request.caught_up_s, span.phases[-1]
    if name in ("prefill", "recompute") and caught_up_s is not None and caught_up_s >= start_s:
        span.phases.append((caught_up_s, "decode"))


def _us(time_s: float) -> int:
    return round(time_s * US_PER_S)
