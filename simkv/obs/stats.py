"""Intervals over seeds, and paired comparisons of two arms that saw the same draws.

A sweep gives every arm the same seeds, and a seed the same draw to every arm, so what differs
between two arms is looked at seed by seed: the spread of the workload cancels. What the numbers
mean for a ranking (ties, thresholds, order) is the business of ``simkv.sweep.rank``.

Two methods. Below ``BOOTSTRAP_PAIRS`` seeds the interval is Student's t over the seeds: with five
values a bootstrap has at most 126 different resamples and its 95 % interval holds the truth in
about 84 % of cases. From there on it is the bootstrap, bias-corrected and accelerated (BCa; Efron,
JASA 1987), which assumes no shape. One seed has no interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from simkv.rng import stream

BOOTSTRAP_PAIRS = 20
NUM_RESAMPLES = 9_999
LEVEL_RATIO = 0.95

Method = Literal["t", "BCa"]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where a mean lies, at a stated level; ``method`` says how it was found."""

    low: float
    high: float
    level_ratio: float
    method: Method

    def holds(self, value: float) -> bool:
        """Say whether a value lies inside, ends included."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over seeds; the interval is None where there is one seed only."""

    mean: float
    interval: Interval | None
    num_seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What A is more than B, seed by seed.

    Parameters
    ----------
    difference
        Mean of A minus B, with its interval.
    more_ratio
        How sure it is that the mean of A is above that of B, 0 to 1: one minus the one-sided
        p-value of the t-test, or the share of bootstrap means above zero. None for one seed.
    """

    difference: Estimate
    more_ratio: float | None


def estimate(values: Sequence[float] | Floats, *, level_ratio: float = LEVEL_RATIO) -> Estimate:
    """Return the mean of one value a seed, with its interval.

    Raises
    ------
    ValueError
        There is no value, or one that is not finite.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample) or not np.isfinite(sample).all():
        raise ValueError("a mean over seeds needs at least one value, all of them finite")
    mean = float(sample.mean())
    interval = None
    if len(sample) >= BOOTSTRAP_PAIRS and np.ptp(sample) > 0:
        low, high = _bca(sample, _bootstrap_means(sample), level_ratio)
        interval = Interval(low=low, high=high, level_ratio=level_ratio, method="BCa")
    elif len(sample) > 1:
        half = float(stdtrit(len(sample) - 1, 0.5 + level_ratio / 2)) * _standard_error(sample)
        interval = Interval(low=mean - half, high=mean + half, level_ratio=level_ratio, method="t")
    return Estimate(mean=mean, interval=interval, num_seeds=len(sample))


def compare(
    a: Sequence[float] | Floats, b: Sequence[float] | Floats, *, level_ratio: float = LEVEL_RATIO
) -> Comparison:
    """Compare two arms over common seeds: ``a[i]`` and ``b[i]`` come from one draw.

    Raises
    ------
    ValueError
        The arms have different numbers of seeds, none, or a value that is not finite.
    """
    if len(a) != len(b):
        raise ValueError(f"arms of {len(a)} and {len(b)} seeds cannot be paired")
    sample = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    difference = estimate(sample, level_ratio=level_ratio)
    return Comparison(
        difference=difference,
        more_ratio=None if difference.interval is None else _more_ratio(sample),
    )


def method_note(num_seeds: int) -> str:
    """Say in one sentence how intervals over so many seeds are made, and why."""
    if num_seeds == 1:
        return "One seed gives no interval: the order is that of a single draw. Use 5 seeds."
    if num_seeds < BOOTSTRAP_PAIRS:
        return (
            f"Intervals are 95 % Student's t over {num_seeds} seeds, paired where two arms are "
            f"compared (a bootstrap of so few values is too narrow; it is used from "
            f"{BOOTSTRAP_PAIRS} seeds on)."
        )
    return (
        f"Intervals are 95 % BCa bootstrap over {num_seeds} seeds ({NUM_RESAMPLES:,} resamples), "
        "paired where two arms are compared."
    )


def _more_ratio(sample: Floats) -> float:
    if np.ptp(sample) == 0:
        return 0.5 if sample[0] == 0 else float(sample[0] > 0)
    if len(sample) >= BOOTSTRAP_PAIRS:
        means = _bootstrap_means(sample)
        return float((means > 0).mean() + (means == 0).mean() / 2)
    return float(stdtr(len(sample) - 1, sample.mean() / _standard_error(sample)))


def _standard_error(sample: Floats) -> float:
    return float(sample.std(ddof=1) / np.sqrt(len(sample)))


def _bootstrap_means(sample: Floats) -> Floats:
    """Return ``[NUM_RESAMPLES] float64``: means of resamples, the same ones for equal lengths."""
    # One stream for all comparisons: interval and probability of one sample then agree.
    drawn = stream(0, "bootstrap").integers(len(sample), size=(NUM_RESAMPLES, len(sample)))
    return np.asarray(sample[drawn].mean(axis=1))


def _bca(sample: Floats, means: Floats, level_ratio: float) -> tuple[float, float]:
    below = ((means < sample.mean()).mean() + (means <= sample.mean()).mean()) / 2
    bias = ndtri(below)
    # Leaving out one value moves the mean by a multiple of its distance; the multiple cancels.
    distance = sample - sample.mean()
    acceleration = float((distance**3).sum() / (6 * (distance**2).sum() ** 1.5))
    tails = bias + ndtri(np.array([0.5 - level_ratio / 2, 0.5 + level_ratio / 2]))
    low, high = np.quantile(means, ndtr(bias + tails / (1 - acceleration * tails)))
    return float(low), float(high)
