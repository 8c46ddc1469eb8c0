"""``Accounts``, ``Blocks`` and a slow reference, driven by the same calls and compared each time.

Numbers pick what an operation acts on, so that Hypothesis and a plain random stream can both
drive it. After every operation the pools are compared as wholes: not only their counts, but the
content of the free queue in its order and the copies of every cached block in theirs; ``Blocks``
and the reference to the block id.
"""

from collections import Counter

import numpy as np

from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.invariants import check_memory, check_prefixes_closed
from simkv.kv.prefix import Run, Stretch, stretches
from simkv.kv.sequence import Segments, Sequence, cover
from tests.kv.mirror import Mirror
from tests.kv.reference import BlockPool, Name


class Lockstep:
    """Three pools in step, the sequences that they hold, and all content that there ever was."""

    def __init__(
        self,
        *,
        block_tokens: int,
        num_blocks: int,
        prefix_caching: bool = True,
        accounts: type[Accounts] = Accounts,
    ) -> None:
        self.fast = accounts(
            block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=prefix_caching
        )
        self.slow = BlockPool(
            block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=prefix_caching
        )
        self.real = Mirror(
            Blocks(block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=prefix_caching)
        )
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.contents: list[Segments] = []
        self.stretches: list[list[Stretch]] = []
        self.preempted: dict[int, set[Name]] = {}
        self.blocks: dict[tuple[int, int], Name] = {}
        self.seen = Counter[str]()
        self._num_segments = 0
        self._copied_tokens = 0
        self._queue: dict[Run, tuple[int, int]] = {}

    def arrive(self, base: int, keep: int, fresh_tokens: int, output_tokens: int) -> None:
        """Queue a prompt: the first ``keep`` tokens of earlier content, then some of its own."""
        prompt: Segments = []
        if self.contents:
            earlier = self.contents[-1 - base % len(self.contents)]
            keep %= sum(tokens for _, tokens in earlier) + 1
            prompt = cover(earlier, keep, 0)
        if fresh_tokens or not prompt:
            self._num_segments += 1
            prompt = [*prompt, (self._num_segments, max(1, fresh_tokens))]
        prompt_tokens = sum(tokens for _, tokens in prompt)
        number, total = len(self.contents), prompt_tokens + output_tokens
        sequence = Sequence(
            id=number,
            segments=cover(prompt, total, number),
            num_tokens=prompt_tokens,
            final_tokens=total - 1,
        )
        self.contents.append(sequence.segments)
        self.stretches.append(stretches(sequence.segments, self.fast.block_tokens))
        self.waiting.append(sequence)
        self._learn(sequence, total)

    def admit(
        self, index: int, num_tokens: int, *, full: bool = False, watermark_ratio: float = 0.0
    ) -> bool:
        """Admit a waiting sequence with its hit and up to ``num_tokens`` to compute."""
        sequence = self.waiting[index % len(self.waiting)]
        hit = self.fast.match(sequence)
        assert hit == self.slow.match(sequence) == self.real.match(sequence)
        inside = self._begins_inside_a_run(sequence, hit)
        target = hit + 1 + num_tokens % (sequence.num_tokens - hit)
        cuts = self._num_cuts()
        fits = [
            kv.admit(
                sequence,
                target,
                hit_tokens=hit,
                full_tokens=sequence.num_tokens if full else 0,
                watermark_ratio=watermark_ratio,
            )
            for kv in (self.slow, self.fast, self.real)
        ]
        assert fits[0] == fits[1] == fits[2]
        if not fits[0]:
            self.seen["admission refused"] += 1
            return False
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self._computed(sequence, target)
        self.seen["whole-prompt hit"] += 0 < hit == sequence.num_tokens - self.fast.block_tokens
        self.seen["hit"] += hit > 0
        own = self.preempted.get(sequence.id, set())
        self.seen["resumed sequence hit its own blocks"] += any(
            name in own for name in self.slow.names(sequence, hit)
        )
        self.seen["hit cut a run in two"] += self._num_cuts() > cuts
        self.seen["hit went on inside another copy"] += inside
        return True

    def grow(self, index: int, num_tokens: int, *, always_ask: bool = False) -> bool:
        """Compute up to ``num_tokens`` more of what a running sequence knows."""
        sequence = self.running[index % len(self.running)]
        left = sequence.num_tokens - sequence.computed_tokens
        if not left:
            return False
        target = sequence.computed_tokens + 1 + num_tokens % left
        fits = self.slow.grow(sequence, target)
        # The scheduler does not ask below the capacity: the answer must not depend on it.
        if always_ask or target >= sequence.capacity_tokens:
            assert self.fast.grow(sequence, target) == fits
            assert self.real.grow(sequence, target) == fits
        else:
            assert fits
        if fits:
            self._computed(sequence, target)
        else:
            self.seen["growth refused"] += 1
        return fits

    def decode(self, index: int, num_steps: int) -> None:
        """Sample and compute one token after another; the last one sampled ends the sequence."""
        sequence = self.running[index % len(self.running)]
        for _ in range(num_steps):
            if sequence.computed_tokens < sequence.num_tokens:
                return
            sequence.num_tokens += 1
            if sequence.num_tokens > sequence.final_tokens:
                self.drop(self.running.index(sequence))
                return
            if not self.grow(self.running.index(sequence), 0):
                return

    def fork(self, index: int, output_tokens: int, follow: bool) -> None:
        """Let a new sequence go on from where a running one is, with other content or the same."""
        parent = self.running[index % len(self.running)]
        number, known = len(self.contents), parent.computed_tokens
        self._num_segments += 1
        total = known + output_tokens
        kept = min(total, parent.final_tokens + 1) if follow else known
        segments = cover(cover(parent.segments, kept, 0), total, number)
        child = Sequence(
            id=number,
            segments=segments,
            num_tokens=known,  # what the parent knows beyond that, the child samples anew
            final_tokens=total - 1,
            computed_tokens=known,
        )
        self.contents.append(child.segments)
        self.stretches.append(stretches(child.segments, self.fast.block_tokens))
        self._learn(child, total)
        for kv in (self.slow, self.fast, self.real):
            assert kv.fork(parent, child)
        self.running.append(child)
        self.seen["fork"] += 1
        self.seen["fork inside a block"] += known % self.fast.block_tokens > 0

    def drop(self, index: int) -> None:
        """End a running sequence, finished or not."""
        sequence = self.running.pop(index % len(self.running))
        idle_before = len(self.slow.free)
        for kv in (self.slow, self.fast, self.real):
            kv.release(sequence)
        sequence.computed_tokens = 0
        self.seen["release of shared blocks"] += bool(len(self.slow.free) == idle_before)

    def preempt(self, index: int) -> None:
        """Take a running sequence's memory and let it wait again."""
        sequence = self.running[index % len(self.running)]
        self.preempted[sequence.id] = set(self.slow.names(sequence, sequence.computed_tokens))
        self.drop(self.running.index(sequence))
        self.waiting.append(sequence)

    def check(self) -> None:
        """Compare the pools and check all laws."""
        fast, slow = self.fast, self.slow
        assert fast.usage() == slow.usage()
        assert fast.num_free_blocks == slow.num_free_blocks
        assert (fast.num_stored, fast.num_evicted) == (slow.num_stored, slow.num_evicted)
        for sequence in self.waiting:
            assert fast.match(sequence) == slow.match(sequence)
            assert sequence.capacity_tokens == 0
        for sequence in self.running:
            self._check_capacity(sequence)
        ops, real_ops = fast.take_ops(), self.real.kv.take_ops()
        self._copied_tokens += ops.copied_tokens
        self.seen["copy"] += ops.num_copies
        assert self._copied_tokens == slow.num_copied_tokens
        assert real_ops.copied_tokens == ops.copied_tokens
        assert len(real_ops.copies) == real_ops.num_copies == ops.num_copies
        check_memory(fast, self.running)
        self._check_blocks()
        if fast.cache is not None:
            self._compare_caches()
            check_prefixes_closed(fast.cache, self.stretches)

    def _check_capacity(self, sequence: Sequence) -> None:
        """Check that a sequence owns what it may write to unasked."""
        table, size = self.slow.tables[sequence.id], self.fast.block_tokens
        place, filled = divmod(sequence.computed_tokens, size)
        if filled and self.slow.refs[table[place]] > 1:
            assert sequence.capacity_tokens == sequence.computed_tokens
        else:
            assert sequence.capacity_tokens in (len(table) * size, sequence.computed_tokens)

    def _check_blocks(self) -> None:
        """Compare the physical manager with the reference, block id by block id."""
        real, slow, pool = self.real.kv, self.slow, self.real.kv.pool
        assert real.usage() == slow.usage()
        assert (real.num_stored, real.num_evicted) == (slow.num_stored, slow.num_evicted)
        assert list(pool.free_blocks()) == slow.free
        copies = [self.real.copy(sequence) for sequence in self.running]
        for copy in copies:
            assert real.block_table(copy) == slow.tables[copy.id]
            self._check_capacity(copy)
        names = {self.blocks[key[1:]]: blocks for key, blocks in pool.copies()}
        assert names == slow.index
        check_memory(real, copies)

    def _compare_caches(self) -> None:
        assert self.fast.cache is not None
        queue = [
            self.blocks[run.lane.segment, block]
            for run in self.fast.cache.idle_runs()
            for block in reversed(range(run.lo, run.hi))
        ]
        slow = self.slow
        assert queue == [slow.name_of[block] for block in slow.free if block in slow.name_of]
        copies: dict[Name, list[int]] = {}
        for run in self.fast.cache.runs():
            for block in range(run.lo, run.hi):
                copies.setdefault(self.blocks[run.lane.segment, block], []).append(run.refs)
        assert copies == {
            name: [slow.refs[block] for block in blocks] for name, blocks in slow.index.items()
        }
        self._note_situations()

    def _note_situations(self) -> None:
        """Count the situations that are hard to reach, to see that they are."""
        assert self.fast.cache is not None
        queue = {run: (run.lo, run.hi) for run in self.fast.cache.idle_runs()}
        for run, (lo, hi) in self._queue.items():
            now = queue.get(run)
            self.seen["eviction"] += now is None and not run.refs
            self.seen["eviction shortened a run"] += (
                now is not None and now[0] == lo and now[1] < hi
            )
            self.seen["hit cut an idle run"] += now is not None and now[0] > lo
        self._queue = queue
        lanes = {id(run.lane): run.lane for run in self.fast.cache.runs()}
        for lane in lanes.values():
            for position, newer in enumerate(lane.runs):
                for older in lane.runs[:position]:
                    if older.lo < newer.hi and newer.lo < older.hi:
                        self.seen["duplicate"] += 1
                        self.seen["duplicate, both held"] += bool(older.refs and newer.refs)
                        self.seen["duplicate, first copy idle"] += not older.refs

    def _begins_inside_a_run(self, sequence: Sequence, hit: int) -> bool:
        blocks = hit // self.fast.block_tokens
        if self.fast.cache is None or not blocks:
            return False
        pieces = self.fast.cache._pieces(sequence.table.content, blocks)
        return any(lo > run.lo for run, lo, _ in pieces)

    def _num_cuts(self) -> int:
        cache = self.fast.cache
        return sum(run.before is not None for run in cache.runs()) if cache else 0

    def _computed(self, sequence: Sequence, target: int) -> None:
        for kv in (self.slow, self.fast, self.real):
            kv.advance(target - sequence.computed_tokens)
        sequence.computed_tokens = target

    def _learn(self, sequence: Sequence, num_tokens: int) -> None:
        """Note which tokens each ``(segment, block)`` of the accounts stands for."""
        ends, total = [], 0
        for segment, tokens in sequence.segments:
            total += tokens
            ends.append((total, segment))
        for block, name in enumerate(self.slow.names(sequence, num_tokens)):
            segment = next(segment for end, segment in ends if len(name) <= end)
            assert self.blocks.setdefault((segment, block), name) == name


