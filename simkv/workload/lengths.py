"""How long prompts and outputs are: length laws as frozen values.

Length laws have several homes in a configuration, so the value that holds one checks it: ``check``
is told the path. Draws are whole tokens, 1 at least.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simkv.errors import ConfigError
from simkv.workload.trace import Floats, Ints

_MAX_ZIPF_RANGE = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Always the same length."""

    kind: Literal["fixed"] = "fixed"
    tokens: int = 128

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if self.tokens < 1:
            raise ConfigError(f"got {self.tokens}, expected 1 or more", path=f"{path}.tokens")

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return ``num`` lengths in tokens."""
        return np.full(num, self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Lognormal lengths, given either their mean or their median.

    Parameters
    ----------
    mean_tokens, median_tokens
        One of the two, before the bounds.
    sigma
        Standard deviation of the logarithm.
    min_tokens, max_tokens
        A draw outside is moved to the bound, as a server's ``max_tokens`` does.
    """

    kind: Literal["lognormal"] = "lognormal"
    mean_tokens: float | None = None
    median_tokens: float | None = None
    sigma: float = 1.0
    min_tokens: int = 1
    max_tokens: int | None = None

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if (self.mean_tokens is None) == (self.median_tokens is None):
            raise ConfigError(
                f"got mean_tokens {self.mean_tokens} and median_tokens {self.median_tokens}, "
                "expected exactly one of the two",
                path=path,
            )
        for name in ("mean_tokens", "median_tokens"):
            got = getattr(self, name)
            if got is not None and not 0 < got < math.inf:
                raise ConfigError(f"got {got}, expected more than 0", path=f"{path}.{name}")
        if not 0 <= self.sigma <= 5:
            raise ConfigError(f"got {self.sigma}, expected 0 to 5", path=f"{path}.sigma")
        _check_bounds(self.min_tokens, self.max_tokens, path)

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return ``num`` lengths in tokens."""
        if self.median_tokens is not None:
            log_median = math.log(self.median_tokens)
        elif self.mean_tokens is not None:
            log_median = math.log(self.mean_tokens) - self.sigma**2 / 2
        else:
            raise ConfigError("expected mean_tokens or median_tokens")
        tokens = np.rint(rng.lognormal(log_median, self.sigma, num))
        return np.clip(tokens, self.min_tokens, self.max_tokens).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Zipf:
    """Lengths ``n`` from ``min_tokens`` to ``max_tokens``, each in proportion to ``n**-exponent``.

    An exponent of 0 makes all lengths equally likely.
    """

    kind: Literal["zipf"] = "zipf"
    exponent: float = 1.0
    min_tokens: int = 16
    max_tokens: int = 4096

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if not 0 <= self.exponent <= 20:
            raise ConfigError(f"got {self.exponent}, expected 0 to 20", path=f"{path}.exponent")
        _check_bounds(self.min_tokens, self.max_tokens, path)
        if self.max_tokens - self.min_tokens > _MAX_ZIPF_RANGE:
            raise ConfigError(
                f"got {self.max_tokens}, expected at most {_MAX_ZIPF_RANGE} above min_tokens",
                path=f"{path}.max_tokens",
            )

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return ``num`` lengths in tokens."""
        support = np.arange(self.min_tokens, self.max_tokens + 1, dtype=np.float64)
        return self.min_tokens + draw_index(rng, np.power(support, -self.exponent), num)


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """Lengths drawn with replacement from a recorded trace: prompts for a prompt, and so on.

    Parameters
    ----------
    path, format
        The trace, as in a workload of kind ``trace``.
    """

    kind: Literal["empirical"] = "empirical"
    path: str
    format: str = "auto"

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if not self.path:
            raise ConfigError("got no path, expected a trace file", path=f"{path}.path")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """The output of the request that the prompt was drawn from: for an empirical prompt only."""

    kind: Literal["paired"] = "paired"


Lengths = Fixed | Lognormal | Zipf | Empirical
OutputLengths = Lengths | Paired


def draw_index(rng: np.random.Generator, weight: Floats, num: int) -> Ints:
    """Return ``num`` indices, each drawn in proportion to its weight, one uniform a draw."""
    cumulative = np.cumsum(weight)
    found = np.searchsorted(cumulative, rng.random(num) * cumulative[-1], side="right")
    index: Ints = np.minimum(found, len(weight) - 1).astype(np.int64)
    return index


def _check_bounds(min_tokens: int, max_tokens: int | None, path: str) -> None:
    if min_tokens < 1:
        raise ConfigError(f"got {min_tokens}, expected 1 or more", path=f"{path}.min_tokens")
    if max_tokens is not None and max_tokens < min_tokens:
        raise ConfigError(
            f"got {max_tokens}, expected min_tokens ({min_tokens}) or more",
            path=f"{path}.max_tokens",
        )
