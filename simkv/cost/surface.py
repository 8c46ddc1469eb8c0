"""A measured surface: residuals of a formula on a grid, interpolated between the grid's points.

``time = physics(x) * exp(interpolated log residual)``. Coordinates are logarithmic; outside the
grid, and where the grid has holes, the residual is that of the nearest measured point, so that
the formula carries on alone.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PERMILLE = 1000.0


@dataclass(frozen=True, slots=True)
class Surface:
    """Log residuals over a grid of up to four quantities.

    Parameters
    ----------
    axes
        The grid's values along each quantity, ascending; a first value of 0 is allowed.
    residual
        ``[len(axis) of each axis] float64``: log of measured over formula, NaN where nothing
        was measured.
    """

    axes: tuple[Array, ...]
    residual: Array

    def factor(self, *coordinates: Array) -> Array:
        """Return what the formula has to be multiplied with, at points given per quantity."""
        filled = _filled(self.residual)
        cells = [
            _cell(axis, np.asarray(x, np.float64))
            for axis, x in zip(self.axes, coordinates, strict=True)
        ]
        total = np.zeros(np.broadcast_shapes(*(low.shape for low, _, _ in cells)))
        for corner in product((0, 1), repeat=len(cells)):
            weight = np.ones_like(total)
            index = []
            for side, (low, high, share) in zip(corner, cells, strict=True):
                weight = weight * (share if side else 1.0 - share)
                index.append(high if side else low)
            total = total + weight * filled[tuple(np.broadcast_arrays(*index))]
        return np.exp(total)

    def measured_up_to(self) -> Array:
        """Return the last measured value along the last axis, ``[the other axes] float64``."""
        known = ~np.isnan(self.residual)
        last = known.shape[-1] - 1 - np.argmax(known[..., ::-1], axis=-1)
        return np.where(known.any(axis=-1), self.axes[-1][last], 0.0)

    def to_json(self) -> dict[str, list[list[int]] | list[int | None]]:
        """Return axes and residuals in thousandths, holes as null, in C order."""
        flat = [None if np.isnan(r) else round(float(r) * _PERMILLE) for r in self.residual.flat]
        return {
            "axes": [[int(v) for v in axis] for axis in self.axes],
            "residual_permille": flat,
        }

    @staticmethod
    def from_json(axes: list[list[int]], residual_permille: list[int | None]) -> "Surface":
        """Return the surface that :meth:`to_json` wrote."""
        shape = tuple(len(axis) for axis in axes)
        flat = [np.nan if r is None else r / _PERMILLE for r in residual_permille]
        return Surface(
            tuple(np.asarray(axis, np.float64) for axis in axes),
            np.asarray(flat, np.float64).reshape(shape),
        )


def from_points(columns: list[Array], log_residual: Array) -> Surface:
    """Return the surface through scattered grid points; points that coincide are averaged."""
    axes = tuple(np.unique(column) for column in columns)
    index = tuple(np.searchsorted(a, column) for a, column in zip(axes, columns, strict=True))
    total = np.zeros([len(axis) for axis in axes])
    count = np.zeros_like(total)
    np.add.at(total, index, log_residual)
    np.add.at(count, index, 1.0)
    with np.errstate(invalid="ignore"):
        return Surface(axes, np.where(count > 0, total / count, np.nan))


def _cell(axis: Array, x: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return lower and upper neighbour of each point on an axis and its share of the way."""
    positive = axis[axis > 0]
    # Zero has no logarithm: it sits one octave below the first positive value.
    floor = positive[0] / 2 if axis[0] == 0 else positive[0]
    knots = np.log2(np.maximum(axis, floor))
    at = np.clip(np.log2(np.maximum(x, floor)), knots[0], knots[-1])
    if len(axis) == 1:
        zero = np.zeros(x.shape, np.intp)
        return zero, zero, np.zeros(x.shape)
    low = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, len(axis) - 2)
    share = (at - knots[low]) / (knots[low + 1] - knots[low])
    return low, low + 1, share


def _filled(residual: Array) -> Array:
    """Return the residuals with every hole given the value of its nearest neighbour on an axis.

    The last axis first, then the others: tables end where memory did, so holes lie at the ends
    of the last axis.
    """
    filled = residual.copy()
    for axis in reversed(range(filled.ndim)):
        lines = np.moveaxis(filled, axis, -1)
        for index in np.ndindex(lines.shape[:-1]):
            line = lines[index]
            known = np.flatnonzero(~np.isnan(line))
            if 0 < len(known) < len(line):
                gap = np.abs(np.arange(len(line))[:, None] - known[None, :])
                line[:] = line[known[np.argmin(gap, axis=1)]]
    return filled
