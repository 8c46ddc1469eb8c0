"""What the scheduler asks of KV memory, whatever its layout."""

from typing import Any, Protocol

from simkv.kv.ops import MemoryOps
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


class KVManager(Protocol):
    """Keeps the memory of one replica's sequences.

    ``admit`` and ``grow`` check first and act only when everything fits; "does not fit" is False.
    Queries change nothing.
    """

    block_tokens: int
    pool_slots: int

    @property
    def num_stored(self) -> int:
        """Blocks registered in the prefix cache since the start."""
        ...

    @property
    def num_evicted(self) -> int:
        """Blocks evicted from it since the start."""
        ...

    @property
    def num_free_blocks(self) -> int:
        """Blocks that could be handed out now, cached ones included."""
        ...

    def can_ever_hold(self, num_tokens: int) -> bool:
        """Whether a sequence of this many tokens fits when it is alone."""
        ...

    def match(self, sequence: Sequence) -> int:
        """Return the tokens of its prefix that are cached; at least one is left to compute."""
        ...

    def admit(
        self,
        sequence: Sequence,
        target_tokens: int,
        *,
        hit_tokens: int,
        full_tokens: int,
        watermark_ratio: float,
    ) -> bool:
        """Give a waiting sequence the memory for its first ``target_tokens``.

        Parameters
        ----------
        hit_tokens
            What ``match`` found; these come from the cache.
        full_tokens
            As many must fit as well, though they are not reserved; 0 asks for no such check.
        watermark_ratio
            Share of the pool that must stay free.
        """
        ...

    def grow(self, sequence: Sequence, target_tokens: int) -> bool:
        """Give a running sequence the memory for ``target_tokens`` in all."""
        ...

    def register(self, sequence: Sequence, num_tokens: int) -> None:
        """Let others hit what a running sequence has computed of its first ``num_tokens``.

        ``admit`` and ``grow`` do so for known tokens; a step planned ahead gets to know its tokens
        later.
        """
        ...

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Let a new sequence hold what another one holds, between two steps.

        The child has the parent's content so far, and as many computed tokens. Whoever writes to a
        shared block first gets a copy, all but its last holder.
        """
        ...

    def take_ops(self) -> MemoryOps:
        """Return what is to be done before the next step, and forget it."""
        ...

    def release(self, sequence: Sequence) -> None:
        """Take back everything a sequence holds: it ended or is preempted."""
        ...

    def advance(self, num_tokens: int) -> None:
        """Note that the sequences that hold memory compute so many more tokens, all together."""
        ...

    def counters(self) -> tuple[int, ...]:
        """Return the few numbers that all that slots do can be worked out from."""
        ...

    def grown(self, counters: Any, more_tokens: Any, more_blocks: Any) -> tuple[Any, ...]:
        """Return what counters become where sequences only grow.

        Parameters
        ----------
        counters
            What ``counters`` returned, as numbers or as an array for each.
        more_tokens, more_blocks
            Tokens computed and blocks handed out since.
        """
        ...

    def usage_of(self, counters: Any) -> Usage:
        """Return what the slots are doing, given counters or means of them over time.

        Each account is a linear function of the counters, so its mean is that of their means.
        """
        ...

    def usage(self) -> Usage:
        """Return what the slots are doing now."""
        ...


class Lender(KVManager, Protocol):
    """A manager whose sequences may grow together, with their own records brought up later.

    ``grows`` says whether a sequence that decodes takes blocks on the way, ``shares`` whether
    others can find them.
    """

    grows: bool
    shares: bool

    def lend(self, num_blocks: int, num_tokens: int) -> None:
        """Hand out free blocks to sequences that grow together by so many tokens in all."""
        ...

    def settle(self, sequence: Sequence) -> None:
        """Write down what a sequence that grew with others holds now."""
        ...

    def retire(self, sequence: Sequence) -> None:
        """Take back everything that a sequence which grew with others holds: it ended."""
        ...

    def open_segments(self, sequence: Sequence) -> list[int]:
        """Return the segments whose blocks it may still register and others can name."""
        ...
