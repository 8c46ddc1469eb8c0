"""Paged memory by accounts: counts and runs, no block ids.

Decides exactly as vLLM V1's block pool does (rules 5 to 7 of its step logs) at a cost that does
not depend on the block size. Of the free queue only one fact needs no list: blocks without a hash
are always at its head, so a number stands for them.
"""

from dataclasses import dataclass, field
from typing import Any

from simkv.kv.ops import MemoryOps
from simkv.kv.prefix import Holding, PrefixCache, Stretch, stretches
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


@dataclass(slots=True)
class Shared:
    """Blocks without a hash that several tables hold since a fork.

    ``tail_slots`` is more than 0 for a partial last block, which its holders have filled equally
    far: whoever writes on in it leaves it for a copy.
    """

    num_blocks: int
    tail_slots: int
    holders: int = 1


@dataclass(slots=True)
class _Table:
    """What one sequence holds: ``num_blocks`` blocks, the first ``num_registered`` with a hash."""

    content: list[Stretch]
    num_blocks: int = 0
    num_registered: int = 0
    held: Holding = field(default_factory=list)
    stretch: int = 0
    shared: list[Shared] = field(default_factory=list)

    @property
    def num_private(self) -> int:
        """Blocks without a hash that nobody else holds, nor did when it was forked."""
        unregistered = self.num_blocks - self.num_registered
        if not self.shared:
            return unregistered
        return unregistered - sum(piece.num_blocks for piece in self.shared)


