"""How long a client waits between an answer and its next request: think times as frozen values.

Think times have several homes in a configuration, so the value that holds one checks it: ``check``
is told the path.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simkv.errors import ConfigError
from simkv.workload.trace import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialThink:
    """Memoryless think times with a given mean; a mean of 0 is no pause at all."""

    kind: Literal["exponential"] = "exponential"
    mean_s: float = 10.0

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if not 0 <= self.mean_s < math.inf:
            raise ConfigError(f"got {self.mean_s}, expected 0 or more", path=f"{path}.mean_s")

    def draw(self, rng: np.random.Generator, num: int) -> Floats:
        """Return ``num`` think times in s."""
        return rng.exponential(self.mean_s, num)


@dataclass(frozen=True, slots=True, kw_only=True)
class LognormalThink:
    """Think times with a long tail: people who leave and come back.

    Parameters
    ----------
    median_s
        Half of the pauses are shorter.
    sigma
        Standard deviation of the logarithm; the mean is ``median_s * exp(sigma**2 / 2)``.
    """

    kind: Literal["lognormal"] = "lognormal"
    median_s: float = 10.0
    sigma: float = 1.0

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if not 0 < self.median_s < math.inf:
            raise ConfigError(f"got {self.median_s}, expected more than 0", path=f"{path}.median_s")
        if not 0 <= self.sigma <= 5:
            raise ConfigError(f"got {self.sigma}, expected 0 to 5", path=f"{path}.sigma")

    def draw(self, rng: np.random.Generator, num: int) -> Floats:
        """Return ``num`` think times in s."""
        return rng.lognormal(math.log(self.median_s), self.sigma, num)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantThink:
    """The same pause every time: a program that calls tools of a fixed duration."""

    kind: Literal["constant"] = "constant"
    think_s: float = 0.0

    def check(self, path: str) -> None:
        """Raise ``ConfigError`` where a value is out of range; ``path`` is where the law is."""
        if not 0 <= self.think_s < math.inf:
            raise ConfigError(f"got {self.think_s}, expected 0 or more", path=f"{path}.think_s")

    def draw(self, rng: np.random.Generator, num: int) -> Floats:
        """Return ``num`` think times in s."""
        return np.full(num, self.think_s)


Think = ExponentialThink | LognormalThink | ConstantThink
