"""Times of every spelling, exactly."""

import numpy as np
import pyarrow as pa
import pytest

from simkv.workload.readers.clock import UNKNOWN_NS, instants, nanoseconds, offsets, seconds

# 2024-05-12 00:00:00 UTC.
MAY_12_NS = 1_715_472_000 * 10**9


@pytest.mark.parametrize(
    ("cell", "after_ns"),
    [
        ("2024-05-12 00:00:00.6805901", 680_590_100),
        ("2024-05-12 00:00:00.009930+00:00", 9_930_000),
        ("2024-05-12 00:00:00+00:00", 0),
        ("2024-05-12T00:00:00.269Z", 269_000_000),
        ("2024-05-12T02:00:00+0200", 0),
        ("2024-05-11 19:30:00-04:30", 0),
        ("2024-05-12 00:00:00.123456789", 123_456_789),
        ("2024-05-12 00:00", 0),
    ],
)
def test_date_times(cell, after_ns):
    assert instants(pa.array([cell])).tolist() == [MAY_12_NS + after_ns]


def test_one_column_may_mix_fractions_zones_and_gaps():
    cells = pa.array(["2024-05-12 00:00:00+00:00", "", "2024-05-12 00:00:00.5"])
    assert instants(cells).tolist() == [MAY_12_NS, UNKNOWN_NS, MAY_12_NS + 500_000_000]


def test_decimal_seconds_are_exact_where_floats_are_not():
    cells = pa.array(["1760587752.017385001", "-0.5", "", "3e-9"])
    expected = [1_760_587_752_017_385_001, -500_000_000, UNKNOWN_NS, 3]
    assert offsets(cells).tolist() == expected


def test_float_noise_is_rounded_to_nanoseconds():
    assert offsets(pa.array(["5.8926549999999995"])).tolist() == [5_892_655_000]


@pytest.mark.parametrize("cell", ["noon", "99999999999999999999", "nan"])
def test_what_is_no_time_is_refused(cell):
    with pytest.raises(pa.ArrowInvalid):
        offsets(pa.array([cell]))


@pytest.mark.parametrize(
    ("value", "unit_ns", "expected"),
    [
        ("9007199254740993", 1, 9_007_199_254_740_993),
        (9_007_199_254_740_995, 1, 9_007_199_254_740_995),
        (1_760_587_752_017_385, 1000, 1_760_587_752_017_385_000),
        (1760587752.017385, 10**9, 1_760_587_752_017_385_000),
        ("0.5", 10**9, 500_000_000),
    ],
)
def test_numbers_of_a_unit(value, unit_ns, expected):
    assert nanoseconds(value, unit_ns=unit_ns) == expected


@pytest.mark.parametrize("value", [None, True, "soon", float("nan"), float("inf"), [1]])
def test_numbers_that_are_none(value):
    with pytest.raises(ValueError, match="no time"):
        nanoseconds(value, unit_ns=1)


@pytest.mark.parametrize("value", [10**30, 1e300, "9" * 30, -(2**63)])
def test_times_beyond_64_bits_of_nanoseconds_are_none(value):
    with pytest.raises(ValueError, match="is no time"):
        nanoseconds(value, unit_ns=1)


def test_clock_times_start_at_zero_and_offsets_stay():
    clock, notes = seconds([MAY_12_NS + 1, MAY_12_NS])
    assert clock.tolist() == [1e-9, 0.0]
    assert notes == ["times count from the first arrival"]
    offset, notes = seconds([5_000_000_000, UNKNOWN_NS])
    assert offset[0] == 5.0
    assert np.isnan(offset[1])
    assert notes == []


def test_offsets_below_zero_start_at_zero():
    assert seconds([-5, 5])[0].tolist() == [0.0, 1e-8]
