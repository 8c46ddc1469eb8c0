"""Interpolation of residuals, and lookups by exact arithmetic."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost.octaves import bilinear, octaves
from simkv.cost.physics import pnorm
from simkv.cost.surface import Surface, from_points


def test_factor_hits_every_measured_point_and_runs_straight_in_the_logarithm() -> None:
    surface = Surface((np.array([1.0, 4.0]), np.array([0.0, 8.0, 16.0])),
                      np.array([[0.0, 0.1, 0.2], [0.4, 0.5, 0.6]]))  # fmt: skip
    assert surface.factor(np.array([4.0]), np.array([8.0]))[0] == pytest.approx(np.exp(0.5))
    # Half way from 1 to 4 on a logarithmic axis is 2; zero sits an octave below 8.
    assert surface.factor(np.array([2.0]), np.array([0.0]))[0] == pytest.approx(np.exp(0.2))
    assert surface.factor(np.array([1.0]), np.array([4.0]))[0] == pytest.approx(1.0)


def test_factor_is_that_of_the_nearest_point_outside_and_in_holes() -> None:
    surface = Surface((np.array([1.0, 2.0]), np.array([1.0, 2.0, 4.0])),
                      np.array([[0.1, 0.2, 0.3], [0.4, 0.5, np.nan]]))  # fmt: skip
    assert surface.factor(np.array([9.0]), np.array([99.0]))[0] == pytest.approx(np.exp(0.5))
    assert surface.measured_up_to().tolist() == [4.0, 2.0]


def test_points_that_coincide_are_averaged_and_survive_a_file() -> None:
    surface = from_points([np.array([1.0, 1.0, 2.0])], np.array([0.1, 0.3, -0.0514]))
    again = Surface.from_json(**surface.to_json())  # type: ignore[arg-type]
    assert again.residual.tolist() == pytest.approx([0.2, -0.051])


def test_pnorm_runs_from_sum_to_maximum() -> None:
    a, b = np.array([3.0]), np.array([4.0])
    assert pnorm(1.0, a, b)[0] == pytest.approx(7)
    assert pnorm(2.0, a, b)[0] == pytest.approx(5)
    assert pnorm(100.0, a, b)[0] == pytest.approx(4, rel=0.01)


@given(st.floats(1, 5e5), st.sampled_from([1, 2, 8]))
def test_located_pieces_hold_their_value(x: float, steps: int) -> None:
    axis = octaves(1, 1e6, steps)
    piece, share = axis.locate(x)
    low, high = axis.knots[piece], axis.knots[piece + 1]
    assert low <= x < high
    assert low + share * (high - low) == pytest.approx(x, rel=1e-12)
    # The same arithmetic over arrays gives the same bits.
    mantissa, exponent = np.frexp(np.array([x]))
    at = (exponent - axis.first_exponent) * axis.steps + (mantissa + mantissa - 1.0) * axis.steps
    assert np.trunc(at).tolist() == [piece]
    assert (at - np.trunc(at)).tolist() == [share]


def test_the_last_slope_goes_on() -> None:
    axis = octaves(16, 30, 4)
    assert list(axis.knots) == [16, 20, 24, 28, 32]
    piece, share = axis.locate(40.0)
    assert (piece, share) == (3, 3.0)
    assert list(octaves(1, 1, 1).knots) == [1, 2]


def test_bilinear_by_hand() -> None:
    plane = [[1.0, 2.0], [3.0, 8.0]]
    assert bilinear(plane, 0, 0.5, 0, 0.5) == 3.5
