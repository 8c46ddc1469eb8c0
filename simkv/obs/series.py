"""Integrals over time of quantities that change in steps, and their course in bins."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MAX_BINS = 1024
_FIRST_BIN_S = 1 / 16
_BUFFER_ROWS = 4096


class Series:
    """Quantities that keep their values from one moment to the next that is noted.

    Only the cumulative integral at the edges of equal bins is kept. When there are too many bins
    their width doubles: every other edge is dropped, nothing is lost.

    Parameters
    ----------
    num_values
        How many quantities are noted together.
    from_s
        Totals count from here on (the end of the warm-up).
    """

    def __init__(self, num_values: int, *, from_s: float = 0.0) -> None:
        self.bin_s = _FIRST_BIN_S
        self.from_s = from_s
        self.end_s = 0.0
        self._num_values = num_values
        self._rows: list[tuple[float, tuple[float, ...]]] = []
        self._total: Floats = np.zeros(num_values)
        self._edges: list[Floats] = [self._total]
        self._skipped: Floats = self._total

    def note(self, now_s: float, values: tuple[float, ...]) -> None:
        """Set the values that hold from now on."""
        self._rows.append((now_s, values))
        if len(self._rows) > _BUFFER_ROWS:
            self._flush()

    def close(self, now_s: float) -> None:
        """End the last interval."""
        last = self._rows[-1][1] if self._rows else (0.0,) * self._num_values
        self._rows.append((now_s, last))
        self._flush()

    def means(self) -> Floats:
        """Return the time-weighted means from the end of the warm-up on, ``[num_values]``."""
        span_s = self.end_s - self.from_s
        if span_s <= 0:
            return np.zeros(self._num_values)
        means: Floats = (self._total - self._skipped) / span_s
        return means

    def bins(self) -> tuple[Floats, Floats]:
        """Return the bins' edges ``[num_bins + 1]`` and means ``[num_bins, num_values]``."""
        edges = [index * self.bin_s for index in range(len(self._edges))]
        integrals = list(self._edges)
        if self.end_s > edges[-1]:
            edges.append(self.end_s)
            integrals.append(self._total)
        widths = np.diff(edges)[:, None]
        return np.array(edges), np.diff(np.array(integrals), axis=0) / widths

    def _flush(self) -> None:
        """Integrate the noted rows; the last one stays, its interval is open."""
        times = np.array([row[0] for row in self._rows])
        values = np.array([row[1] for row in self._rows], dtype=np.float64)
        areas = np.diff(times)[:, None] * values[:-1]
        integral = np.add.accumulate(np.vstack([self._total, areas]))
        self._add_edges(times, integral)
        if self.end_s <= self.from_s:
            self._skipped = _at(self.from_s, times, integral)
        self._total = integral[-1]
        self.end_s = float(times[-1])
        self._rows = self._rows[-1:]

    def _add_edges(self, times: Floats, integral: Floats) -> None:
        # Edges that a later doubling would drop are not looked up first: time may leap far ahead.
        while (_MAX_BINS + 1) * self.bin_s <= times[-1]:
            self._edges = self._edges[::2]
            self.bin_s *= 2
        while len(self._edges) * self.bin_s <= times[-1]:
            self._edges.append(_at(len(self._edges) * self.bin_s, times, integral))


def _at(moment: float, times: Floats, integral: Floats) -> Floats:
    """Return the integral at one moment, ``[num_values]``."""
    return np.array([np.interp(moment, times, column) for column in integral.T])
