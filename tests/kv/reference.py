"""Paged memory block by block: block ids, reference counts, an index and a free queue as a list.

Slow and obvious, straight from rules 1, 5, 6 and 7 of the vLLM step logs for one full-attention
group. It has the interface of a KV manager, so that it can stand where ``Accounts`` stands, and
shares no idea with it: content is a list of tokens, and a block is named by all tokens before its
end.
"""

from collections import Counter

from simkv.kv.ops import MemoryOps
from simkv.kv.sequence import Segments, Sequence
from simkv.kv.usage import Usage

Name = tuple[int, ...]


def spell(segments: Segments) -> list[int]:
    """Write content as tokens: a segment is its id, then zeros.

    Two contents have a common prefix exactly as far as their segments agree, while a block's own
    tokens say next to nothing about it: only the whole prefix tells blocks apart.
    """
    tokens = []
    for segment, count in segments:
        tokens += [segment, *[0] * (count - 1)]
    return tokens


class BlockPool:
    """The rules of a block pool with a prefix cache, one block at a time."""

    def __init__(self, *, block_tokens: int, num_blocks: int, prefix_caching: bool) -> None:
        self.block_tokens = block_tokens
        self.num_blocks = num_blocks
        self.pool_slots = (num_blocks - 1) * block_tokens
        self.prefix_caching = prefix_caching
        self.num_stored = 0
        self.num_evicted = 0
        self.num_copied_tokens = 0
        self.num_told = 0
        self.free = list(range(1, num_blocks))  # 1.1: block 0 is never handed out
        self.refs = Counter[int]()
        self.name_of: dict[int, Name] = {}
        self.index: dict[Name, list[int]] = {}
        self.tables: dict[int, list[int]] = {}
        self.live: dict[int, Sequence] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self.free)

    def can_ever_hold(self, num_tokens: int) -> bool:
        return num_tokens <= self.pool_slots

    def names(self, sequence: Sequence, num_tokens: int) -> list[Name]:
        """Name the full blocks among the first tokens of a sequence (6.1)."""
        tokens, size = spell(sequence.segments), self.block_tokens
        return [tuple(tokens[:end]) for end in range(size, num_tokens + 1, size)]

    def hit_blocks(self, sequence: Sequence) -> list[int]:
        """Follow the prefix through the index, one token short of all (6.2)."""
        found: list[int] = []
        for name in self.names(sequence, sequence.num_tokens - 1):
            if name not in self.index:
                break
            found.append(self.index[name][0])  # 1.3: the first registered
        return found

    def match(self, sequence: Sequence) -> int:
        return len(self.hit_blocks(sequence)) * self.block_tokens

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        hit = self.hit_blocks(sequence)[: hit_tokens // self.block_tokens]
        spared = int(watermark_ratio * self.num_blocks)
        for slots in (target_tokens, full_tokens):
            if self.needed(slots, [], hit) + spared > len(self.free):
                return False
        for block in hit:
            if block in self.free:
                self.free.remove(block)
            self.refs[block] += 1
        self.tables[sequence.id] = hit
        self.live[sequence.id] = sequence
        self.fill(sequence, target_tokens)
        return True

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        table = self.tables[sequence.id]
        place, filled = divmod(sequence.computed_tokens, self.block_tokens)
        copies = filled > 0 and self.refs[table[place]] > 1
        if self.needed(target_tokens, table, []) + copies > len(self.free):
            return False
        if copies:
            self.refs[table[place]] -= 1
            table[place] = self.take()
            self.num_copied_tokens += filled
        self.fill(sequence, target_tokens)
        return True

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Share everything, the partial last block too."""
        self.tables[child.id] = list(self.tables[parent.id])
        self.live[child.id] = child
        for block in self.tables[child.id]:
            self.refs[block] += 1
        return True

    def needed(self, slots: int, table: list[int], hit: list[int]) -> int:
        """Count the free blocks that an allocation costs (5.1)."""
        blocks = (slots + self.block_tokens - 1) // self.block_tokens
        return max(0, blocks - len(table) - len(hit)) + sum(block in self.free for block in hit)

    def fill(self, sequence: Sequence, target_tokens: int) -> None:
        """Hand out new blocks, then register what is full and known (5.5, 5.6)."""
        table = self.tables[sequence.id]
        while len(table) * self.block_tokens < target_tokens:
            table.append(self.take())
        self.register(sequence, min(target_tokens, sequence.num_tokens))

    def take_ops(self) -> MemoryOps:
        ops = MemoryOps(copied_tokens=self.num_copied_tokens - self.num_told)
        self.num_told = self.num_copied_tokens
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

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Enter every full block below so many tokens (5.6, 9.4)."""
        if not self.prefix_caching:
            return
        table = self.tables[sequence.id]
        for block, name in zip(table, self.names(sequence, num_tokens), strict=False):
            if block not in self.name_of:
                self.name_of[block] = name
                self.index.setdefault(name, []).append(block)
                self.num_stored += 1

    def release(self, sequence: Sequence) -> None:
        del self.live[sequence.id]
        unnamed: list[int] = []
        for block in reversed(self.tables.pop(sequence.id)):
            self.refs[block] -= 1
            if self.refs[block]:
                continue
            if block in self.name_of:
                self.free.append(block)
            else:
                unnamed.append(block)
        self.free[:0] = unnamed

    def advance(self, num_tokens: int) -> None:
        """Do nothing: the sequences know."""

    def usage(self) -> Usage:
        """Look at every slot of every block."""
        filled = Counter[int]()
        for owner, table in self.tables.items():
            for position, block in enumerate(table):
                computed = self.live[owner].computed_tokens - position * self.block_tokens
                filled[block] = max(filled[block], min(max(computed, 0), self.block_tokens))
        cached = sum(block in self.name_of for block in self.free)
        return Usage(
            tokens=filled.total(),
            tail=sum(self.block_tokens - filled[block] for block in filled),
            cached=cached * self.block_tokens,
            free=(len(self.free) - cached) * self.block_tokens,
            logical_tokens=sum(sequence.computed_tokens for sequence in self.live.values()),
            blocks_saved=sum(map(len, self.tables.values())) - len(filled),
        )
