"""Contiguous memory: each sequence lives in one piece that is reserved when it is admitted.

Here is the baseline that reserves the longest length a request may have, as engines did before
paging (the "Orca (Max)" of the SOSP'23 paper on PagedAttention, section 6.1). A reservation is
placed in the first hole that takes it; nothing is shared and nothing moves.
"""

from bisect import bisect_left
from typing import Any

from simkv.kv.ops import MemoryOps
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


class Holes:
    """The free stretches of a pool of slots, in order of address; first fit."""

    def __init__(self, num_slots: int) -> None:
        self._starts = [0] if num_slots else []
        self._ends = [num_slots] if num_slots else []

    def __iter__(self) -> "zip[tuple[int, int]]":
        return zip(self._starts, self._ends, strict=True)

    def find(self, num_slots: int) -> int | None:
        """Return the start of the first hole that takes so many slots."""
        return next((start for start, end in self if end - start >= num_slots), None)

    def take(self, start: int, num_slots: int) -> None:
        """Cut slots off the front of the hole that begins at ``start``."""
        index = bisect_left(self._starts, start)
        self._starts[index] += num_slots
        if self._starts[index] == self._ends[index]:
            del self._starts[index], self._ends[index]

    def give_back(self, start: int, num_slots: int) -> None:
        """Make slots free again and merge them with the holes that they touch."""
        end = start + num_slots
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end = self._ends[index]
            del self._starts[index], self._ends[index]
        if index and self._ends[index - 1] == start:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)


class Reservations:
    """The pool of one replica in contiguous pieces of one length.

    Parameters
    ----------
    num_slots
        Slots of the pool.
    reserve_tokens
        Slots that each sequence reserves, its greatest allowed length.
    """

    block_tokens = 1
    grows = False
    shares = False
    num_stored = 0
    num_evicted = 0

    def __init__(self, *, num_slots: int, reserve_tokens: int) -> None:
        self.pool_slots = num_slots
        self.reserve_tokens = reserve_tokens
        self._holes = Holes(num_slots)
        self._num_held = 0
        self._computed_tokens = 0
        self._final_tokens = 0
        self._ops = MemoryOps()

    @property
    def num_free_blocks(self) -> int:
        """Slots that are reserved by nobody."""
        return self.pool_slots - self._num_held * self.reserve_tokens

    @property
    def holes(self) -> Holes:
        """The free stretches, for checks."""
        return self._holes

    def can_ever_hold(self, num_tokens: int) -> bool:
        """Whether a sequence of this many tokens fits when it is alone."""
        return num_tokens <= self.reserve_tokens <= self.pool_slots

    def match(self, sequence: Sequence) -> int:
        """Return 0: nothing is shared."""
        return 0

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        """Reserve the greatest length; a reservation covers every check that paging needs."""
        start = self._holes.find(self.reserve_tokens)
        if start is None:
            return False
        self._holes.take(start, self.reserve_tokens)
        self._num_held += 1
        self._final_tokens += sequence.final_tokens
        sequence.table = start
        # Never reached by a sequence within the model's limit: there is nothing to grow into.
        sequence.capacity_tokens = self.reserve_tokens + 1
        return True

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        """Return whether the reservation covers ``target_tokens``."""
        return target_tokens <= self.reserve_tokens

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Do nothing: nothing is shared."""

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Reserve a piece for the child and copy the parent's tokens there: nothing is shared."""
        fits = self.admit(child, 0, hit_tokens=0, full_tokens=0, watermark_ratio=0.0)
        if fits:
            self._computed_tokens += child.computed_tokens
            self._ops.num_copies += 1
            self._ops.copied_tokens += child.computed_tokens
        return fits

    def take_ops(self) -> MemoryOps:
        """Return what is to be done before the next step, and forget it."""
        ops, self._ops = self._ops, MemoryOps()
        return ops

    def release(self, sequence: Sequence) -> None:
        """Take back the reservation."""
        self._holes.give_back(sequence.table, self.reserve_tokens)
        self._num_held -= 1
        self._final_tokens -= sequence.final_tokens
        self._computed_tokens -= sequence.computed_tokens
        sequence.table = None
        sequence.capacity_tokens = 0

    def advance(self, num_tokens: int) -> None:
        """Note that the sequences that hold memory compute so many more tokens, all together."""
        self._computed_tokens += num_tokens

    def lend(self, num_blocks: int, num_tokens: int) -> None:
        """Count tokens: a reservation covers all growth."""
        self._computed_tokens += num_tokens

    def settle(self, sequence: Sequence) -> None:
        """Do nothing: a reservation does not change."""

    def retire(self, sequence: Sequence) -> None:
        """Take back the reservation of a sequence that ended."""
        self.release(sequence)

    def open_segments(self, sequence: Sequence) -> list[int]:
        """Return none: nothing is shared."""
        return []

    def counters(self) -> tuple[int, ...]:
        """Return reservations, final and live tokens, and slots that a reservation could take."""
        sizes = (end - start for start, end in self._holes)
        reachable = sum(size for size in sizes if size >= self.reserve_tokens)
        return (self._num_held, self._final_tokens, self._computed_tokens, reachable)

    def grown(self, counters: Any, more_tokens: Any, more_blocks: Any) -> tuple[Any, ...]:
        """Return what ``counters`` become where sequences only grow."""
        num_held, final, computed, reachable = counters
        return (num_held, final, computed + more_tokens, reachable)

    def usage_of(self, counters: Any) -> Usage:
        """Return what the slots are doing, given all counters."""
        num_held, final, computed, reachable = counters
        held = num_held * self.reserve_tokens
        return Usage(
            tokens=computed,
            reserved=final - computed,
            over_reserved=held - final,
            unreachable=self.pool_slots - held - reachable,
            free=reachable,
            logical_tokens=computed,
        )

    def usage(self) -> Usage:
        """Return what the slots are doing now."""
        return self.usage_of(self.counters())