def walk(
    rng: np.random.Generator, num_operations: int, *, accounts: type[Accounts] = Accounts
) -> Lockstep:
    """Drive two pools at random, long enough for their history to matter."""
    size = int(rng.choice([1, 2, 3, 4, 5, 7, 16]))
    pools = Lockstep(
        block_tokens=size,
        num_blocks=int(rng.integers(4, 33)),
        prefix_caching=True,
        accounts=accounts,
    )
    forks = float(rng.choice([0.0, 0.05, 0.2]))
    share, leave, twins = rng.uniform(0.3, 1), rng.uniform(0.02, 0.15), rng.uniform(0, 0.8)
    recent = int(rng.integers(1, 9))
    for _ in range(num_operations):
        draw, index, tokens = rng.random(), int(rng.integers(64)), int(rng.integers(6 * size))
        if not pools.waiting or (draw < 0.1 and len(pools.waiting) < 4):
            sharing = rng.random() < share
            kept = (-1, 2 * size, int(rng.integers(12 * size)))
            keep = kept[int(rng.integers(3))] if sharing else 0
            fresh = tokens if not sharing or rng.random() < 0.5 else 0
            pools.arrive(index % recent, keep, fresh, int(rng.integers(1, 3 * size + 2)))
            if rng.random() < twins:
                pools.arrive(0, -1, 0, 1)
        elif not pools.running or draw < 0.35:
            tokens = -1 if rng.random() < 0.3 else tokens
            fits = pools.admit(index, tokens, full=rng.random() < 0.3)
            if not fits and pools.running:
                pools.preempt(index)
            elif not fits:
                pools.waiting.pop(index % len(pools.waiting))
        elif draw < 0.35 + leave:
            pools.drop(index)
        elif draw < 0.35 + 2 * leave:
            pools.preempt(index)
        elif draw < 0.35 + 2 * leave + forks:
            pools.fork(index, tokens + 1, bool(rng.random() < 0.3))
        elif draw < 0.8:
            pools.grow(index, tokens, always_ask=rng.random() < 0.5)
        else:
            pools.decode(index, tokens)
        pools.check()
    return pools


def twins() -> Lockstep:
    """Tell the one story that random walks seldom tell: a hit that cuts an idle copy twice.

    Two sequences compute blocks 2 to 7 of the same content side by side. The older copy loses its
    deep end; a hit of 6 blocks starts in what is left of it and goes on inside the younger one.
    """
    pools = Lockstep(block_tokens=4, num_blocks=17)
    pools.arrive(0, 0, 32, 1)
    pools.arrive(0, -1, 0, 1)
    pools.admit(0, 7)  # blocks 0 and 1
    pools.admit(0, 0)  # hits them, and waits inside block 2
    pools.grow(0, -1)
    pools.grow(1, -1)
    pools.check()
    pools.drop(0)
    pools.drop(0)
    for base, keep, fresh in ((0, 0, 24), (1, 24, 1)):  # evicts 4 blocks; hits 6
        pools.arrive(base, keep, fresh, 1)
        assert pools.admit(0, -1)
        pools.check()
    return pools
