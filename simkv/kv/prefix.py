"""The prefix cache: which full blocks of which content are kept, in runs instead of blocks.

A **run** is a stretch of consecutive blocks of one content segment that were registered together,
have the same number of references and, when nobody refers to them, stand together in the free
queue, deep end first. Everything here costs per run touched, never per block:

- a lookup walks the segments of a prompt and compares ends;
- a hit takes the shallow part of a run away, an eviction shortens its deep end. Both leave one run
  where there was one, or cut it in two;
- a release puts the runs of a table at the end of the queue, the deepest first, so that a deep
  block always leaves before the blocks it depends on.

Behaviour is vLLM V1's, block for block (rules 5.5 to 5.7, 6 and 7 of its step logs): a copy of
content that is cached already is kept beside the first and a lookup finds the one that was
registered first; the queue is ordered by release.

Which block is which follows from the content alone: block ``k`` covers tokens ``[k B, (k + 1) B)``
and belongs to the segment in which it ends. So a segment owns the blocks
``[start // B, end // B)``, and ``(segment, k)`` names the whole prefix up to the block's end.
"""

from collections.abc import Iterator
from typing import NamedTuple

from simkv.errors import InvariantError
from simkv.kv.sequence import Segments


class Stretch(NamedTuple):
    """Blocks ``[first, end)`` of a prompt that end in one segment."""

    segment: int
    first: int
    end: int


def stretches(segments: Segments, block_tokens: int) -> list[Stretch]:
    """Return the blocks of a content, by the segment in which they end."""
    found, start = [], 0
    for segment, tokens in segments:
        first, end = start // block_tokens, (start + tokens) // block_tokens
        if first < end:
            found.append(Stretch(segment, first, end))
        start += tokens
    return found


class Lane:
    """The cached blocks of one segment: its runs in the order of registration.

    The union of the runs is a range that starts at the segment's first block and stops at ``end``:
    whoever holds a block holds everything before it, and releases it later. So is the union of the
    oldest few, whatever their number (a law that ``invariants.check_lanes`` checks): a run never
    begins deeper than those before it reach.
    """

    __slots__ = ("end", "runs", "segment")

    def __init__(self, segment: int, first: int) -> None:
        self.segment = segment
        self.end = first
        self.runs: list[Run] = []

    def first_copy(self, block: int, stop: int) -> tuple["Run", int]:
        """Return the run whose copy of ``block`` was registered first, and how far that holds."""
        for run in self.runs:
            if run.lo <= block < run.hi:
                return run, min(run.hi, stop)
        raise InvariantError(f"block {block} of segment {self.segment} is not in its lane")


class Run:
    """Blocks ``[lo, hi)`` of one lane with one number of references.

    ``before`` is the shallow part that was cut off; who held the run before the cut still holds
    both. ``older`` and ``newer`` link the free queue; ``older`` is None outside it.
    """

    __slots__ = ("before", "hi", "lane", "lo", "newer", "older", "refs")

    def __init__(self, lane: Lane, lo: int, hi: int, refs: int) -> None:
        self.lane = lane
        self.lo = lo
        self.hi = hi
        self.refs = refs
        self.before: Run | None = None
        self.older: Run | None = None
        self.newer: Run | None = None


Holding = list[tuple[Run, int]]
"""What a sequence holds: runs, each from a first block on, shallow to deep."""


def parts_of(held: Holding) -> Iterator[Run]:
    """Walk over the runs that somebody holds, cuts included, deep to shallow."""
    for run, first in reversed(held):
        part: Run | None = run
        while part is not None:
            before = part.before if part.lo > first else None
            yield part
            part = before


