"""How well a fit predicts what it has not seen: whole batches, contexts or the far end left out.

Never a random split: neighbours of a left-out point would stay in, and hide the tail.
"""

import numpy as np
from numpy.typing import NDArray

from simkv.fit.formula import Formula

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# "The far end" is the last factor of this in the work that a point does.
_FAR = 4.0


def every_other(values: Array) -> Mask:
    """Return which points have the 2nd, 4th, ... of the distinct values."""
    return np.isin(values, np.unique(values)[1::2])


def splits(columns: dict[str, Array], work: Array) -> dict[str, Mask]:
    """Return the points that each split leaves out.

    Parameters
    ----------
    columns
        The quantities of which every other value is left out, by name, and together.
    work
        Bytes or FLOPs of each point, for extrapolation.
    """
    found = {f"alternate {name}": every_other(values) for name, values in columns.items()}
    if len(columns) > 1:
        found["quarter of the grid"] = np.logical_or.reduce(list(found.values()))
    found["extrapolation x4"] = work > work.max() / _FAR
    return found


def errors(formula: Formula, columns: list[Array], measured_us: Array, left_out: Mask) -> Array:
    """Return relative errors at the points left out, fitted on the others."""
    kept = ~left_out
    fit = formula.fit([column[kept] for column in columns], measured_us[kept])
    predicted = formula.predict(fit, [column[left_out] for column in columns])
    return np.asarray(np.abs(predicted / measured_us[left_out] - 1.0))


def summary(relative_errors: Array) -> list[float]:
    """Return median and 90th percentile, rounded to a tenth of a percent."""
    return [round(float(np.percentile(relative_errors, q)), 3) for q in (50, 90)]


class Report:
    """Collects errors by split over several tables, then sums them up."""

    def __init__(self) -> None:
        self._errors: dict[str, list[Array]] = {}

    def add(
        self,
        formula: Formula,
        columns: list[Array],
        measured_us: Array,
        named: dict[str, Mask],
    ) -> None:
        """Fit without each split's points and keep the errors there."""
        for name, left_out in named.items():
            found = errors(formula, columns, measured_us, left_out)
            self._errors.setdefault(name, []).append(found)

    def note(self, name: str, relative_errors: Array) -> None:
        """Keep errors found otherwise."""
        self._errors.setdefault(name, []).append(relative_errors)

    def summary(self) -> dict[str, list[float]]:
        """Return ``{split: [median, p90]}``."""
        return {name: summary(np.concatenate(parts)) for name, parts in self._errors.items()}
