"""Why the head of the waiting queue is not admitted in a step."""

from enum import IntEnum


class Hold(IntEnum):
    """What keeps the head, and so everybody behind it, out of the batch (rule 4).

    They stand in the order in which the scheduler asks: where two hold, the first is told.
    """

    PREEMPTION = 0
    """The step preempted somebody, and such a step admits nobody."""
    TOKEN_BUDGET = 1
    """The step's tokens are given away, or too few are left for a prompt that must not be split."""
    BATCH_SLOT = 2
    """As many requests run as may."""
    MEMORY = 3
    """Its blocks, or those of its whole prompt, are not free."""
