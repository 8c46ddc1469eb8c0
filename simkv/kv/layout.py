"""The KV-memory layouts that can be chosen, as frozen values: what a configuration says.

A value holds parameters only. The managers that act on them are ``accounts.Accounts`` and, with
windows, ``blocks.Blocks`` (paged), and ``contiguous.Reservations``; ``config/build.py`` makes one
from the other.
"""

from dataclasses import dataclass
from typing import Literal

from simkv.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSharing:
    """Every sequence computes and stores its whole prefix itself."""

    kind: Literal["none"] = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashChain:
    """Prefix cache over full blocks whose hash covers everything before them (vLLM), LRU."""

    kind: Literal["hash-chain"] = "hash-chain"


Sharing = NoSharing | HashChain


@dataclass(frozen=True, slots=True, kw_only=True)
class Paged:
    """Fixed-size blocks behind a block table (PagedAttention).

    Parameters
    ----------
    block_tokens
        Slots in a block; any number from 1, no power of two assumed.
    num_blocks
        Blocks of the pool, vLLM's null block included; None derives it from the device's memory.
    num_slots
        The pool in slots instead, so that pools of different block sizes hold the same tokens; a
        slot holds one token's state in all layers.
    sharing
        How prompts with a common prefix share blocks.
    sliding_window_tokens
        Tokens that a layer with a window attends to, and so keeps; None takes the model's, 0 keeps
        everything.
    window_layers
        Which layers have the window: all of them, or every other one (the rest attend to all, as
        in hybrid models).
    """

    kind: Literal["paged"] = "paged"
    block_tokens: int = 16
    num_blocks: int | None = None
    num_slots: int | None = None
    sharing: Sharing = HashChain()
    sliding_window_tokens: int | None = None
    window_layers: Literal["all", "half"] = "all"

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.block_tokens < 1:
            raise ConfigError(
                f"{self.block_tokens} is not a block size, expected 1 or more",
                path="kv.block_tokens",
            )
        if self.num_blocks is not None and self.num_blocks < 2:
            raise ConfigError(
                f"{self.num_blocks} blocks cannot hold anything, expected 2 or more "
                "(one is the null block)",
                path="kv.num_blocks",
            )
        if self.num_slots is not None and self.num_blocks is not None:
            raise ConfigError(
                f"got both num_slots={self.num_slots} and num_blocks={self.num_blocks}; give one",
                path="kv.num_slots",
            )
        if self.num_slots is not None and self.num_slots < self.block_tokens:
            raise ConfigError(
                f"{self.num_slots} slots hold no block of {self.block_tokens}; raise kv.num_slots",
                path="kv.num_slots",
            )
        if self.sliding_window_tokens is not None and self.sliding_window_tokens < 0:
            raise ConfigError(
                f"got {self.sliding_window_tokens}, expected 0 (no window) or more",
                path="kv.sliding_window_tokens",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ContiguousMax:
    """One contiguous piece a request, reserved for the longest request that is allowed.

    Parameters
    ----------
    num_slots
        Slots of the pool; None derives it from the device's memory.
    """

    kind: Literal["contiguous-max"] = "contiguous-max"
    num_slots: int | None = None

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.num_slots is not None and self.num_slots < 1:
            raise ConfigError(
                f"{self.num_slots} slots cannot hold anything, expected 1 or more",
                path="kv.num_slots",
            )


Layout = Paged | ContiguousMax
