"""A sequence as a KV manager sees it: what it holds and how far it is."""

from dataclasses import dataclass, field
from typing import Any

Segments = list[tuple[int, int]]
"""Content as ``(segment id, tokens)`` pairs; see ``simkv.workload.trace`` for what ids mean."""


@dataclass(slots=True, eq=False)
class Sequence:
    """One sequence of tokens whose keys and values are kept.

    Parameters
    ----------
    id
        Unique in the run.
    segments
        Content of prompt and output together; ``cover`` makes it complete.
    num_tokens
        Known tokens: the prompt, then every token sampled so far.
    final_tokens
        Tokens whose state is stored when the sequence ends (its last token is never computed).
    computed_tokens
        Tokens computed, or being computed by the step under way.
    in_flight_tokens
        Those of the computed tokens whose step has not ended; known only where steps are planned
        ahead, else 0.
    capacity_tokens
        Slots that the manager has given it. While ``computed_tokens`` stays below, there is no
        need to ask the manager for anything.
    table
        The manager's own record of what the sequence holds; None while it holds nothing.
    """

    id: int
    segments: Segments
    num_tokens: int
    final_tokens: int
    computed_tokens: int = 0
    in_flight_tokens: int = 0
    capacity_tokens: int = 0
    table: Any = field(default=None, repr=False)


def cover(segments: Segments, total_tokens: int, sequence_id: int) -> Segments:
    """Return content that covers exactly ``total_tokens``.

    What the given segments leave open is the sequence's own: one more segment with a negative id
    that no other sequence has. What they have too much is cut off.
    """
    covered: Segments = []
    left = total_tokens
    for segment, tokens in segments:
        if left == 0:
            return covered
        covered.append((segment, min(tokens, left)))
        left -= min(tokens, left)
    if left:
        covered.append((-1 - sequence_id, left))
    return covered
