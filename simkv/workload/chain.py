"""Chained block ids of a trace, compressed into segments.

Public traces name a prompt's content by one id for every ``granularity_tokens`` tokens; an id
stands for the whole prefix up to its end. Most ids are never told apart from their neighbours, so
runs of ids that no request leaves in the middle become one segment, and whoever works on the
trace pays per run, not per id. This module owns that compression (a radix tree over ids); it
knows no file format.

The tree tells content apart by the path, so it is right for any ids; where an id turns out to
stand behind two different prefixes (the file's ids are not chained after all), it is counted, and
the reader says so.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from simkv.workload.trace import Ints

_NO_IDS: Ints = np.empty(0, dtype=np.int64)


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive ids of one path, from position ``start``, that no request leaves inside."""

    start: int
    ids: Ints
    parent: "_Run | None"
    children: "dict[int, _Run]" = field(default_factory=dict)
    path: Ints = field(default_factory=lambda: _NO_IDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """Content of requests in compressed rows, as ``Trace`` wants it.

    Parameters
    ----------
    offset, id, tokens
        Request ``i`` holds the segments ``offset[i]:offset[i + 1]``; ids count from 0,
        parents before their children.
    num_ids, num_unique_ids
        Block ids that were given and distinct ones among them (paths, over all spaces).
    num_unchained_ids
        How often an id was found behind another prefix than its first; 0 where the ids are
        chained as promised.
    """

    offset: Ints
    id: Ints
    tokens: Ints
    num_ids: int
    num_unique_ids: int
    num_unchained_ids: int

    def rows(self) -> list[list[tuple[int, int]]]:
        """Return the content of each request as ``(segment id, tokens)`` pairs."""
        pairs = list(zip(self.id.tolist(), self.tokens.tolist(), strict=True))
        return [pairs[first:last] for first, last in pairwise(self.offset.tolist())]


class Chains:
    """Collects the block ids of requests, one request at a time, and compresses them.

    Parameters
    ----------
    granularity_tokens
        Tokens that one id stands for.
    """

    def __init__(self, granularity_tokens: int) -> None:
        self._granularity = granularity_tokens
        self._roots: dict[int, _Run] = {}
        self._rows: list[tuple[_Run, int]] = []
        self._num_ids = 0

    def add(self, ids: Ints, prompt_tokens: int, *, space: int = 0) -> None:
        """Append one request.

        Parameters
        ----------
        ids
            ``[num_ids] int64``, shallow end first. A last id that goes past the prompt covers the
            tokens that remain; tokens past the last id are the request's own.
        prompt_tokens
            Length of the prompt.
        space
            Id space: equal ids of different spaces are different content.
        """
        root = self._roots.get(space)
        if root is None:
            root = self._roots[space] = _Run(0, _NO_IDS, None)
        self._num_ids += len(ids)
        covered_tokens = min(prompt_tokens, len(ids) * self._granularity)
        self._rows.append((_insert(root, ids), covered_tokens))

    def segments(self) -> Segments:
        """Return the segments of all requests added so far, in their order."""
        runs: list[_Run] = []
        num_unchained = 0
        for root in self._roots.values():
            known = _number(root, runs)
            num_unchained += len(known) - len(np.unique(known))
        ends = [_end(run, -(tokens // -self._granularity)) for run, tokens in self._rows]
        offset = np.cumsum([0, *(len(run.path) for run in ends)], dtype=np.int64)
        ids = np.concatenate([_NO_IDS, *(run.path for run in ends)])
        lengths = np.array([len(run.ids) for run in runs], dtype=np.int64)
        tokens = lengths[ids] * self._granularity
        for row, ((_, covered_tokens), run) in enumerate(zip(self._rows, ends, strict=True)):
            if run.parent is not None:
                tokens[offset[row + 1] - 1] = covered_tokens - run.start * self._granularity
        return Segments(
            offset=offset,
            id=ids,
            tokens=tokens,
            num_ids=self._num_ids,
            num_unique_ids=int(lengths.sum()),
            num_unchained_ids=num_unchained,
        )


def as_ids(values: Any) -> Ints:
    """Return a list of block ids as ``[num_ids] int64``; unsigned 64-bit hashes wrap around.

    Raises
    ------
    ValueError
        Where a value is not a whole number of 64 bits.
    """
    if not isinstance(values, list):
        raise ValueError(f"expected a list of whole numbers, got {type(values).__name__}")
    if not values:
        return _NO_IDS
    try:
        array = np.array(values)
        if array.dtype.kind not in "iu" and all(type(value) is int for value in values):
            array = np.array(values, dtype=np.uint64)  # beyond int64, numpy goes by itself to float
    except (ValueError, OverflowError) as error:
        raise ValueError("expected a list of whole numbers of at most 64 bits") from error
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError("expected a list of whole numbers of at most 64 bits")
    return array.astype(np.int64)


def _insert(root: _Run, ids: Ints) -> _Run:
    """Follow ``ids`` from the root, add what is new, and return the run in which they end."""
    run, at = root, 0
    while at < len(ids):
        child = run.children.get(int(ids[at]))
        if child is None:
            if run.children or run.parent is None:
                child = _Run(at, ids[at:].copy(), run)
                run.children[int(ids[at])] = child
                return child
            # Nobody left this run at its end yet: it goes on.
            run.ids = ids[run.start :].copy()
            return run
        common = _common_length(child.ids, ids[at:])
        if common < len(child.ids) and at + common < len(ids):
            child = _split(child, common)
        run, at = child, at + common
    return run


def _split(run: _Run, length: int) -> _Run:
    """Cut the first ``length`` ids off a run; return them as the new run above it."""
    assert run.parent is not None
    upper = _Run(run.start, run.ids[:length], run.parent, {int(run.ids[length]): run})
    run.parent.children[int(run.ids[0])] = upper
    run.parent, run.start, run.ids = upper, run.start + length, run.ids[length:]
    return upper


def _common_length(left: Ints, right: Ints) -> int:
    """Return how many leading values two non-empty arrays share."""
    length = min(len(left), len(right))
    differs = left[:length] != right[:length]
    first = int(differs.argmax())
    return first if differs[first] else length


def _end(run: _Run, num_ids: int) -> _Run:
    """Return the run that holds the last of ``num_ids``: a split leaves the lower part behind."""
    while run.parent is not None and run.start >= num_ids:
        run = run.parent
    return run


def _number(root: _Run, runs: list[_Run]) -> Ints:
    """Append a tree's runs to ``runs``, parents first, fill in their paths; return all its ids."""
    todo = list(root.children.values())[::-1]
    first = len(runs)
    while todo:
        run = todo.pop()
        assert run.parent is not None
        run.path = np.append(run.parent.path, len(runs))
        runs.append(run)
        todo.extend(list(run.children.values())[::-1])
    return np.concatenate([_NO_IDS, *(run.ids for run in runs[first:])])
