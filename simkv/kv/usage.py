"""Memory accounts: what the slots of a pool are doing at one moment (docs/metrics.md)."""

from typing import NamedTuple


class Usage(NamedTuple):
    """Slots by what they hold; the first seven add up to the pool.

    Parameters
    ----------
    tokens
        Slots that hold a live token's state; a shared block counts once.
    tail
        The unused end of each sequence's last block (paged).
    reserved
        Allocated, empty now, used by this sequence later (contiguous).
    over_reserved
        Allocated and never used before the sequence ends (contiguous).
    unreachable
        Free, but in no hole that takes the reservation at the head of the queue.
    cached
        Held by nobody, with content that a later prompt can hit; given up on demand.
    free
        The rest.
    rounding
        The part of ``unreachable`` that an allocator's rounding loses; also counted there.
    logical_tokens
        Live tokens summed over sequences: above ``tokens`` where blocks are shared.
    blocks_saved
        Blocks that sequences hold together, less those that are really taken.
    """

    tokens: int = 0
    tail: int = 0
    reserved: int = 0
    over_reserved: int = 0
    unreachable: int = 0
    cached: int = 0
    free: int = 0
    rounding: int = 0
    logical_tokens: int = 0
    blocks_saved: int = 0

    @property
    def pool(self) -> int:
        """All slots, by the equation of the accounts."""
        return (
            self.tokens
            + self.tail
            + self.reserved
            + self.over_reserved
            + self.unreachable
            + self.cached
            + self.free
        )


COUNTS = Usage._fields
