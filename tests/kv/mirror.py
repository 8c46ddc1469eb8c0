"""A manager that keeps sequences of its own beside the ones that it is asked about.

A manager leaves its table in the sequence, so two managers cannot share one. This lets a physical
manager follow a story that is told about another manager's sequences.
"""

from simkv.kv.blocks import Blocks
from simkv.kv.sequence import Sequence


class Mirror:
    """``Blocks`` behind the calls of the protocol, on copies of the sequences."""

    def __init__(self, kv: Blocks) -> None:
        self.kv = kv
        self.copies: dict[int, Sequence] = {}

    def copy(self, sequence: Sequence) -> Sequence:
        """Return the copy of a sequence, brought up to date."""
        copy = self.copies.setdefault(
            sequence.id,
            Sequence(
                id=sequence.id,
                segments=sequence.segments,
                num_tokens=sequence.num_tokens,
                final_tokens=sequence.final_tokens,
            ),
        )
        copy.num_tokens = sequence.num_tokens
        copy.computed_tokens = sequence.computed_tokens
        return copy

    def match(self, sequence: Sequence) -> int:
        return self.kv.match(self.copy(sequence))

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        return self.kv.admit(
            self.copy(sequence),
            target_tokens,
            hit_tokens=hit_tokens,
            full_tokens=full_tokens,
            watermark_ratio=watermark_ratio,
        )

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        return self.kv.grow(self.copy(sequence), target_tokens)

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        return self.kv.fork(self.copy(parent), self.copy(child))

    def release(self, sequence: Sequence) -> None:
        self.kv.release(self.copy(sequence))

    def advance(self, num_tokens: int) -> None:
        self.kv.advance(num_tokens)
