"""What must be done to KV memory before a step runs: data, for an executor to do or to price."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class MemoryOps:
    """Copies, in the order in which they are to be done.

    Parameters
    ----------
    num_copies
        Blocks copied because a sequence wrote to one that it shared.
    copied_tokens
        Tokens in those blocks.
    copies
        ``(from block, to block)`` of each copy; empty where a manager keeps no block ids.
    """

    num_copies: int = 0
    copied_tokens: int = 0
    copies: list[tuple[int, int]] = field(default_factory=list)