class Accounts:
    """The pool of one replica: blocks of ``block_tokens`` slots, shared by prefix or not.

    Parameters
    ----------
    block_tokens
        Slots in a block, 1 or more.
    num_blocks
        Blocks of the pool, vLLM's null block included, so one fewer is usable.
    prefix_caching
        Whether full blocks are kept and shared by content.
    """

    grows = True

    def __init__(self, *, block_tokens: int, num_blocks: int, prefix_caching: bool) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = num_blocks
        self.pool_slots = (num_blocks - 1) * block_tokens
        self.shares = prefix_caching
        self._cache = PrefixCache() if prefix_caching else None
        self._num_blank = num_blocks - 1
        self._num_table_blocks = 0
        self._computed_tokens = 0
        # Slots at the end of shared partial blocks, once for each holder but one.
        self._tail_slots_twice = 0
        self._ops = MemoryOps()

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be handed out now, cached ones included."""
        return self._num_blank + (self._cache.num_idle_blocks if self._cache else 0)

    @property
    def num_stored(self) -> int:
        """Registrations in the prefix cache since the start."""
        return self._cache.num_stored if self._cache else 0

    @property
    def num_evicted(self) -> int:
        """Evictions from the prefix cache since the start."""
        return self._cache.num_evicted if self._cache else 0

    @property
    def cache(self) -> PrefixCache | None:
        """The prefix cache, for checks."""
        return self._cache

    def can_ever_hold(self, num_tokens: int) -> bool:
        """Whether a sequence of this many tokens fits when it is alone."""
        return num_tokens <= self.pool_slots

    def match(self, sequence: Sequence) -> int:
        """Return the cached tokens of its prefix, whole blocks, one token left at least (6.2)."""
        if self._cache is None:
            return 0
        limit = (sequence.num_tokens - 1) // self.block_tokens
        return self._cache.match(self._table(sequence).content, limit) * self.block_tokens

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        """Take the hit blocks and hand out new ones for a waiting sequence (5.1 to 5.6)."""
        table = self._table(sequence)
        hit = hit_tokens // self.block_tokens
        most_tokens = target_tokens if target_tokens > full_tokens else full_tokens
        needed = max(0, -(-most_tokens // self.block_tokens) - hit)
        if self._cache and hit:
            needed += self._cache.count_idle(table.content, hit)
        if needed > self.num_free_blocks - int(watermark_ratio * self.num_blocks):
            return False
        if self._cache and hit:
            table.held = self._cache.take(table.content, hit)
            table.num_blocks = table.num_registered = hit
            self._num_table_blocks += hit
        self._hand_out(sequence, table, target_tokens)
        return True

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        """Hand out new blocks for a running sequence, or change nothing."""
        table: _Table = sequence.table
        needed = self._blocks_for(target_tokens) - table.num_blocks
        # The block that it writes to next is the last one shared, or none of them.
        last = table.shared[-1] if table.shared and table.shared[-1].tail_slots else None
        must_copy = last is not None and last.holders > 1
        if needed + must_copy > self.num_free_blocks:
            return False
        if last is not None:
            table.shared.pop()
            if must_copy:
                self._copy(last)
        self._hand_out(sequence, table, target_tokens)
        return True

    def lend(self, num_blocks: int, num_tokens: int) -> None:
        """Hand out blocks to sequences that grow together by so many tokens in all."""
        self._computed_tokens += num_tokens
        if num_blocks:
            self._take(num_blocks)
            self._num_table_blocks += num_blocks

    def settle(self, sequence: Sequence) -> None:
        """Bring the table of a sequence that grew with others up to its computed tokens."""
        table: _Table = sequence.table
        table.num_blocks = self._blocks_for(sequence.computed_tokens)
        sequence.capacity_tokens = table.num_blocks * self.block_tokens
        if self._cache:
            self._register(self._cache, table, sequence.computed_tokens // self.block_tokens)

    def retire(self, sequence: Sequence) -> None:
        """Take back everything that a sequence which grew with others holds: it ended."""
        table: _Table = sequence.table
        if self._cache or table.shared:
            self.settle(sequence)
            self.release(sequence)
            return
        num_blocks = -(-sequence.computed_tokens // self.block_tokens)
        self._num_blank += num_blocks
        self._num_table_blocks -= num_blocks
        self._computed_tokens -= sequence.computed_tokens
        sequence.table = None
        sequence.capacity_tokens = 0

    def open_segments(self, sequence: Sequence) -> list[int]:
        """Return the segments whose blocks it may still register and others can name."""
        table: _Table = sequence.table
        return [
            segment
            for segment, _, end in table.content[table.stretch :]
            if segment >= 0 and end > table.num_registered
        ]

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let a new sequence hold what another one holds; takes no block."""
        table: _Table = parent.table
        tail_slots = table.num_blocks * self.block_tokens - parent.computed_tokens
        num_private = table.num_private
        if num_private and tail_slots:
            if num_private > 1:
                table.shared.append(Shared(num_private - 1, 0))
            table.shared.append(Shared(1, tail_slots))
        elif num_private:
            table.shared.append(Shared(num_private, 0))
        for piece in table.shared:
            piece.holders += 1
        copy = self._table(child)
        copy.num_blocks, copy.num_registered = table.num_blocks, table.num_registered
        copy.shared = list(table.shared)
        copy.held = self._cache.share(table.held) if self._cache else []
        self._num_table_blocks += copy.num_blocks
        self._computed_tokens += child.computed_tokens
        self._tail_slots_twice += tail_slots
        # Both must ask before they write on in the last block.
        parent.capacity_tokens = child.capacity_tokens = parent.computed_tokens
        return True

    def take_ops(self) -> MemoryOps:
        """Return the copies that are to be done before the next step, and forget them."""
        ops, self._ops = self._ops, MemoryOps()
        return ops

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Enter the full blocks below ``num_tokens`` that are not in the cache yet (9.4)."""
        if self._cache:
            self._register(self._cache, sequence.table, num_tokens // self.block_tokens)

    def release(self, sequence: Sequence) -> None:
        """Take everything back: blocks without a hash to the head of the queue (7.1, 7.2)."""
        table: _Table = sequence.table
        self._num_blank += table.num_private
        for piece in table.shared:
            piece.holders -= 1
            if piece.holders:
                self._tail_slots_twice -= piece.tail_slots
            else:
                self._num_blank += piece.num_blocks
        if self._cache:
            self._cache.release(table.held)
        self._num_table_blocks -= table.num_blocks
        self._computed_tokens -= sequence.computed_tokens
        sequence.table = _Table(table.content)
        sequence.capacity_tokens = 0

    def advance(self, num_tokens: int) -> None:
        """Note that the sequences that hold memory compute so many more tokens, all together."""
        self._computed_tokens += num_tokens

    def counters(self) -> tuple[int, ...]:
        """Return blank, cached and held blocks, live tokens, and slots that are counted twice.

        A block that is shared is held once by each.
        """
        return (
            self._num_blank,
            self._cache.num_idle_blocks if self._cache else 0,
            self._num_table_blocks,
            self._computed_tokens,
            self._tail_slots_twice,
        )

    def grown(self, counters: Any, more_tokens: Any, more_blocks: Any) -> tuple[Any, ...]:
        """Return what ``counters`` become where sequences only grow."""
        blank, idle, table_blocks, computed, twice = counters
        num_blank = (blank > more_blocks) * (blank - more_blocks)
        return (
            num_blank,
            idle + blank - more_blocks - num_blank,
            table_blocks + more_blocks,
            computed + more_tokens,
            twice,
        )

    def usage_of(self, counters: Any) -> Usage:
        """Return what the slots are doing, given all counters."""
        blank, idle, table_blocks, computed, twice = counters
        size = self.block_tokens
        num_taken = self.num_blocks - 1 - blank - idle
        tail = table_blocks * size - computed - twice
        return Usage(
            tokens=num_taken * size - tail,
            tail=tail,
            cached=idle * size,
            free=blank * size,
            logical_tokens=computed,
            blocks_saved=table_blocks - num_taken,
        )

    def usage(self) -> Usage:
        """Return what the slots are doing now."""
        return self.usage_of(self.counters())

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def _table(self, sequence: Sequence) -> _Table:
        if sequence.table is None:
            content = stretches(sequence.segments, self.block_tokens) if self._cache else []
            sequence.table = _Table(content)
        table: _Table = sequence.table
        return table

    def _hand_out(self, sequence: Sequence, table: _Table, target_tokens: int) -> None:
        """Fill a table up to ``target_tokens`` and register what is full (5.5, 5.6)."""
        num_new = -(-target_tokens // self.block_tokens) - table.num_blocks
        if num_new > 0:
            self._take(num_new)
            table.num_blocks += num_new
            self._num_table_blocks += num_new
        sequence.capacity_tokens = table.num_blocks * self.block_tokens
        if self._cache:
            self._register(
                self._cache, table, min(target_tokens, sequence.num_tokens) // self.block_tokens
            )

    def _take(self, num_new: int) -> None:
        """Take blocks from the free queue, evicting where no blank ones are left (5.5)."""
        if num_new <= self._num_blank:
            self._num_blank -= num_new
            return
        if self._cache:
            self._cache.evict(num_new - self._num_blank)
        self._num_blank = 0

    def _copy(self, piece: Shared) -> None:
        """Give a holder of a shared partial block one of its own."""
        self._take(1)
        piece.holders -= 1
        self._tail_slots_twice -= piece.tail_slots
        self._ops.num_copies += 1
        self._ops.copied_tokens += self.block_tokens - piece.tail_slots

    def _register(self, cache: PrefixCache, table: _Table, num_full: int) -> None:
        """Enter the blocks of a table up to ``num_full`` that have no hash yet (5.6)."""
        content = table.content
        while table.num_registered < num_full:
            stretch = content[table.stretch]
            if stretch.end <= table.num_registered:
                table.stretch += 1
                continue
            until = min(stretch.end, num_full)
            cache.register(stretch, table.num_registered, until, table.held)
            table.num_registered = until
