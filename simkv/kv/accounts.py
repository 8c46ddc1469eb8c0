"""Paged memory by accounts: counts and runs, no block ids.

Decides exactly as vLLM V1's block pool does (rules 5 to 7 of its step logs) at a cost that does
not depend on the block size. Of the free queue only one fact needs no list: blocks without a hash
are always at its head, so a number stands for them.
"""

from dataclasses import dataclass, field
from typing import Any

from simkv.kv.prefix import Holding, PrefixCache, Stretch, stretches
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


@dataclass(slots=True)
class _Table:
    """What one sequence holds: ``num_blocks`` blocks, the first ``num_registered`` with a hash."""

    content: list[Stretch]
    num_blocks: int = 0
    num_registered: int = 0
    held: Holding = field(default_factory=list)
    stretch: int = 0


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
        self._cache = PrefixCache() if prefix_caching else None
        self._num_blank = num_blocks - 1
        self._num_table_blocks = 0
        self._computed_tokens = 0

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
        idle = self._cache.count_idle(table.content, hit) if self._cache and hit else 0
        most_tokens = max(target_tokens, full_tokens)
        spare = self.num_free_blocks - int(watermark_ratio * self.num_blocks)
        if max(0, self._blocks_for(most_tokens) - hit) + idle > spare:
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
        if self._blocks_for(target_tokens) - table.num_blocks > self.num_free_blocks:
            return False
        self._hand_out(sequence, table, target_tokens)
        return True

    def lend(self, num_blocks: int) -> None:
        """Hand out blocks to sequences that grow together; ``settle`` writes them down later."""
        self._take(num_blocks)

    def settle(self, sequence: Sequence) -> None:
        """Bring the table of a sequence that grew with others up to its computed tokens."""
        table: _Table = sequence.table
        table.num_blocks = self._blocks_for(sequence.computed_tokens)
        sequence.capacity_tokens = table.num_blocks * self.block_tokens
        if self._cache:
            self._register(self._cache, table, sequence.computed_tokens // self.block_tokens)

    def open_segments(self, sequence: Sequence) -> list[int]:
        """Return the segments whose blocks it may still register and others can name."""
        if self._cache is None:
            return []
        table: _Table = sequence.table
        return [
            segment
            for segment, _, end in table.content[table.stretch :]
            if segment >= 0 and end > table.num_registered
        ]

    def release(self, sequence: Sequence) -> None:
        """Take everything back: blocks without a hash to the head of the queue (7.1, 7.2)."""
        table: _Table = sequence.table
        self._num_blank += table.num_blocks - table.num_registered
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
        """Return blank, cached and held blocks (shared ones once a holder) and live tokens."""
        num_idle = self._cache.num_idle_blocks if self._cache else 0
        return (self._num_blank, num_idle, self._num_table_blocks, self._computed_tokens)

    def usage_at(self, counters: Any, more_tokens: Any = 0, more_blocks: Any = 0) -> Usage:
        """Return what the slots do after sequences have grown from ``counters`` on."""
        blank, idle, table_blocks, computed = counters
        size = self.block_tokens
        num_blank = (blank > more_blocks) * (blank - more_blocks)
        num_free = blank + idle - more_blocks
        num_taken = self.num_blocks - 1 - num_free
        tail = (table_blocks + more_blocks) * size - computed - more_tokens
        return Usage(
            tokens=num_taken * size - tail,
            tail=tail,
            cached=(num_free - num_blank) * size,
            free=num_blank * size,
            logical_tokens=computed + more_tokens,
            blocks_saved=table_blocks + more_blocks - num_taken,
        )

    def usage(self) -> Usage:
        """Return what the slots are doing now."""
        return self.usage_at(self.counters())

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_tokens)

    def _table(self, sequence: Sequence) -> _Table:
        if sequence.table is None:
            content = stretches(sequence.segments, self.block_tokens) if self._cache else []
            sequence.table = _Table(content)
        table: _Table = sequence.table
        return table

    def _hand_out(self, sequence: Sequence, table: _Table, target_tokens: int) -> None:
        """Fill a table up to ``target_tokens``; evictions happen here and nowhere else (5.5)."""
        num_new = self._blocks_for(target_tokens) - table.num_blocks
        if num_new > 0:
            self._take(num_new)
            table.num_blocks += num_new
        sequence.capacity_tokens = table.num_blocks * self.block_tokens
        if self._cache:
            self._register(
                self._cache, table, min(target_tokens, sequence.num_tokens) // self.block_tokens
            )

    def _take(self, num_blocks: int) -> None:
        """Take blocks from the head of the free queue: those without a hash come first."""
        num_evicted = max(0, num_blocks - self._num_blank)
        self._num_blank -= num_blocks - num_evicted
        if self._cache and num_evicted:
            self._cache.evict(num_evicted)
        self._num_table_blocks += num_blocks

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
