"""Fitting a formula's coefficients to measured times by least squares on the log time."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from simkv.cost.physics import Coefficients
from simkv.cost.profile import Fit
from simkv.cost.surface import from_points

Array = NDArray[np.float64]

# Residuals beyond this (in log time) count linearly: a table has outliers, and one must not bend
# the formula for all others.
_SOFT_LOG = 0.1

# Four digits are ten times finer than any residual, and coarse enough that the last bits of a
# math library do not show. Iterations go on until nothing moves, for the same reason.
_DIGITS = 4
_TOLERANCE = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Where a coefficient is sought: from ``low`` to ``high``, starting at ``start``."""

    start: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A formula with the ranges of its coefficients.

    ``times_us(coefficients, *columns)`` gives the time at every point.
    """

    times_us: Callable[..., Array]
    ranges: dict[str, Range]

    def coefficients(self, columns: list[Array], measured_us: Array) -> dict[str, float]:
        """Return the coefficients that describe measured times best, rounded to four digits.

        They are sought on a log scale, all being positive, with a soft L1 loss.
        """
        names = list(self.ranges)
        low = np.log([self.ranges[n].low for n in names])
        high = np.log([self.ranges[n].high for n in names])
        start = np.clip(np.log([self.ranges[n].start for n in names]), low + 1e-9, high - 1e-9)
        target = np.log(measured_us)

        def misses(theta: Array) -> Array:
            values: Coefficients = dict(zip(names, np.exp(theta).tolist(), strict=True))
            return np.log(self.times_us(values, *columns)) - target

        found = least_squares(
            misses,
            start,
            bounds=(low, high),
            loss="soft_l1",
            f_scale=_SOFT_LOG,
            xtol=_TOLERANCE,
            ftol=_TOLERANCE,
            gtol=_TOLERANCE,
        )
        return {
            name: float(f"{value:.{_DIGITS}g}")
            for name, value in zip(names, np.exp(found.x).tolist(), strict=True)
        }

    def fit(self, columns: list[Array], measured_us: Array, shape: tuple[int, ...] = ()) -> Fit:
        """Return coefficients and the residuals that they leave at every measured point."""
        values = self.coefficients(columns, measured_us)
        residual = np.log(measured_us / self.times_us(values, *columns))
        return Fit(values, from_points(columns, residual), shape)

    def predict(self, fit: Fit, columns: list[Array]) -> Array:
        """Return formula times interpolated residual at any points."""
        return self.times_us(fit.coefficients, *columns) * fit.surface.factor(*columns)
