"""Integrals over time of quantities that change in steps, and their course in bins."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MAX_BINS = 1024
_FIRST_BIN_S = 1 / 16


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
        self._open: tuple[float, Floats] | None = None
        self._total: Floats = np.zeros(num_values)
        self._edges: list[Floats] = [self._total]
        self._skipped: Floats = self._total

    def extend(self, times: Floats, values: Floats) -> None:
        """Note the values that hold from each of some moments on, up to the next.

        Parameters
        ----------
        times
            Ascending, not before the last that was noted, ``[rows]``.
        values
            ``[rows, num_values]``.
        """
        if self._open is None:
            self._open = (times[0], values[0])
        start_s, held = self._open
        times = np.concatenate(([start_s], times))
        areas = np.diff(times)[:, None] * np.vstack([held, values[:-1]])
        self._add(times, np.add.accumulate(np.vstack([self._total, areas])))
        self._open = (float(times[-1]), values[-1])

    def close(self, now_s: float) -> None:
        """End the last interval."""
        held = np.zeros(self._num_values) if self._open is None else self._open[1]
        self.extend(np.array([now_s]), held[None, :])

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

    def _add(self, times: Floats, integral: Floats) -> None:
        """Take in the integral ``[rows, num_values]`` at some moments that follow the last one."""
        self._add_edges(times, integral)
        if self.end_s <= self.from_s:
            self._skipped = _at(np.array([self.from_s]), times, integral)[0]
        self._total = integral[-1]
        self.end_s = float(times[-1])

    def _add_edges(self, times: Floats, integral: Floats) -> None:
        # Edges that a later doubling would drop are not looked up first: time may leap far ahead.
        while (_MAX_BINS + 1) * self.bin_s <= times[-1]:
            self._edges = self._edges[::2]
            self.bin_s *= 2
        last = int(times[-1] / self.bin_s)
        while (last + 1) * self.bin_s <= times[-1]:
            last += 1
        while last * self.bin_s > times[-1]:
            last -= 1
        moments = np.float64(self.bin_s) * np.arange(len(self._edges), last + 1)
        self._edges.extend(_at(moments, times, integral))


def _at(moments: Floats, times: Floats, integral: Floats) -> Floats:
    """Return the integral at some moments, none past the last of the times, ``[n, num_values]``."""
    row = np.clip(np.searchsorted(times, moments, side="right") - 1, 0, max(len(times) - 2, 0))
    after = np.minimum(row + 1, len(times) - 1)
    span_s = times[after] - times[row]
    passed_s = np.clip(moments - times[row], 0.0, span_s)
    share = (passed_s / np.where(span_s > 0, span_s, 1.0))[:, None]
    between = integral[row] + share * (integral[after] - integral[row])
    return np.where(share < 1, between, integral[after])
