"""The seam between deciding and executing: a plan goes out, a result comes back."""

from dataclasses import dataclass, field

from simkv.kv.ops import MemoryOps
from simkv.sched.hold import Hold
from simkv.sched.request import Request
from simkv.sched.work import StepWork

Entry = tuple[Request, int, int]
"""One request's share of a step: the request, its new tokens, the tokens computed before."""


@dataclass(slots=True)
class StepPlan:
    """What one step of a replica computes.

    Parameters
    ----------
    entries
        In the order in which they were scheduled.
    work
        The numbers that a cost model may see.
    num_steps
        For how many steps the plan holds: 1, or more from a scheduler that leaps.
    new, resumed, preempted
        Requests admitted for the first time, admitted again, and preempted, in order.
    num_tokens
        Tokens that the step computes.
    hit_tokens
        Tokens that the admitted ones found in the prefix cache, all together.
    ops
        What is to be done to memory before the step; None where nobody was ever forked.
    hold
        Why the head of the queue still waits; None if nobody does.
    """

    entries: list[Entry] = field(default_factory=list)
    work: StepWork = field(default_factory=StepWork)
    num_steps: int = 1
    new: list[Request] = field(default_factory=list)
    resumed: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    num_tokens: int = 0
    hit_tokens: int = 0
    ops: MemoryOps | None = None
    hold: Hold | None = None


@dataclass(slots=True)
class StepResult:
    """What became of a plan.

    Parameters
    ----------
    end_s
        When the step ended; its tokens exist from then on.
    num_steps
        How many of the planned steps were done: fewer where something cut them short.
    """

    end_s: float
    num_steps: int = 1
