"""Tables over knots in equal steps within each octave, looked up by exact arithmetic.

A quantity ``x = mantissa * 2^exponent`` lies at ``(exponent - first) * steps + (2 * mantissa - 1)
* steps``. Lookups use only the splitting of a float, products, sums and differences, all of which
IEEE 754 fixes to the last bit: the same lookups over arrays (``numpy.frexp``) give the same bits.
"""

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Plane = list[list[float]]


@dataclass(frozen=True, slots=True)
class Octaves:
    """Knots from a power of two up, ``steps`` to the octave.

    Parameters
    ----------
    first_exponent
        Exponent of the first knot, as ``math.frexp`` gives it.
    steps
        Pieces of an octave.
    knots
        Ascending; the slope of the last piece goes on beyond the last one.
    """

    first_exponent: int
    steps: int
    knots: tuple[float, ...]

    def locate(self, x: float) -> tuple[int, float]:
        """Return the piece that ``x`` lies in and how far along it; ``x`` from the first knot up.

        The share is above 1 beyond the last knot.
        """
        mantissa, exponent = frexp(x)
        at = (exponent - self.first_exponent) * self.steps + (
            mantissa + mantissa - 1.0
        ) * self.steps
        piece = int(at)
        last = len(self.knots) - 2
        if piece > last:
            low = self.knots[last]
            return last, (x - low) / (self.knots[last + 1] - low)
        return piece, at - piece

    def locate_all(self, x: Array) -> tuple[NDArray[np.intp], Array]:
        """Return what ``locate`` returns for each of ``x``, ``[n]`` pieces and ``[n]`` shares."""
        mantissa, exponent = np.frexp(x)
        at = (exponent - self.first_exponent) * self.steps + (
            mantissa + mantissa - 1.0
        ) * self.steps
        piece = at.astype(np.intp)
        last = len(self.knots) - 2
        low = self.knots[last]
        beyond = piece > last
        share = np.where(beyond, (x - low) / (self.knots[last + 1] - low), at - piece)
        return np.minimum(piece, last), share

    def array(self) -> Array:
        """Return the knots, ``[num_knots] float64``."""
        return np.asarray(self.knots, np.float64)


def octaves(first: int, last: float, steps: int) -> Octaves:
    """Return knots from ``first``, a power of two, to the first one at or beyond ``last``."""
    knots = [float(first)]
    octave, step = float(first), 0
    while knots[-1] < last or len(knots) < 2:
        step += 1
        if step == steps:
            octave, step = 2.0 * octave, 0
        knots.append(octave + octave * step / steps)
    return Octaves(int(first).bit_length(), steps, tuple(knots))


def bilinear(plane: Plane, i: int, x: float, j: int, y: float) -> float:
    """Return the value in piece ``(i, j)`` of a table, ``x`` and ``y`` of the way along."""
    near, far = plane[i], plane[i + 1]
    low = near[j]
    low += y * (near[j + 1] - low)
    high = far[j]
    high += y * (far[j + 1] - high)
    return low + x * (high - low)
