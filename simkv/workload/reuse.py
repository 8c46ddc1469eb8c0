"""What a prefix cache of blocks would hit on a trace: infinite, and LRU at given capacities.

This is a count on the trace alone, without time, scheduling or outputs: requests come one at a
time; a request's leading cached blocks are hits and pinned; the oldest other blocks are evicted
until its blocks fit, or as many of them as the capacity holds; then its blocks become the newest,
the tail first, so that eviction takes a path from its deep end.

It works on extents. The blocks that end inside one segment are an extent: requests share them
from the shallow end only. Because a deep block is never newer than a shallow one of its path, what
is cached of an extent is a leading part of it, and the queue in order of age holds runs of blocks:
a hit takes the shallow end of a run away, eviction shortens its deep end, nothing splits.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simkv.errors import InputError, TraceError
from simkv.workload.trace import Trace

PartialBlocks = Literal["keep", "drop"]
_Request = list[tuple[int, int]]
"""``(extent, leading blocks of it)``, shallow end first."""


def reuse(
    trace: Trace,
    *,
    partial_blocks: PartialBlocks = "keep",
    capacity_blocks: Sequence[int] = (),
    interleave: bool = False,
    block_tokens: int | None = None,
) -> dict[str, Any]:
    """Count the hits of an infinite cache and of LRU caches on a trace's prompts.

    Parameters
    ----------
    trace
        A trace with content.
    partial_blocks
        Whether a prompt's last block counts where the prompt does not fill it (``keep``: it
        matches an equal partial block only, and counts its real tokens) or not (``drop``). A
        block with tokens that the trace does not tell apart never counts.
    capacity_blocks
        Sizes of the LRU caches.
    interleave
        Take requests by arrival, equal times in the order of the rows, instead of row by row.
    block_tokens
        Block size; None takes the trace's granularity.

    Returns
    -------
    dict
        ``num_requests``, ``prompt_tokens``, ``block_tokens``, ``partial_blocks``, ``interleave``,
        ``blocks``, ``unique_blocks``, ``ideal`` (``hit_blocks``, ``hit_tokens``), ``capacities``
        (each ``capacity_blocks``, ``hit_blocks``, ``hit_tokens``, ``evictions``) and ``notes``.

    Raises
    ------
    InputError
        Where the trace has no content or no arrivals to order by, or a number is below 1.
    """
    _check(trace, partial_blocks, capacity_blocks, interleave, block_tokens)
    size = trace.granularity_tokens if block_tokens is None else block_tokens
    extents = _extents(trace, size, partial_blocks)
    order = (
        np.argsort(trace.arrival_s, kind="stable").tolist()
        if interleave
        else range(trace.num_requests)
    )
    requests = [extents.requests[row] for row in order]
    ideal, unique_blocks = _ideal(requests, extents.block_tokens)
    return {
        "num_requests": trace.num_requests,
        "prompt_tokens": int(trace.prompt_tokens.sum()),
        "block_tokens": size,
        "partial_blocks": partial_blocks,
        "interleave": interleave,
        "blocks": sum(blocks for request in requests for _, blocks in request),
        "unique_blocks": unique_blocks,
        "ideal": ideal,
        "capacities": [
            _lru(requests, extents.block_tokens, capacity) for capacity in capacity_blocks
        ],
        "notes": _notes(trace, size),
    }


def render(result: dict[str, Any]) -> str:
    """Return the result of ``reuse`` as a table for people."""
    ideal = result["ideal"]
    blocks, tokens = max(result["blocks"], 1), max(result["prompt_tokens"], 1)
    order = "by arrival" if result["interleave"] else "in file order"
    lines = [
        f"{result['num_requests']:,} requests {order}, {result['prompt_tokens']:,} prompt tokens",
        f"{result['blocks']:,} blocks of {result['block_tokens']:,} tokens "
        f"(partial blocks: {result['partial_blocks']}), {result['unique_blocks']:,} unique",
        "",
        f"{'cache (blocks)':>14} {'hit blocks':>14} {'of blocks':>9} {'hit tokens':>16} "
        f"{'of tokens':>9} {'evictions':>14}",
    ]
    unlimited = {"capacity_blocks": None, "evictions": 0, **ideal}
    for cache in (*result["capacities"], unlimited):
        capacity = cache["capacity_blocks"]
        lines.append(
            f"{'infinite' if capacity is None else f'{capacity:,}':>14} "
            f"{cache['hit_blocks']:>14,} {cache['hit_blocks'] / blocks:>9.4f} "
            f"{cache['hit_tokens']:>16,} {cache['hit_tokens'] / tokens:>9.4f} "
            f"{cache['evictions']:>14,}"
        )
    notes = [f"note: {note}" for note in result["notes"]]
    return "\n".join([*lines, "", *notes] if notes else lines)


def _check(
    trace: Trace,
    partial_blocks: str,
    capacity_blocks: Sequence[int],
    interleave: bool,
    block_tokens: int | None,
) -> None:
    if trace.granularity_tokens < 1:
        raise TraceError(
            "says nothing about content (no block ids, token ids or text), so reuse cannot be "
            "counted",
            file=trace.name,
        )
    if partial_blocks not in ("keep", "drop"):
        raise InputError(f"partial blocks: got {partial_blocks!r}, expected keep or drop")
    for what, number in (
        *(("a capacity", capacity) for capacity in capacity_blocks),
        *(() if block_tokens is None else (("the block size", block_tokens),)),
    ):
        if number < 1:
            raise InputError(f"{what} of {number:,} was given, expected 1 or more")
    if interleave and np.isnan(trace.arrival_s).any():
        missing = int(np.isnan(trace.arrival_s).sum())
        raise TraceError(
            f"{missing:,} of {trace.num_requests:,} requests have no arrival time, so they cannot "
            "be interleaved; leave the option away to take them in file order",
            file=trace.name,
        )


def _notes(trace: Trace, size: int) -> list[str]:
    notes = list(trace.notes)
    if size < trace.granularity_tokens:
        notes.append(
            f"blocks of {size:,} tokens are finer than what the trace tells apart "
            f"({trace.granularity_tokens:,} tokens): real hits may be more than these"
        )
    return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extents:
    """The blocks of all prompts: extents of each request, and tokens of a block by extent."""

    requests: list[_Request]
    block_tokens: list[int]


def _extents(trace: Trace, size: int, partial_blocks: PartialBlocks) -> _Extents:
    """Cut the prompts into blocks: one extent a segment, and one a distinct partial block."""
    row = np.repeat(np.arange(trace.num_requests), np.diff(trace.segment_offset))
    running = np.concatenate([[0], np.cumsum(trace.segment_tokens)])
    first = running[trace.segment_offset[:-1]]
    start = running[:-1] - first[row]
    end = np.minimum(start + trace.segment_tokens, trace.prompt_tokens[row])
    # The last block end at or before each segment end; segments past the prompt hold none.
    blocks = np.maximum(end // size - start // size, 0)
    segments, extent = np.unique(trace.segment_id, return_inverse=True)
    tokens = np.full(len(segments), size)
    if partial_blocks == "keep":
        last = np.flatnonzero((end == trace.prompt_tokens[row]) & (start < end) & (end % size > 0))
        # A partial block is named by its end: a place in a segment.
        ends, number = np.unique(np.stack([extent[last], end[last]]), axis=1, return_inverse=True)
        row = np.concatenate([row, row[last]])
        extent = np.concatenate([extent, len(segments) + number])
        blocks = np.concatenate([blocks, np.ones(len(last), dtype=np.int64)])
        tokens = np.concatenate([tokens, ends[1] % size])
    held = np.flatnonzero(blocks)
    held = held[np.argsort(row[held], kind="stable")]
    offset = np.searchsorted(row[held], np.arange(trace.num_requests + 1))
    pairs = list(zip(extent[held].tolist(), blocks[held].tolist(), strict=True))
    return _Extents(
        requests=[
            pairs[begin:stop]
            for begin, stop in zip(offset[:-1].tolist(), offset[1:].tolist(), strict=True)
        ],
        block_tokens=tokens.tolist(),
    )


def _ideal(requests: list[_Request], block_tokens: list[int]) -> tuple[dict[str, int], int]:
    """Return the hits of an infinite cache, and the number of distinct blocks."""
    known = [0] * len(block_tokens)
    hit_blocks = hit_tokens = 0
    for request in requests:
        for extent, blocks in request:
            hits = min(blocks, known[extent])
            hit_blocks += hits
            hit_tokens += hits * block_tokens[extent]
            known[extent] = max(blocks, known[extent])
    return {"hit_blocks": hit_blocks, "hit_tokens": hit_tokens}, sum(known)


def _lru(requests: list[_Request], block_tokens: list[int], capacity: int) -> dict[str, int]:
    """Return hits and evictions of a cache of ``capacity`` blocks."""
    cache = _Cache()
    hit_blocks = hit_tokens = evictions = 0
    for request in requests:
        pinned = 0
        for extent, blocks in request:
            hits = cache.take(extent, blocks)
            pinned += hits
            hit_tokens += hits * block_tokens[extent]
            if hits < blocks:
                break
        hit_blocks += pinned
        kept = min(sum(blocks for _, blocks in request), capacity)
        evictions += cache.evict(down_to=capacity - kept)
        cache.append(request, kept)
    return {
        "capacity_blocks": capacity,
        "hit_blocks": hit_blocks,
        "hit_tokens": hit_tokens,
        "evictions": evictions,
    }


class _Cache:
    """Cached blocks as runs ``[extent, from, to]``, in a queue by age and in a stack an extent."""

    def __init__(self) -> None:
        self._size = 0
        self._num_empty = 0
        self._queue: deque[list[int]] = deque()
        self._stacks: dict[int, list[list[int]]] = {}

    def take(self, extent: int, blocks: int) -> int:
        """Take the cached ones of an extent's first ``blocks`` out; return how many there were."""
        stack = self._stacks.get(extent)
        if not stack:
            return 0
        found = min(blocks, stack[0][2])
        # The youngest run is the shallowest and lies on top.
        while stack and stack[-1][1] < found:
            run = stack[-1]
            if run[2] > found:
                run[1] = found
                break
            run[1] = run[2]  # empty: it leaves the queue later
            self._num_empty += 1
            stack.pop()
        self._size -= found
        return found

    def evict(self, *, down_to: int) -> int:
        """Evict the oldest blocks until ``down_to`` remain; return how many went."""
        excess = max(0, self._size - down_to)
        left = excess
        while left:
            run = self._queue[0]
            gone = min(left, run[2] - run[1])
            run[2] -= gone
            left -= gone
            if run[1] == run[2]:
                self._queue.popleft()
                if gone:
                    del self._stacks[run[0]][0]
                else:
                    self._num_empty -= 1
        self._size -= excess
        return excess

    def append(self, request: _Request, kept: int) -> None:
        """Make the first ``kept`` blocks of a request the newest, its tail first."""
        runs = []
        left = kept
        for extent, blocks in request:
            if not left:
                break
            run = [extent, 0, min(blocks, left)]
            left -= run[2]
            runs.append(run)
            self._stacks.setdefault(extent, []).append(run)
        self._queue.extend(reversed(runs))
        self._size += kept
        if 2 * self._num_empty > len(self._queue):
            self._queue = deque(run for run in self._queue if run[1] < run[2])
            self._num_empty = 0
