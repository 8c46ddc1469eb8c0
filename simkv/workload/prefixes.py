"""Who asks, and which system prompts they share: popularity as frozen values."""

from dataclasses import dataclass, field

import numpy as np

from simkv.errors import ConfigError
from simkv.workload.lengths import Fixed, Lengths, draw_index
from simkv.workload.trace import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """Who the requests come from.

    Parameters
    ----------
    num_tenants
        How many tenants there are; each has system prompts of its own.
    exponent
        Zipf exponent of their popularity; 0: all alike.
    """

    num_tenants: int = 1
    exponent: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_popularity("workload.tenants", "num_tenants", self.num_tenants, self.exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """System prompts that requests share.

    Parameters
    ----------
    num_prompts
        System prompts of each tenant.
    exponent
        Zipf exponent of their popularity within a tenant; 0: all alike.
    tokens
        Law of their lengths, drawn once each.
    """

    num_prompts: int = 8
    exponent: float = 1.0
    tokens: Lengths = field(default_factory=lambda: Fixed(tokens=512))

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_popularity("workload.prefixes", "num_prompts", self.num_prompts, self.exponent)
        self.tokens.check("workload.prefixes.tokens")


def draw_popular(rng: np.random.Generator, num_items: int, exponent: float, num: int) -> Ints:
    """Draw ``num`` ranks from 0, rank ``r`` in proportion to ``(r + 1)**-exponent`` (Zipf)."""
    weight: Floats = np.arange(1.0, num_items + 1) ** -float(exponent)
    return draw_index(rng, weight, num)


def _check_popularity(path: str, name: str, num: int, exponent: float) -> None:
    if num < 1:
        raise ConfigError(f"got {num}, expected 1 or more", path=f"{path}.{name}")
    if not 0 <= exponent <= 20:
        raise ConfigError(f"got {exponent}, expected 0 to 20", path=f"{path}.exponent")
