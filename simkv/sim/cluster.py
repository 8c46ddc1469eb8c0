"""A cluster in simulated time: requests arrive, are routed, or are rejected with a reason."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import overload

import numpy as np
import simpy
from simpy.events import URGENT

from simkv.kv.sequence import cover
from simkv.obs.recorder import Recorder
from simkv.route.policy import ReplicaView, Router
from simkv.sched.request import Request
from simkv.sim.clock import Clock
from simkv.sim.replica import Replica
from simkv.workload.trace import Trace

_Arrival = tuple[float, int, int, int, int, float]
"""When a request is due, its row, prompt and output tokens, priority, and its client's patience."""

_ROWS_AT_ONCE = 4096


class Views(Sequence[ReplicaView]):
    """Replicas as a router sees them; a snapshot is made when it is looked at."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self._replicas = replicas

    def __len__(self) -> int:
        return len(self._replicas)

    @overload
    def __getitem__(self, index: int) -> ReplicaView: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ReplicaView]: ...
    def __getitem__(self, index: int | slice) -> ReplicaView | Sequence[ReplicaView]:
        if isinstance(index, slice):
            return [replica.view() for replica in self._replicas[index]]
        return self._replicas[index].view()


class Cluster:
    """Brings the requests of a trace to replicas, at their times or after other requests.

    A request without an arrival time is released by the end of the request that it names.

    Parameters
    ----------
    env
        The clock.
    trace
        The requests.
    router
        Chooses a replica for each.
    recorder
        Takes down arrivals, rejections and ends.
    progress
        Called now and then with the share of requests that are done.
    """

    def __init__(
        self,
        env: Clock,
        trace: Trace,
        router: Router,
        recorder: Recorder,
        progress: Callable[[float], None] | None,
    ) -> None:
        self.env = env
        self.trace = trace
        self.router = router
        self.recorder = recorder
        self.progress = progress
        self.replicas: list[Replica] = []
        self.num_done = 0
        self.last_s = 0.0  # when somebody last arrived, or gave up
        self._num_routed = 0
        self._num_arrived = 0
        self._followers = _followers(trace)
        self._arrivals = _arrivals(trace)
        self._due: _Arrival | None = next(self._arrivals, None)

    @property
    def has_followers(self) -> bool:
        """Whether the end of a request brings another."""
        return bool(self._followers)

    def start(self) -> None:
        """Wait for the first arrival."""
        if self._due is not None:
            self.env.at(self._due[0], self._arrive, priority=URGENT)

    def finish(self, replica: int, request: Request) -> None:
        """Record a finished request and release those that waited for it."""
        self.recorder.progress(replica, request)
        self._done(request.id)

    def abort(self, replica: int, request: Request) -> None:
        """Record a request whose client gave up; what would have followed is given up too."""
        self.recorder.progress(replica, request)
        given_up = [request.id]
        for row in given_up:
            self.recorder.abortion(row)
            self.num_done += 1
            given_up += self._followers.get(row, ())

    def _arrive(self, _event: simpy.Event) -> None:
        """Route every request that is due, up to the next that something else may come before."""
        clock, due = self.env, self._due
        while due is not None:
            if due[0] > clock.now:
                if due[0] >= clock.peek():
                    clock.at(due[0], self._arrive, priority=URGENT)
                    break
                clock.skip_to(due[0])
            self._route(due)
            due = self._due = next(self._arrivals, None)

    def _route(self, arrival: _Arrival) -> None:
        _, row, prompt_tokens, output_tokens, priority, patience_s = arrival
        now_s = self.last_s = self.env.now
        self.recorder.arrival(row, now_s)
        # A request that asks for no output still samples the token that ends its prefill.
        total = prompt_tokens + max(output_tokens, 1)
        reason = self._reason_to_reject(total)
        if reason:
            self.recorder.rejection(row, reason)
            self._done(row)
            return
        self._num_arrived += 1
        request = Request(
            id=row,
            segments=cover(self.trace.segments(row), total, row),
            num_tokens=prompt_tokens,
            final_tokens=total - 1,
            arrival_s=now_s,
            arrival_rank=self._num_arrived,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
        )
        index = self.router.choose(Views(self.replicas), self._num_routed)
        self._num_routed += 1
        replica = self.replicas[index]
        replica.submit(request)
        if math.isfinite(patience_s):
            give_up = partial(self._give_up, replica, request)
            self.env.at(now_s + patience_s, give_up, priority=URGENT)

    def _reason_to_reject(self, total_tokens: int) -> str:
        """Return why a request can never run, empty if it can; replicas are equal."""
        scheduler = self.replicas[0].scheduler
        if total_tokens > scheduler.max_model_len:
            return "exceeds-model-limit"
        if not scheduler.kv.can_ever_hold(total_tokens - 1):
            return "exceeds-pool"
        return ""

    def _give_up(self, replica: Replica, request: Request, _event: simpy.Event) -> None:
        self.last_s = self.env.now
        replica.give_up(request)

    def _release(self, row: int, _event: simpy.Event) -> None:
        trace = self.trace
        self._route(
            (
                self.env.now,
                row,
                int(trace.prompt_tokens[row]),
                int(trace.output_tokens[row]),
                int(trace.priority[row]),
                float(trace.patience_s[row]),
            )
        )

    def _done(self, row: int) -> None:
        for follower in self._followers.get(row, ()):
            think_s = float(np.nan_to_num(self.trace.think_s[follower]))
            release = partial(self._release, follower)
            self.env.at(self.env.now + think_s, release, priority=URGENT)
        self.num_done += 1
        if self.progress and self.num_done % 256 == 0:
            self.progress(self.num_done / self.trace.num_requests)


def _arrivals(trace: Trace) -> Iterator[_Arrival]:
    """Yield the arrivals whose times are known, in order; few at a time are Python's objects."""
    timed = np.isfinite(trace.arrival_s).nonzero()[0]
    order = timed[np.argsort(trace.arrival_s[timed], kind="stable")]
    columns = (trace.prompt_tokens, trace.output_tokens, trace.priority, trace.patience_s)
    for first in range(0, len(order), _ROWS_AT_ONCE):
        rows = order[first : first + _ROWS_AT_ONCE]
        yield from zip(
            trace.arrival_s[rows].tolist(),
            rows.tolist(),
            *(column[rows].tolist() for column in columns),
            strict=True,
        )


def _followers(trace: Trace) -> dict[int, list[int]]:
    followers: dict[int, list[int]] = {}
    for row in np.isnan(trace.arrival_s).nonzero()[0].tolist():
        followers.setdefault(int(trace.after[row]), []).append(row)
    return followers
