"""Paged memory by blocks: real block tables, one block id at a time.

The physical counterpart of ``accounts.Accounts``, behind the same protocol and with the same
answers: what a GPU's memory can be bound to, and the one manager that knows windows and several
groups of layers. It decides as vLLM V1's KV cache manager does, to the block id (rules 1, 5 to 7
and 10 of its step logs); ``pool.Pool`` keeps the blocks, ``groups`` what a group keeps of a
sequence.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

from simkv.errors import InvariantError
from simkv.kv.groups import Attention, FullAttention
from simkv.kv.ops import MemoryOps
from simkv.kv.pool import NULL, Key, Pool
from simkv.kv.prefix import stretches
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


@dataclass(slots=True)
class BlockTable:
    """One group's blocks of one sequence.

    Parameters
    ----------
    keys
        What each block of the complete sequence would be registered as.
    blocks
        Block ids in order of position; the first ``num_null`` are the null block.
    num_registered
        How many of them have been entered into the index, nulls included.
    """

    keys: list[Key]
    blocks: list[int] = field(default_factory=list)
    num_null: int = 0
    num_registered: int = 0


class Blocks:
    """The pool of one replica: numbered blocks of ``block_tokens`` slots.

    Parameters
    ----------
    block_tokens
        Slots in a block, 1 or more.
    num_blocks
        Blocks of the pool, the null block included, so one fewer is usable.
    prefix_caching
        Whether full blocks are kept and shared by content.
    groups
        What each group of layers attends to; every group has its own table for every sequence, of
        blocks of this one pool.
    """

    def __init__(
        self,
        *,
        block_tokens: int,
        num_blocks: int,
        prefix_caching: bool,
        groups: Items[Attention] = (FullAttention(),),
    ) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = num_blocks
        self.prefix_caching = prefix_caching
        self.groups = tuple(groups)
        self.pool_slots = (num_blocks - 1) * block_tokens
        self.pool = Pool(num_blocks)
        self._slides = any(not isinstance(group, FullAttention) for group in self.groups)
        self._num_table_blocks = 0
        self._kept_tokens = 0
        # Slots at the end of shared partial blocks, once for each holder but one.
        self._tail_slots_twice = 0
        self._ops = MemoryOps()

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be handed out now, cached ones included."""
        return self.pool.num_free

    @property
    def num_stored(self) -> int:
        """Registrations in the prefix cache since the start."""
        return self.pool.num_stored

    @property
    def num_evicted(self) -> int:
        """Evictions from the prefix cache since the start."""
        return self.pool.num_evicted

    def block_table(self, sequence: Sequence, group: int = 0) -> list[int]:
        """Return the ids of a sequence's blocks in order of position, the null block for none."""
        return list(self._tables(sequence)[group].blocks)

    def can_ever_hold(self, num_tokens: int) -> bool:
        """Whether a sequence of this many tokens fits when it is alone."""
        return self._most_blocks(num_tokens) < self.num_blocks

    def match(self, sequence: Sequence) -> int:
        """Return the cached tokens of its prefix, whole blocks, one token left at least (6.2)."""
        if not self.prefix_caching:
            return 0
        limit = (sequence.num_tokens - 1) // self.block_tokens
        hits = self._lookup(self._tables(sequence), limit)
        return len(hits[0]) * self.block_tokens

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        """Take the hit blocks and hand out new ones for a waiting sequence (5.1 to 5.6, 10.4)."""
        tables = self._tables(sequence)
        hit = hit_tokens // self.block_tokens
        hits = self._lookup(tables, hit) if hit else [[] for _ in tables]
        for group, blocks in zip(self.groups, hits, strict=True):
            unseen = group.num_skipped(hit_tokens, self.block_tokens)
            blocks[:unseen] = [NULL] * unseen
        kept = [[block for block in blocks if block != NULL] for blocks in hits]
        is_free = self.pool.is_free
        num_idle = sum(is_free(block) for blocks in kept for block in blocks)
        spare = self.pool.num_free - int(watermark_ratio * self.num_blocks) - num_idle
        target_blocks = -(-target_tokens // self.block_tokens)
        if len(tables) * max(0, target_blocks - hit) > spare:
            return False
        if full_tokens and self._most_blocks(full_tokens, hit) > spare:
            return False
        for table, blocks, held in zip(tables, hits, kept, strict=True):
            self.pool.touch(held)
            table.blocks = blocks
            table.num_registered = hit
            table.num_null = hit - len(held)
            self._num_table_blocks += len(held)
            self._kept_tokens -= table.num_null * self.block_tokens
        self._hand_out(sequence, tables, target_tokens)
        return True

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        """Hand out new blocks for a running sequence, or change nothing but what slid out."""
        tables: list[BlockTable] = sequence.table
        if self._slides:
            self._slide(sequence, tables)
        target_blocks = -(-target_tokens // self.block_tokens)
        needed = sum(max(0, target_blocks - len(table.blocks)) for table in tables)
        shared = self._shared(sequence, tables)
        if needed + len(shared) > self.pool.num_free:
            return False
        for table in shared:
            self._copy(sequence, table)
        self._hand_out(sequence, tables, target_tokens)
        return True

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let a new sequence hold what another one holds; takes no block."""
        for table, copy in zip(parent.table, self._tables(child), strict=True):
            held = table.blocks[table.num_null :]
            self.pool.share(held)
            copy.blocks = list(table.blocks)
            copy.num_null, copy.num_registered = table.num_null, table.num_registered
            self._num_table_blocks += len(held)
            self._kept_tokens += child.computed_tokens - table.num_null * self.block_tokens
            self._tail_slots_twice += len(table.blocks) * self.block_tokens - parent.computed_tokens
        # Both must ask before they write on in the last block.
        parent.capacity_tokens = child.capacity_tokens = parent.computed_tokens
        return True

    def take_ops(self) -> MemoryOps:
        """Return the copies that are to be done before the next step, and forget them."""
        ops, self._ops = self._ops, MemoryOps()
        return ops

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Enter the full blocks below ``num_tokens`` that are not in the index yet (5.6, 9.4)."""
        if not self.prefix_caching:
            return
        num_full = num_tokens // self.block_tokens
        for table in sequence.table:
            blocks, keys = table.blocks, table.keys
            for place in range(table.num_registered, num_full):
                self.pool.register(blocks[place], keys[place])
            table.num_registered = max(table.num_registered, num_full)

    def release(self, sequence: Sequence) -> None:
        """Take everything back, group after group, the last block of each first (7.1, 10.6)."""
        num_shared = len(self._shared(sequence, sequence.table))
        self._tail_slots_twice -= num_shared * (-sequence.computed_tokens % self.block_tokens)
        for table in sequence.table:
            held = table.blocks[table.num_null :]
            self.pool.drop(held[::-1])
            self._num_table_blocks -= len(held)
            self._kept_tokens -= sequence.computed_tokens - table.num_null * self.block_tokens
        sequence.table = [BlockTable(table.keys) for table in sequence.table]
        sequence.capacity_tokens = 0

    def advance(self, num_tokens: int) -> None:
        """Note that the sequences that hold memory compute so many more tokens, all together."""
        self._kept_tokens += num_tokens * len(self.groups)

    def counters(self) -> tuple[int, ...]:
        """Return what the slots are doing now."""
        return self.usage()

    def grown(self, counters: Any, more_tokens: Any, more_blocks: Any) -> tuple[Any, ...]:
        """Return the counters as they are: blocks are handed out one by one, nothing grows unseen.

        Raises
        ------
        InvariantError
            If anything did.
        """
        if any(more_tokens) or any(more_blocks):
            raise InvariantError("blocks grew without being handed out")
        return tuple(counters)

    def usage_of(self, counters: Any) -> Usage:
        """Return what the slots are doing, given all counters."""
        return Usage(*counters)

    def usage(self) -> Usage:
        """Return what the slots are doing now; with several groups a token has a slot in each."""
        size = self.block_tokens
        num_taken = self.num_blocks - 1 - self.pool.num_free
        num_cached = self.pool.num_cached_free
        tail = self._num_table_blocks * size - self._kept_tokens - self._tail_slots_twice
        return Usage(
            tokens=num_taken * size - tail,
            tail=tail,
            cached=num_cached * size,
            free=(self.pool.num_free - num_cached) * size,
            logical_tokens=self._kept_tokens,
            blocks_saved=self._num_table_blocks - num_taken,
        )

    def _tables(self, sequence: Sequence) -> list[BlockTable]:
        if sequence.table is None:
            places = [
                (stretch.segment, place)
                for stretch in stretches(sequence.segments, self.block_tokens)
                for place in range(stretch.first, stretch.end)
            ]
            sequence.table = [
                BlockTable([(group, segment, place) for segment, place in places])
                for group in range(len(self.groups))
            ]
        tables: list[BlockTable] = sequence.table
        return tables

    def _lookup(self, tables: list[BlockTable], limit: int) -> list[list[int]]:
        """Return each group's hit; all have the same length, that of the shortest (10.3, 10.6)."""
        hits: list[list[int]] = []
        for group, table in zip(self.groups, tables, strict=True):
            hit = group.lookup(self.pool.find, table.keys, limit, self.block_tokens)
            limit = len(hit)
            hits.append(hit)
        return [hit[:limit] for hit in hits]

    def _most_blocks(self, num_tokens: int, hit: int = 0) -> int:
        """Return the new blocks that all of a sequence takes at most, beyond a hit (5.3, 10.5)."""
        size = self.block_tokens
        return sum(max(0, group.most_blocks(num_tokens, size) - hit) for group in self.groups)

    def _shared(self, sequence: Sequence, tables: list[BlockTable]) -> list[BlockTable]:
        """Return the tables whose last block is partly filled and held by others too."""
        place, filled = divmod(sequence.computed_tokens, self.block_tokens)
        if not filled:
            return []
        return [table for table in tables if self.pool.refs(table.blocks[place]) > 1]

    def _copy(self, sequence: Sequence, table: BlockTable) -> None:
        """Give a holder of a shared partial block one of its own."""
        place, filled = divmod(sequence.computed_tokens, self.block_tokens)
        before = table.blocks[place]
        [table.blocks[place]] = self.pool.take(1)
        self.pool.drop([before])
        self._tail_slots_twice -= self.block_tokens - filled
        self._ops.num_copies += 1
        self._ops.copied_tokens += filled
        self._ops.copies.append((before, table.blocks[place]))

    def _slide(self, sequence: Sequence, tables: list[BlockTable]) -> None:
        """Free what slid out of a window, from the newest such block downwards (10.2)."""
        known_tokens = sequence.computed_tokens - sequence.in_flight_tokens
        for group, table in zip(self.groups, tables, strict=True):
            end = group.num_skipped(known_tokens, self.block_tokens)
            if end <= table.num_null:
                continue
            gone = table.blocks[table.num_null : end]
            self.pool.drop(gone[::-1])
            table.blocks[table.num_null : end] = [NULL] * len(gone)
            table.num_null = end
            self._num_table_blocks -= len(gone)
            self._kept_tokens -= len(gone) * self.block_tokens

    def _hand_out(self, sequence: Sequence, tables: list[BlockTable], target_tokens: int) -> None:
        """Fill the tables up to ``target_tokens``, then register what is full and known (5.5)."""
        target_blocks = -(-target_tokens // self.block_tokens)
        for table in tables:
            num_new = target_blocks - len(table.blocks)
            if num_new > 0:
                table.blocks += self.pool.take(num_new)
                self._num_table_blocks += num_new
        # A window frees blocks as it slides: the manager must be asked for every token.
        held_tokens = len(tables[0].blocks) * self.block_tokens
        sequence.capacity_tokens = target_tokens if self._slides else held_tokens
        self.register(sequence, min(target_tokens, sequence.num_tokens))
