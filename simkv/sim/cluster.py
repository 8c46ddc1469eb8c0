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
        self._followers = _followers(trace)
        self._views = Views(self.replicas)
        self._has_content = len(trace.segment_id) > 0
        self._most_tokens = 0  # of a request that is known to fit
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
        now_s, due = self.env.now, self._due
        while due is not None:
            if due[0] > now_s:
                now_s = due[0]
                if not self.env.pass_to(now_s):
                    self.env.at(now_s, self._arrive, priority=URGENT)
                    break
            self._route(due, now_s)
            due = self._due = next(self._arrivals, None)

    def _route(self, arrival: _Arrival, now_s: float) -> None:
        _, row, prompt_tokens, output_tokens, priority, patience_s = arrival
        self.last_s = now_s
        # A request that asks for no output still samples the token that ends its prefill.
        total = prompt_tokens + max(output_tokens, 1)
        if total > self._most_tokens and not self._fits(row, total):
            return
        segments = self.trace.segments(row) if self._has_content else []
        request = Request(
            id=row,
            segments=cover(segments, total, row),
            num_tokens=prompt_tokens,
            final_tokens=total - 1,
            arrival_s=now_s,
            arrival_rank=self._num_routed,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
        )
        replica = self.replicas[self.router.choose(self._views, self._num_routed)]
        self._num_routed += 1
        replica.submit(request)
        if patience_s < math.inf:
            give_up = partial(self._give_up, replica, request)
            self.env.at(now_s + patience_s, give_up, priority=URGENT)

    def _fits(self, row: int, total_tokens: int) -> bool:
        """Whether a request of so many tokens can ever run; if not, it is rejected."""
        scheduler = self.replicas[0].scheduler  # replicas are equal
        if total_tokens > scheduler.max_model_len:
            self.recorder.rejection(row, self.env.now, "exceeds-model-limit")
        elif not scheduler.kv.can_ever_hold(total_tokens - 1):
            self.recorder.rejection(row, self.env.now, "exceeds-pool")
        else:
            self._most_tokens = total_tokens
            return True
        self._done(row)
        return False

    def _give_up(self, replica: Replica, request: Request, _event: simpy.Event) -> None:
        self.last_s = self.env.now
        replica.give_up(request)

    def _release(self, row: int, _event: simpy.Event) -> None:
        trace = self.trace
        prompt_tokens, output_tokens = int(trace.prompt_tokens[row]), int(trace.output_tokens[row])
        priority, patience_s = int(trace.priority[row]), float(trace.patience_s[row])
        now_s = self.env.now
        self._route((now_s, row, prompt_tokens, output_tokens, priority, patience_s), now_s)

    def _done(self, row: int) -> None:
        for follower in self._followers.get(row, ()) if self._followers else ():
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
