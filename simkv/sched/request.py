"""A request on its way through one replica, and the moves that its life allows."""

from dataclasses import dataclass
from enum import Enum

from simkv.errors import InvariantError
from simkv.kv.sequence import Sequence


class Status(Enum):
    """Where a request is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"
    ABORTED = "aborted"

    # Members are equal if they are the same. Enum's own hash is a Python function, and every move
    # looks two of them up.
    __hash__ = object.__hash__


_ALLOWED = {
    Status.WAITING: {Status.RUNNING, Status.ABORTED},
    Status.RUNNING: {Status.PREEMPTED, Status.FINISHED, Status.ABORTED},
    Status.PREEMPTED: {Status.RUNNING, Status.FINISHED, Status.ABORTED},
    Status.FINISHED: set(),
    Status.ABORTED: set(),
}


@dataclass(slots=True, eq=False, kw_only=True)
class Request(Sequence):
    """One request: its sequence, what it asks for, and what has happened to it.

    Parameters
    ----------
    arrival_s
        When it reached the replica's queue.
    prompt_tokens, output_tokens
        Lengths; the output is known beforehand, as in a trace.
    priority
        A smaller number goes first.
    arrival_rank
        Tells apart requests that arrive at one moment. No two reach a server at the very same time,
        and under priority vLLM's choice of a victim (rule 3.4) relies on that: equal ones may
        preempt each other for ever. The replayed step logs do have equal ones: 0 for all.
    tie
        Orders requests of equal priority and arrival; None takes the id.
    first_scheduled_s, first_token_s, finish_s
        Set by the scheduler; None until it happens.
    caught_up_s
        End of the step that gave it a token first since it was last admitted, so that it knows
        more than it ever did; None until then.
    hit_tokens
        Prompt tokens found in the prefix cache when it was first admitted.
    num_placeholders
        Tokens that it has sampled, or will in a step under way, and that are not known yet; more
        than 0 only where steps are planned ahead.
    num_preemptions
        How often it lost its memory and had to start again.
    recomputed_tokens
        Tokens that were computed, lost by a preemption and not found in the cache again.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    arrival_rank: int = 0
    tie: int | None = None
    status: Status = Status.WAITING
    first_scheduled_s: float | None = None
    first_token_s: float | None = None
    finish_s: float | None = None
    caught_up_s: float | None = None
    hit_tokens: int = 0
    num_placeholders: int = 0
    num_preemptions: int = 0
    lost_tokens: int = 0
    recomputed_tokens: int = 0

    def move(self, status: Status) -> None:
        """Enter another part of its life, if the table of moves allows it."""
        if status not in _ALLOWED[self.status]:
            raise InvariantError(f"request {self.id} cannot go from {self.status} to {status}")
        self.status = status

    def catch_up(self, end_s: float) -> None:
        """Note the first token since the last admission, or of all, at the end of its step."""
        self.caught_up_s = end_s
        if self.first_token_s is None:
            self.first_token_s = end_s

    @property
    def order(self) -> tuple[int, float, int, int]:
        """Sort key of the priority policy: priority, arrival, tie."""
        tie = self.id if self.tie is None else self.tie
        return (self.priority, self.arrival_s, self.arrival_rank, tie)
