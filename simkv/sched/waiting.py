"""The queue of waiting requests, preempted ones included: by arrival or by priority."""

import heapq
from collections import deque
from collections.abc import Iterator
from typing import Protocol

from simkv.sched.request import Request


class WaitingQueue(Protocol):
    """A queue with one head; a blocked head blocks all behind it."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Request]: ...

    def head(self) -> Request:
        """Return the next request."""
        ...

    def pop(self) -> Request:
        """Take the next request out."""
        ...

    def add(self, request: Request) -> None:
        """Enter a request that arrived."""
        ...

    def put_back(self, request: Request) -> None:
        """Enter a request that was preempted."""
        ...

    def remove(self, request: Request) -> None:
        """Take a request out of the middle: it was aborted."""
        ...


class ArrivalQueue(deque[Request]):
    """First come, first served; preempted requests go to the front (rule 1.4)."""

    def head(self) -> Request:
        """Return the next request."""
        return self[0]

    pop = deque.popleft  # the head, not the tail
    add = deque.append
    put_back = deque.appendleft


class PriorityQueue:
    """Smallest (priority, arrival, tie) first; preempted requests keep their place (rule 1.4)."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, float, int, int], Request]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Request]:
        return (request for _, request in sorted(self._heap, key=lambda item: item[0]))

    def head(self) -> Request:
        """Return the next request."""
        return self._heap[0][1]

    def pop(self) -> Request:
        """Take the next request out."""
        return heapq.heappop(self._heap)[1]

    def add(self, request: Request) -> None:
        """Enter a request that arrived."""
        heapq.heappush(self._heap, (request.order, request))

    put_back = add

    def remove(self, request: Request) -> None:
        """Take a request out of the middle: it was aborted."""
        self._heap.remove((request.order, request))
        heapq.heapify(self._heap)