class PrefixCache:
    """Registered blocks, referenced or idle, and the order in which idle ones are given up."""

    def __init__(self) -> None:
        self.num_idle_blocks = 0
        self.num_stored = 0
        self.num_evicted = 0
        self._lanes: dict[int, Lane] = {}
        # Both ends of the free queue: the next run to evict is _queue.newer.
        self._queue = Run(Lane(0, 0), 0, 0, 0)
        self._queue.older = self._queue.newer = self._queue

    def match(self, content: list[Stretch], limit: int) -> int:
        """Return how many leading blocks are cached, ``limit`` at most; changes nothing."""
        hit = 0
        for segment, first, end in content:
            lane = self._lanes.get(segment)
            if lane is None or first >= limit:
                break
            hit = min(lane.end, end, limit)
            if hit < end:
                break
        return hit

    def count_idle(self, content: list[Stretch], hit: int) -> int:
        """Return how many of the first ``hit`` blocks nobody refers to."""
        return sum(hi - lo for run, lo, hi in self._pieces(content, hit) if not run.refs)

    def take(self, content: list[Stretch], hit: int) -> Holding:
        """Refer to the first ``hit`` blocks; those in the free queue leave it."""
        held: Holding = []
        for run, lo, hi in list(self._pieces(content, hit)):
            # Cutting a run leaves its deep part in the same object, so later pieces stay right.
            if lo > run.lo:
                self._cut(run, lo)
            piece = self._cut(run, hi) if hi < run.hi else run
            if not piece.refs:
                self._unlink(piece)
                self.num_idle_blocks -= hi - lo
            piece.refs += 1
            held.append((piece, lo))
        return held

    def share(self, held: Holding) -> Holding:
        """Refer once more to everything that somebody holds."""
        for run in parts_of(held):
            run.refs += 1
        return list(held)

    def register(self, stretch: Stretch, lo: int, hi: int, held: Holding) -> None:
        """Enter blocks ``[lo, hi)`` of a stretch for one sequence and add them to ``held``."""
        lane = self._lanes.get(stretch.segment)
        if lane is None:
            lane = self._lanes[stretch.segment] = Lane(stretch.segment, stretch.first)
        last = held[-1][0] if held else None
        # A run may grow only where its place in the order of registration stays true for the new
        # blocks: nobody else has them, or no run of the lane is younger.
        if (
            last is not None
            and last.lane is lane
            and last.hi == lo
            and last.refs == 1
            and (lane.end == lo or lane.runs[-1] is last)
        ):
            last.hi = hi
        else:
            run = Run(lane, lo, hi, 1)
            lane.runs.append(run)
            held.append((run, lo))
        lane.end = max(lane.end, hi)
        self.num_stored += hi - lo

    def release(self, held: Holding) -> None:
        """Drop one reference to everything held, from the last block to the first."""
        for part in parts_of(held):
            part.refs -= 1
            if not part.refs:
                self._append(part)
                self.num_idle_blocks += part.hi - part.lo

    def evict(self, num_blocks: int) -> None:
        """Forget the next ``num_blocks`` of the free queue; there must be as many."""
        self.num_idle_blocks -= num_blocks
        self.num_evicted += num_blocks
        while num_blocks:
            run = self._queue.newer
            if run is None or run is self._queue:
                raise InvariantError(f"{num_blocks} blocks to evict from an empty free queue")
            count = min(num_blocks, run.hi - run.lo)
            run.hi -= count
            num_blocks -= count
            lane = run.lane
            if run.lo == run.hi:
                self._unlink(run)
                lane.runs.remove(run)
            if not lane.runs:
                del self._lanes[lane.segment]
            elif len(lane.runs) == 1:
                lane.end = lane.runs[0].hi
            else:
                lane.end = max([other.hi for other in lane.runs])

    def runs(self) -> Iterator[Run]:
        """Walk over every run, in order of lanes; for checks."""
        for lane in self._lanes.values():
            yield from lane.runs

    def idle_runs(self) -> Iterator[Run]:
        """Walk over the free queue, the next to evict first; for checks."""
        run = self._queue.newer
        while run is not None and run is not self._queue:
            yield run
            run = run.newer

    def _pieces(self, content: list[Stretch], hit: int) -> Iterator[tuple[Run, int, int]]:
        """Yield the runs behind the first ``hit`` blocks, each with the range it stands for."""
        for segment, first, end in content:
            if first >= hit:
                break
            block, stop = first, min(end, hit)
            lane = self._lanes[segment]
            while block < stop:
                run, until = lane.first_copy(block, stop)
                yield run, block, until
                block = until

    def _cut(self, run: Run, block: int) -> Run:
        """Cut a run before ``block``; return the shallow part, ``run`` stays the deep one."""
        shallow = Run(run.lane, run.lo, block, run.refs)
        shallow.before, run.before = run.before, shallow
        run.lo = block
        runs = run.lane.runs
        runs.insert(runs.index(run), shallow)
        if not run.refs:
            self._link(shallow, after=run)
        return shallow

    def _append(self, run: Run) -> None:
        last = self._queue.older
        self._link(run, after=last if last is not None else self._queue)

    def _link(self, run: Run, *, after: Run) -> None:
        run.older, run.newer = after, after.newer
        if after.newer is not None:
            after.newer.older = run
        after.newer = run

    def _unlink(self, run: Run) -> None:
        if run.older is None or run.newer is None:
            raise InvariantError("a run leaves the free queue without being in it")
        run.older.newer, run.newer.older = run.newer, run.older
        run.older = run.newer = None
