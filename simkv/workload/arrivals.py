"""When requests come: arrival processes as frozen values that draw times.

Every open process has ``rate_per_s``, its long-run mean, so that one axis scales any of them. What
arrives (a request, or a session that starts) is the business of ``synthetic.py``.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from simkv.errors import ConfigError
from simkv.workload.think import ExponentialThink, Think
from simkv.workload.trace import Floats

Drawn = tuple[Floats, float]
"""Arrival times in s, and the time up to which they were drawn."""

_PATH = "workload.arrivals"
_SHAPE_RANGE = (0.1, 200.0)
_CV_RANGE = (0.01, 100.0)  # of a Weibull: inside the range of shapes
_MOST_AT_ONCE = 10_000_000  # what is drawn or started together has to fit in memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent arrivals: exponential gaps, coefficient of variation 1."""

    kind: Literal["poisson"] = "poisson"
    rate_per_s: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s")

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``."""
        return _after_gaps(rng.exponential(1 / self.rate_per_s, num), start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Gamma gaps with a given coefficient of variation ``cv`` (1: Poisson, above 1: bursts)."""

    kind: Literal["gamma"] = "gamma"
    rate_per_s: float = 1.0
    cv: float = 2.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s", "cv")
        if self.cv > _CV_RANGE[1]:  # gaps then vanish in the rounding, and the rate with them
            raise ConfigError(
                f"got {self.cv}, expected above 0, at most {_CV_RANGE[1]}", path=f"{_PATH}.cv"
            )

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``."""
        shape = 1 / self.cv**2
        return _after_gaps(rng.gamma(shape, 1 / (self.rate_per_s * shape), num), start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weibull:
    """Weibull gaps, given either their coefficient of variation or their shape.

    Parameters
    ----------
    rate_per_s
        Mean rate.
    cv, shape
        One of the two; shape 1 and cv 1 are both Poisson, a shape below 1 has a cv above 1.
    """

    kind: Literal["weibull"] = "weibull"
    rate_per_s: float = 1.0
    cv: float | None = None
    shape: float | None = None

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s")
        if (self.cv is None) == (self.shape is None):
            raise ConfigError(
                f"got cv {self.cv} and shape {self.shape}, expected exactly one of the two",
                path=_PATH,
            )
        for name, (low, high) in (("cv", _CV_RANGE), ("shape", _SHAPE_RANGE)):
            got = getattr(self, name)
            if got is not None and not low <= got <= high:
                raise ConfigError(f"got {got}, expected {low} to {high}", path=f"{_PATH}.{name}")

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``."""
        if self.shape is not None:
            shape = self.shape
        elif self.cv is not None:
            shape = weibull_shape(self.cv)
        else:
            raise ConfigError("expected cv or shape", path=_PATH)
        scale_s = 1 / (self.rate_per_s * math.gamma(1 + 1 / shape))
        return _after_gaps(rng.weibull(shape, num) * scale_s, start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mmpp:
    """Markov-modulated Poisson process of two states, on and off (bursts and lulls).

    Parameters
    ----------
    rate_per_s
        Mean rate over both states.
    mean_on_s, mean_off_s
        Mean stay in each state; stays are exponential.
    off_ratio
        Rate when off as a share of the rate when on; 0 is silence.
    """

    kind: Literal["mmpp"] = "mmpp"
    rate_per_s: float = 1.0
    mean_on_s: float = 30.0
    mean_off_s: float = 30.0
    off_ratio: float = 0.1

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s", "mean_on_s", "mean_off_s")
        if not 0 <= self.off_ratio <= 1:
            raise ConfigError(
                f"got {self.off_ratio}, expected a ratio from 0 to 1", path=f"{_PATH}.off_ratio"
            )
        in_cycle = self.rate_per_s * (self.mean_on_s + self.mean_off_s)
        if in_cycle > _MOST_AT_ONCE:
            raise ConfigError(
                f"{in_cycle:.3g} requests come in a mean cycle of on and off, expected at most "
                f"{_MOST_AT_ONCE:,}; shorten the stays or lower the rate",
                path=f"{_PATH}.mean_on_s",
            )

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``."""
        cycle_s = self.mean_on_s + self.mean_off_s
        on_per_s = self.rate_per_s * cycle_s / (self.mean_on_s + self.off_ratio * self.mean_off_s)
        # Whole cycles; a few spare ones beyond the average need do no harm.
        cycles = math.ceil(num / (self.rate_per_s * cycle_s)) + 4
        stays_s = rng.exponential(np.tile([self.mean_on_s, self.mean_off_s], cycles))
        if start_s == 0 and rng.random() * cycle_s >= self.mean_on_s:
            stays_s[0] = 0.0  # stationary from time zero: it may be off then
        counts = rng.poisson(stays_s * np.tile([on_per_s, on_per_s * self.off_ratio], cycles))
        begins_s = start_s + np.cumsum(stays_s) - stays_s
        times_s = np.repeat(begins_s, counts)
        times_s += rng.random(len(times_s)) * np.repeat(stays_s, counts)
        times_s.sort()
        return times_s, start_s + float(stays_s.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Equal gaps."""

    kind: Literal["constant"] = "constant"
    rate_per_s: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s")

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``."""
        return _after_gaps(np.full(num, 1 / self.rate_per_s), start_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """Poisson arrivals whose rate swings as a cosine over the day.

    Parameters
    ----------
    rate_per_s
        Mean rate over a period.
    swing_ratio
        Half the swing over the mean: 0.6 goes from 0.4 to 1.6 of the mean.
    period_s, peak_s
        Length of a period and when in it the rate is highest.
    """

    kind: Literal["diurnal"] = "diurnal"
    rate_per_s: float = 1.0
    swing_ratio: float = 0.6
    period_s: float = 86400.0
    peak_s: float = 43200.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "rate_per_s", "period_s")
        if not 0 <= self.swing_ratio <= 1:
            raise ConfigError(
                f"got {self.swing_ratio}, expected a ratio from 0 to 1", path=f"{_PATH}.swing_ratio"
            )

    def more(self, rng: np.random.Generator, num: int, start_s: float) -> Drawn:
        """Draw on from ``start_s``: see ``draw_arrivals``.

        By thinning (Lewis and Shedler 1979): arrivals at the highest rate, each kept with the
        probability that the rate at its time has of the highest.
        """
        highest_per_s = self.rate_per_s * (1 + self.swing_ratio)
        candidates = math.ceil(num * (1 + self.swing_ratio))
        times_s, clock_s = _after_gaps(rng.exponential(1 / highest_per_s, candidates), start_s)
        angle = 2 * np.pi * (times_s - self.peak_s) / self.period_s
        rate_per_s = self.rate_per_s * (1 + self.swing_ratio * np.cos(angle))
        return times_s[rng.random(candidates) * highest_per_s < rate_per_s], clock_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Closed loop: a fixed number of clients, each waiting for its answer before it goes on.

    Parameters
    ----------
    num_clients
        Sessions (requests, where sessions have one turn) under way at a time.
    think
        Time between the end of a client's session and the start of its next.
    ramp_s
        The clients start evenly spread over this time; 0: all at once.
    """

    kind: Literal["closed"] = "closed"
    num_clients: int = 16
    think: Think = field(default_factory=ExponentialThink)
    ramp_s: float = 0.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_above_zero(self, "num_clients")
        if self.num_clients > _MOST_AT_ONCE:
            raise ConfigError(
                f"got {self.num_clients}, expected at most {_MOST_AT_ONCE:,}",
                path=f"{_PATH}.num_clients",
            )
        if self.ramp_s < 0:
            raise ConfigError(f"got {self.ramp_s}, expected 0 or more", path=f"{_PATH}.ramp_s")
        self.think.check(f"{_PATH}.think")


OpenArrivals = Poisson | Gamma | Weibull | Mmpp | Constant | Diurnal
Arrivals = OpenArrivals | Closed


def draw_arrivals(
    process: OpenArrivals, rng: np.random.Generator, *, num: int, end_s: float | None = None
) -> Floats:
    """Return the first ``num`` arrival times in s, ascending, none later than ``end_s``.

    A process draws on by ``more(rng, num, start_s)``: about ``num`` further arrivals, and the
    time up to which it has drawn, from where it can go on.
    """
    pieces: list[Floats] = [np.empty(0)]
    missing, clock_s = num, 0.0
    while missing > 0 and (end_s is None or clock_s <= end_s):
        wanted = missing
        if end_s is not None:
            wanted = min(missing, math.ceil((end_s - clock_s) * process.rate_per_s * 1.1) + 64)
        times_s, clock_s = process.more(rng, wanted, clock_s)
        pieces.append(times_s)
        missing -= len(times_s)
    times_s = np.concatenate(pieces)[:num]
    return times_s if end_s is None else times_s[: np.searchsorted(times_s, end_s, side="right")]


def weibull_shape(cv: float) -> float:
    """Return the Weibull shape ``k`` whose coefficient of variation is ``cv``.

    Solves ``1 + cv**2 = gamma(1 + 2/k) / gamma(1 + 1/k)**2`` by bisection.
    """
    target = math.log1p(cv**2)
    low, high = _SHAPE_RANGE  # the cv falls with the shape
    for _ in range(80):
        middle = math.sqrt(low * high)
        if math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle) > target:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)


def _after_gaps(gaps_s: Floats, start_s: float) -> Drawn:
    """Return the times that these gaps lead to, and the last of them."""
    times_s = start_s + np.cumsum(gaps_s)
    return times_s, float(times_s[-1])


def _check_above_zero(value: object, *names: str) -> None:
    """Raise ``ConfigError`` for the first of the fields that is not above zero."""
    for name in names:
        got = getattr(value, name)
        if not 0 < got < math.inf:
            raise ConfigError(f"got {got}, expected more than 0", path=f"{_PATH}.{name}")
