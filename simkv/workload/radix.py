"""Token sequences as chained segments: a radix tree, built once when a trace is read.

An edge of the tree is a run of tokens; a node stands for the whole prefix down to its end, which is
just what a segment id means (see ``trace.py``). Sequences that part ways split an edge, and so does
a forced cut, so that every sequence is a list of whole edges.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.integer[Any]]


class _Node:
    """The prefix that ends with ``tokens``; ``number`` is given when it is first listed."""

    __slots__ = ("children", "number", "parent", "tokens")

    def __init__(self, parent: "_Node | None", tokens: Tokens) -> None:
        self.parent = parent
        self.tokens = tokens
        self.children: dict[int, _Node] = {}
        self.number: int | None = None


def compress(
    sequences: Sequence[Tokens],
    cuts: Sequence[Sequence[int]],
    roots: Sequence[str] | None = None,
) -> list[list[tuple[int, int]]]:
    """Compress token sequences into segments ``(segment id, tokens)``.

    Two sequences name the same id exactly if they hold the same tokens from their start to that
    segment's end. Ids count from 0 in order of first appearance.

    Parameters
    ----------
    sequences
        Integer arrays of shape ``[num_tokens]``: a request's prompt and output, one after another.
    cuts
        Positions in each sequence at which a segment has to end, such as the end of its prompt. Its
        own end always is one; positions outside it mean nothing.
    roots
        Sequences with different roots share nothing, whatever they hold.

    Returns
    -------
    list
        Segments of each sequence; their tokens sum to its length.
    """
    tops: dict[str, _Node] = {}
    ends = []
    for row, sequence in enumerate(sequences):
        root = "" if roots is None else roots[row]
        node = tops.setdefault(root, _Node(None, sequence[:0]))
        start = 0
        for stop in sorted({cut for cut in cuts[row] if 0 < cut < len(sequence)}):
            node = _insert(node, sequence[start:stop])
            start = stop
        ends.append(_insert(node, sequence[start:]))
    return _listed(ends)


def _insert(node: _Node, tokens: Tokens) -> _Node:
    """Walk or grow the tree below a node along some tokens; return the node at their end."""
    while len(tokens):
        first = int(tokens[0])
        child = node.children.get(first)
        if child is None:
            child = node.children[first] = _Node(node, tokens)
            return child
        shared = _shared(child.tokens, tokens)
        if shared < len(child.tokens):
            child = _split(child, shared)
        node, tokens = child, tokens[shared:]
    return node


def _split(lower: _Node, at: int) -> _Node:
    """Cut an edge in two; the lower part keeps its identity, the upper part is returned."""
    assert lower.parent is not None  # only the root has none, and its edge is empty
    upper = _Node(lower.parent, lower.tokens[:at])
    lower.parent.children[int(lower.tokens[0])] = upper
    lower.parent, lower.tokens = upper, lower.tokens[at:]
    upper.children[int(lower.tokens[0])] = lower
    return upper


def _shared(a: Tokens, b: Tokens) -> int:
    length = min(len(a), len(b))
    differ = a[:length] != b[:length]
    at = int(differ.argmax())
    return at if differ[at] else length


def _listed(ends: Sequence[_Node]) -> list[list[tuple[int, int]]]:
    """List the edges down to each end, numbering nodes as they come."""
    num_listed = 0
    rows = []
    for end in ends:
        path = []
        node = end
        while node.parent is not None:
            path.append(node)
            node = node.parent
        row = []
        for node in reversed(path):
            if node.number is None:
                node.number = num_listed
                num_listed += 1
            row.append((node.number, len(node.tokens)))
        rows.append(row)
    return rows
