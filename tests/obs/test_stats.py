import numpy as np
import pytest
from scipy import stats as scipy_stats

from simkv.obs.stats import BOOTSTRAP_PAIRS, compare, estimate, method_note
from simkv.rng import stream


def test_interval_of_five_seeds_by_hand() -> None:
    # Mean 3, deviation sqrt(2.5), standard error sqrt(0.5); t at 0.975 with 4 degrees is 2.776445.
    found = estimate([1, 2, 3, 4, 5])
    assert found.mean == 3
    assert found.interval is not None
    assert found.interval.method == "t"
    assert found.interval.high - 3 == pytest.approx(2.776445 * 0.5**0.5, rel=1e-6)
    assert found.interval.low == pytest.approx(6 - found.interval.high)


def test_one_seed_has_no_interval_and_no_probability() -> None:
    assert estimate([2.0]).interval is None
    found = compare([2.0], [1.0])
    assert found.difference.mean == 1
    assert found.more_ratio is None
    assert "no interval" in method_note(1)


def test_comparison_is_that_of_the_paired_t_test() -> None:
    a = [10.1, 12.4, 9.7, 11.0, 10.6]
    b = [9.8, 12.1, 9.9, 10.2, 10.1]
    found = compare(a, b)
    outside = scipy_stats.ttest_rel(a, b)
    low, high = outside.confidence_interval(0.95)
    assert found.more_ratio == pytest.approx(1 - outside.pvalue / 2)
    assert found.difference.interval is not None
    assert found.difference.interval.low == pytest.approx(low)
    assert found.difference.interval.high == pytest.approx(high)


def test_pairing_removes_what_the_arms_share() -> None:
    draw = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    found = compare(draw + 1, draw)
    assert found.difference.interval is not None
    assert found.difference.interval.low == found.difference.interval.high == 1
    assert found.more_ratio == 1


@pytest.mark.parametrize(("shift", "ratio"), [(0.0, 0.5), (1.0, 1.0), (-1.0, 0.0)])
def test_equal_differences_need_no_division_by_zero(shift: float, ratio: float) -> None:
    assert compare([1 + shift, 2 + shift], [1, 2]).more_ratio == ratio
    many = np.arange(BOOTSTRAP_PAIRS, dtype=np.float64)
    assert compare(many + shift, many).more_ratio == ratio


def test_t_interval_holds_the_truth_as_often_as_it_says() -> None:
    normal = stream(1, "coverage").normal(size=(4_000, 5))
    hits = [found.holds(0) for row in normal if (found := estimate(row).interval) is not None]
    # Three standard errors of a share of 0.95 over 4,000 rows are 0.0103.
    assert np.mean(hits) == pytest.approx(0.95, abs=0.0104)


def test_probability_is_uniform_where_the_arms_are_equal() -> None:
    normal = stream(2, "null").normal(size=(4_000, 5))
    ratios = np.array([compare(row, np.zeros(5)).more_ratio for row in normal], dtype=np.float64)
    assert scipy_stats.kstest(ratios, "uniform").pvalue > 0.001


def test_bca_interval_is_that_of_scipy() -> None:
    sample = stream(3, "skewed").exponential(size=40)
    ours = estimate(sample).interval
    theirs = scipy_stats.bootstrap(
        (sample,), np.mean, method="BCa", n_resamples=50_000, rng=stream(4, "outside")
    ).confidence_interval
    assert ours is not None
    assert ours.method == "BCa"
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)


def test_bootstrap_probability_and_interval_agree_and_repeat() -> None:
    a = stream(5, "a").normal(1.0, 1.0, size=30)
    b = stream(5, "b").normal(0.0, 1.0, size=30)
    found = compare(a, b)
    assert found == compare(a, b)
    assert found.difference.interval is not None
    assert found.difference.interval.low > 0
    assert found.more_ratio is not None
    assert found.more_ratio > 0.975


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="paired"):
        compare([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="finite"):
        estimate([1.0, float("nan")])
    with pytest.raises(ValueError, match="at least one"):
        estimate([])
