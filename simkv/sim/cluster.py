"""A cluster in simulated time: requests arrive, are routed, or are rejected with a reason."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import overload

import numpy as np
import simpy
from simpy.events import URGENT

from simkv.kv.sequence import cover
from simkv.obs.recorder import Recorder
from simkv.route.policy import ReplicaView, Router
from simkv.sched.request import Request, Status
from simkv.sim.call import Call
from simkv.sim.replica import Replica
from simkv.workload.trace import Trace


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
        env: simpy.Environment,
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
        self._num_routed = 0
        self._followers = _followers(trace)
        timed = np.isfinite(trace.arrival_s).nonzero()[0]
        order = timed[np.argsort(trace.arrival_s[timed], kind="stable")]
        self._order: list[int] = order.tolist()
        self._arrival_s: list[float] = trace.arrival_s[order].tolist()
        self._prompt_tokens: list[int] = trace.prompt_tokens.tolist()
        self._output_tokens: list[int] = trace.output_tokens.tolist()
        self._priority: list[int] = trace.priority.tolist()
        self._patience_s: list[float] = trace.patience_s.tolist()
        self._next = 0

    def start(self) -> None:
        """Wait for the first arrival."""
        if self._order:
            Call(self.env, self._arrival_s[0] - self.env.now, self._arrive, priority=URGENT)

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
        """Route every request that is due, then wait for the next."""
        due_s = self._arrival_s[self._next]
        while self._next < len(self._order) and self._arrival_s[self._next] == due_s:
            self._route(self._order[self._next])
            self._next += 1
        if self._next < len(self._order):
            delay_s = max(0.0, self._arrival_s[self._next] - self.env.now)
            Call(self.env, delay_s, self._arrive, priority=URGENT)

    def _route(self, row: int) -> None:
        now_s = self.env.now
        self.recorder.arrival(row, now_s)
        request = self._request(row, now_s)
        reason = self._reason_to_reject(request)
        if reason:
            self.recorder.rejection(row, reason)
            self._done(row)
            return
        index = self.router.choose(Views(self.replicas), self._num_routed)
        self._num_routed += 1
        replica = self.replicas[index]
        replica.submit(request)
        patience_s = self._patience_s[row]
        if math.isfinite(patience_s):
            give_up = partial(self._give_up, replica, request)
            Call(self.env, patience_s, give_up, priority=URGENT)

    def _request(self, row: int, now_s: float) -> Request:
        prompt, output = self._prompt_tokens[row], self._output_tokens[row]
        # A request that asks for no output still samples the token that ends its prefill.
        total = prompt + max(output, 1)
        return Request(
            id=row,
            segments=cover(self.trace.segments(row), total, row),
            num_tokens=prompt,
            final_tokens=total - 1,
            arrival_s=now_s,
            prompt_tokens=prompt,
            output_tokens=output,
            priority=self._priority[row],
        )

    def _reason_to_reject(self, request: Request) -> str:
        """Return why a request can never run, empty if it can; replicas are equal."""
        scheduler = self.replicas[0].scheduler
        if request.final_tokens + 1 > scheduler.max_model_len:
            return "exceeds-model-limit"
        if not scheduler.kv.can_ever_hold(request.final_tokens):
            return "exceeds-pool"
        return ""

    def _give_up(self, replica: Replica, request: Request, _event: simpy.Event) -> None:
        if request.status not in (Status.FINISHED, Status.ABORTED):
            replica.give_up(request)

    def _release(self, row: int, _event: simpy.Event) -> None:
        self._route(row)

    def _done(self, row: int) -> None:
        for follower in self._followers.get(row, ()):
            think_s = float(np.nan_to_num(self.trace.think_s[follower]))
            Call(self.env, think_s, partial(self._release, follower), priority=URGENT)
        self.num_done += 1
        if self.progress and self.num_done % 256 == 0:
            self.progress(self.num_done / self.trace.num_requests)


def _followers(trace: Trace) -> dict[int, list[int]]:
    followers: dict[int, list[int]] = {}
    for row in np.isnan(trace.arrival_s).nonzero()[0].tolist():
        followers.setdefault(int(trace.after[row]), []).append(row)
    return followers
