"""Paged memory with windows and several groups, block by block and straight from the rules.

Slow and obvious like ``reference.BlockPool``, whose names for blocks it uses; rules 10.1 to 10.6 of
the vLLM step logs. A group is the size of its window, None for full attention.
"""

from collections import Counter
from collections.abc import Sequence as Items

from simkv.kv.ops import MemoryOps
from simkv.kv.sequence import Sequence
from tests.kv.reference import Name, spell

NULL = 0


class WindowPool:
    """One pool of blocks, a table a group and sequence."""

    def __init__(
        self,
        *,
        block_tokens: int,
        num_blocks: int,
        prefix_caching: bool,
        windows: Items[int | None],
        step_tokens: int,
    ) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = num_blocks
        self.pool_slots = (num_blocks - 1) * block_tokens
        self.prefix_caching = prefix_caching
        self.windows = windows
        self.step_tokens = step_tokens
        self.num_stored = 0
        self.num_evicted = 0
        self.num_copied_tokens = 0
        self.free = list(range(1, num_blocks))
        self.refs = Counter[int]()
        self.name_of: dict[int, tuple[int, Name]] = {}
        self.index: dict[tuple[int, Name], list[int]] = {}
        self.tables: dict[int, list[list[int]]] = {}
        self.num_named: dict[int, list[int]] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self.free)

    def blocks(self, num_tokens: int) -> int:
        return (num_tokens + self.block_tokens - 1) // self.block_tokens

    def skipped(self, group: int, num_tokens: int) -> int:
        """Count the leading blocks that nothing sees any more (10.1)."""
        window = self.windows[group]
        return 0 if window is None else max(0, num_tokens - window + 1) // self.block_tokens

    def most(self, group: int, num_tokens: int) -> int:
        """Count the blocks of a whole sequence, by the full-prompt check (10.5)."""
        window = self.windows[group]
        if window is None:
            return self.blocks(num_tokens)
        return min(self.blocks(num_tokens), self.blocks(window - 1 + self.step_tokens) + 1)

    def can_ever_hold(self, num_tokens: int) -> bool:
        return sum(self.most(group, num_tokens) for group in range(len(self.windows))) < (
            self.num_blocks
        )

    def names(self, sequence: Sequence, num_tokens: int) -> list[Name]:
        tokens, size = spell(sequence.segments), self.block_tokens
        return [tuple(tokens[:end]) for end in range(size, num_tokens + 1, size)]

    def hits(self, sequence: Sequence, limit: int) -> list[list[int]]:
        """Look every group up, each within what the ones before it found (10.3, 10.6)."""
        names = self.names(sequence, sequence.num_tokens - 1)[:limit]
        found: list[list[int]] = []
        for group, window in enumerate(self.windows):
            cached = [self.index.get((group, name), [NULL])[0] for name in names]
            prefix = cached[: cached.index(NULL)] if NULL in cached else cached
            hit = prefix
            if window is not None:
                wanted = max(1, self.blocks(window - 1))
                for end in range(len(cached), wanted - 1, -1):
                    if all(cached[end - wanted : end]):
                        hit = [NULL] * (end - wanted) + cached[end - wanted : end]
                        break
            found.append(hit)
            names = names[: len(hit)]
        return [hit[: len(names)] for hit in found]

    def match(self, sequence: Sequence) -> int:
        if not self.prefix_caching:
            return 0
        return len(self.hits(sequence, 10**9)[-1]) * self.block_tokens

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        groups = range(len(self.windows))
        num_hit = hit_tokens // self.block_tokens
        hits = self.hits(sequence, num_hit) if num_hit else [[] for _ in groups]
        for group, hit in enumerate(hits):  # 10.4
            for place in range(min(len(hit), self.skipped(group, hit_tokens))):
                hit[place] = NULL
        idle = sum(block in self.free for hit in hits for block in hit if block)
        spared = int(watermark_ratio * self.num_blocks)
        needs = [sum(max(0, self.blocks(target_tokens) - num_hit) for _ in groups)]
        needs.append(sum(max(0, self.most(group, full_tokens) - num_hit) for group in groups))
        if max(needs) + idle + spared > len(self.free):
            return False
        for hit in hits:
            for block in filter(None, hit):
                if block in self.free:
                    self.free.remove(block)
                self.refs[block] += 1
        self.tables[sequence.id] = hits
        self.num_named[sequence.id] = [num_hit for _ in groups]
        self.fill(sequence, target_tokens)
        return True

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        tables = self.tables[sequence.id]
        for group, table in enumerate(tables):  # 10.2
            known = sequence.computed_tokens - sequence.in_flight_tokens
            gone = []
            for place in reversed(range(self.skipped(group, known))):
                if table[place] == NULL:
                    break
                gone.append(table[place])
                table[place] = NULL
            self.give_back(gone)
        needed = sum(max(0, self.blocks(target_tokens) - len(table)) for table in tables)
        place, filled = divmod(sequence.computed_tokens, self.block_tokens)
        shared = [table for table in tables if filled and self.refs[table[place]] > 1]
        if needed + len(shared) > len(self.free):
            return False
        for table in shared:
            self.refs[table[place]] -= 1
            table[place] = self.take()
            self.num_copied_tokens += filled
        self.fill(sequence, target_tokens)
        return True

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        self.tables[child.id] = [list(table) for table in self.tables[parent.id]]
        self.num_named[child.id] = list(self.num_named[parent.id])
        for block in [block for table in self.tables[child.id] for block in table if block]:
            self.refs[block] += 1
        return True

    def take_ops(self) -> MemoryOps:
        ops = MemoryOps(copied_tokens=self.num_copied_tokens)
        self.num_copied_tokens = 0
        return ops

    def take(self) -> int:
        block = self.free.pop(0)
        if block in self.name_of:
            name = self.name_of.pop(block)
            self.index[name].remove(block)
            if not self.index[name]:
                del self.index[name]
            self.num_evicted += 1
        self.refs[block] = 1
        return block

    def fill(self, sequence: Sequence, target_tokens: int) -> None:
        for table in self.tables[sequence.id]:
            while len(table) * self.block_tokens < target_tokens:
                table.append(self.take())
        sequence.capacity_tokens = 0  # ask every time
        self.register(sequence, min(target_tokens, sequence.num_tokens))

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        if not self.prefix_caching:
            return
        names = self.names(sequence, num_tokens)
        for group, table in enumerate(self.tables[sequence.id]):
            named = self.num_named[sequence.id]
            for place in range(named[group], len(names)):
                name = (group, names[place])
                self.name_of[table[place]] = name
                self.index.setdefault(name, []).append(table[place])
                self.num_stored += 1
            named[group] = max(named[group], len(names))

    def release(self, sequence: Sequence) -> None:
        for table in self.tables.pop(sequence.id):
            self.give_back([block for block in reversed(table) if block])

    def give_back(self, blocks: Items[int]) -> None:
        unnamed: list[int] = []
        for block in blocks:
            self.refs[block] -= 1
            if not self.refs[block] and block in self.name_of:
                self.free.append(block)
            elif not self.refs[block]:
                unnamed.append(block)
        self.free[:0] = unnamed

    def advance(self, num_tokens: int) -> None:
        """Do nothing: the sequences know."""

    def usage(self) -> None:
        """Say nothing: laws are checked on the physical manager."""
