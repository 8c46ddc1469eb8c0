"""Routing policies: frozen values with one pure method that picks a replica.

A policy sees snapshots, never replicas, and keeps no state of its own: how many requests have
been routed so far is handed in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(slots=True)
class ReplicaView:
    """What a router may know of a replica at the moment of an arrival.

    Parameters
    ----------
    num_waiting, num_running
        Requests in its queue (preempted ones included) and in its batch.
    outstanding_tokens
        Tokens still to be computed for all of them: prompts not yet computed and outputs to come.
    free_ratio
        Share of its KV slots that an admission could take now.
    """

    num_waiting: int
    num_running: int
    outstanding_tokens: int
    free_ratio: float


class Router(Protocol):
    """Chooses the replica of an arriving request."""

    def choose(self, views: Sequence[ReplicaView], num_routed: int) -> int:
        """Return the index of the replica; equal views must give equal answers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRobin:
    """Replicas in turn."""

    kind: Literal["round-robin"] = "round-robin"

    def choose(self, views: Sequence[ReplicaView], num_routed: int) -> int:
        """Return the next replica in turn."""
        return num_routed % len(views)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastOutstanding:
    """The replica with the fewest tokens still to compute; the first such on a tie."""

    kind: Literal["least-outstanding-tokens"] = "least-outstanding-tokens"

    def choose(self, views: Sequence[ReplicaView], num_routed: int) -> int:
        """Return the first replica with the least outstanding tokens."""
        return min(range(len(views)), key=lambda index: views[index].outstanding_tokens)


Routing = RoundRobin | LeastOutstanding
