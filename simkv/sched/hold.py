"""Why the head of the waiting queue is not admitted in a step."""

from enum import Enum


class Hold(Enum):
    """What keeps the head, and so everybody behind it, out of the batch (rule 4).

    They are told in the order in which the scheduler asks: where two hold, it is the first.
    """

    PREEMPTION = "preemption"
    """The step preempted somebody, and such a step admits nobody."""
    TOKEN_BUDGET = "token-budget"
    """The step's tokens are given away, or too few are left for a prompt that must not be split."""
    BATCH_SLOT = "batch-slot"
    """As many requests run as may."""
    MEMORY = "memory"
    """Its blocks, or those of its whole prompt, are not free."""
