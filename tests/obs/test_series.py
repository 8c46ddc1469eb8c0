"""Time-weighted integrals against sums written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.obs.series import Series


def noted(rows, end_s, from_s=0.0, rows_at_once=1):
    series = Series(1, from_s=from_s)
    for first in range(0, len(rows), rows_at_once):
        some = np.array(rows[first : first + rows_at_once])
        series.extend(some[:, 0], some[:, 1:])
    series.close(end_s)
    return series


def integral(rows, lo, hi):
    """Sum of value times duration between two moments, interval by interval."""
    ends = [now_s for now_s, _ in rows[1:]] + [float("inf")]
    return sum(
        value * max(0.0, min(end, hi) - max(start, lo))
        for (start, value), end in zip(rows, ends, strict=True)
    )


steps = st.lists(st.tuples(st.floats(0, 50), st.integers(0, 100)), min_size=1, max_size=60)


@given(steps, st.floats(0, 20), st.integers(1, 50))
def test_means_and_bins_are_the_integrals(gaps, from_s, rows_at_once):
    times = np.cumsum([0.0, *(gap for gap, _ in gaps[1:])])
    rows = list(zip(times.tolist(), (value for _, value in gaps), strict=True))
    end_s = rows[-1][0] + 1.0
    series = noted(rows, end_s, from_s, rows_at_once)
    edges, means = series.bins()
    for lo, hi, mean in zip(edges[:-1], edges[1:], means[:, 0], strict=True):
        assert mean * (hi - lo) == pytest.approx(integral(rows, lo, hi), rel=1e-9, abs=1e-6)
    if end_s > from_s:
        expected = integral(rows, from_s, end_s) / (end_s - from_s)
        assert series.means()[0] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_bins_double_instead_of_growing_in_number():
    rows = [(float(second), second % 7) for second in range(5000)]
    series = noted(rows, 5000.0, rows_at_once=900)
    edges, means = series.bins()
    assert len(means) <= 1026
    assert edges[-1] == 5000
    assert (means[:, 0] * np.diff(edges)).sum() == pytest.approx(sum(s % 7 for s in range(5000)))


def test_a_leap_over_all_bins_costs_no_time():
    series = noted([(0.0, 3), (1e250, 5)], 2e250)
    edges, means = series.bins()
    assert len(means) <= 1026
    assert series.means()[0] == pytest.approx(4)
    assert (means[:, 0] * np.diff(edges)).sum() == pytest.approx(8e250)
