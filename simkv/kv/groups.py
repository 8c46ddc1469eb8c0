"""What an attention group keeps of a sequence: everything, or a window of the last tokens.

A model's layers fall into groups that attend alike; a group has a block table of its own for every
sequence. Rules 10.1 to 10.5 of vLLM V1's step logs are the arithmetic here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simkv.kv.pool import NULL, Key

Find = Callable[[Key], int | None]
"""Looks a block up by its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullAttention:
    """Layers that attend to every token before: all blocks are kept."""

    def num_skipped(self, num_tokens: int, block_tokens: int) -> int:
        """Return how many leading blocks are not kept after so many tokens: none."""
        return 0

    def most_blocks(self, num_tokens: int, block_tokens: int) -> int:
        """Return the most blocks that a sequence holds on its way to so many tokens."""
        return -(-num_tokens // block_tokens)

    def lookup(self, find: Find, keys: list[Key], limit: int, block_tokens: int) -> list[int]:
        """Return the cached blocks of some content from the first on, ``limit`` at most (6.2)."""
        found = []
        for place in range(limit):
            block = find(keys[place])
            if block is None:
                break
            found.append(block)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAttention:
    """Layers that attend to the last ``window_tokens``, the present one included.

    Parameters
    ----------
    window_tokens
        Tokens that a token sees.
    step_tokens
        Most tokens that can be under way for one sequence: the budget of a step, of two where one
        is planned ahead. A prompt of any length needs no more room than the window and these.
    """

    window_tokens: int
    step_tokens: int

    def num_skipped(self, num_tokens: int, block_tokens: int) -> int:
        """Return how many leading blocks no later token sees after so many tokens (10.1)."""
        return max(0, num_tokens - self.window_tokens + 1) // block_tokens

    def most_blocks(self, num_tokens: int, block_tokens: int) -> int:
        """Return the most blocks that a sequence holds on its way to so many tokens (10.5)."""
        room = self.window_tokens - 1 + self.step_tokens
        return min(-(-num_tokens // block_tokens), -(-room // block_tokens) + 1)

    def lookup(self, find: Find, keys: list[Key], limit: int, block_tokens: int) -> list[int]:
        """Return the longest hit that a window can go on from, null where it sees nothing (10.3).

        A window needs the blocks just before the end only, so the search starts there.
        """
        wanted = max(1, -(-(self.window_tokens - 1) // block_tokens))
        run: list[int] = []
        for place in reversed(range(limit)):
            block = find(keys[place])
            if block is None:
                run = []
                continue
            run.append(block)
            if len(run) == wanted:
                return [NULL] * place + run[::-1]
        return run[::-1]


Attention = FullAttention | WindowAttention
