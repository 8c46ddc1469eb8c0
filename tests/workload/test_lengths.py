import math

import numpy as np
import pytest
import scipy.stats

from simkv.errors import ConfigError
from simkv.rng import stream
from simkv.workload.lengths import Empirical, Fixed, Lognormal, Zipf, draw_index

NUM = 200_000


def draw(law, num=NUM):
    return law.draw(stream(2, "lengths"), num)


def test_lognormal_is_given_by_its_mean_or_its_median():
    by_mean = draw(Lognormal(mean_tokens=800.0, sigma=0.7))
    cv = math.sqrt(math.exp(0.7**2) - 1)
    assert by_mean.mean() == pytest.approx(800, rel=4 * cv / math.sqrt(NUM))
    assert np.log(by_mean).std() == pytest.approx(0.7, rel=4 / math.sqrt(2 * NUM))
    by_median = draw(Lognormal(median_tokens=800.0, sigma=0.7))
    assert np.median(by_median) == pytest.approx(800, rel=4 * 0.7 * 1.2533 / math.sqrt(NUM))


def test_lognormal_moves_what_is_outside_to_its_bounds():
    law = Lognormal(median_tokens=1000.0, sigma=1.0, min_tokens=200, max_tokens=3000)
    drawn = draw(law)
    normal = scipy.stats.norm
    low, high = math.log(0.2), math.log(3.0)
    inner = 1000 * math.exp(0.5) * (normal.cdf(high - 1) - normal.cdf(low - 1))
    mean = 200 * normal.cdf(low) + 3000 * normal.sf(high) + inner
    assert drawn.min() == 200
    assert drawn.max() == 3000
    assert drawn.mean() == pytest.approx(mean, abs=4 * drawn.std() / math.sqrt(NUM))
    at_top = normal.sf(high)
    assert (drawn == 3000).mean() == pytest.approx(at_top, abs=4 * math.sqrt(at_top / NUM))


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.5])
def test_zipf_lengths_fall_with_their_power(exponent):
    drawn = draw(Zipf(exponent=exponent, min_tokens=10, max_tokens=40))
    weight = np.arange(10.0, 41.0) ** -exponent
    counts = np.bincount(drawn, minlength=41)[10:]
    expected = NUM * weight / weight.sum()
    assert counts.sum() == NUM
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.01


def test_fixed_lengths_are_fixed():
    assert draw(Fixed(tokens=77), num=3).tolist() == [77, 77, 77]


def test_what_has_no_weight_is_never_drawn():
    drawn = draw_index(stream(1, "index"), np.array([0.0, 1.0, 0.0, 3.0, 0.0]), NUM)
    assert set(drawn.tolist()) == {1, 3}
    assert (drawn == 3).mean() == pytest.approx(0.75, abs=4 * math.sqrt(0.1875 / NUM))


@pytest.mark.parametrize(
    ("law", "path"),
    [
        (Fixed(tokens=0), "x.tokens"),
        (Lognormal(), "x"),
        (Lognormal(mean_tokens=1.0, median_tokens=1.0), "x"),
        (Lognormal(mean_tokens=-1.0), "x.mean_tokens"),
        (Lognormal(median_tokens=0.0), "x.median_tokens"),
        (Lognormal(mean_tokens=9.0, sigma=-1.0), "x.sigma"),
        (Lognormal(mean_tokens=9.0, min_tokens=0), "x.min_tokens"),
        (Lognormal(mean_tokens=9.0, min_tokens=9, max_tokens=8), "x.max_tokens"),
        (Zipf(exponent=-1.0), "x.exponent"),
        (Zipf(min_tokens=9, max_tokens=8), "x.max_tokens"),
        (Zipf(max_tokens=10**9), "x.max_tokens"),
        (Empirical(path=""), "x.path"),
    ],
)
def test_values_out_of_range_name_their_path(law, path):
    with pytest.raises(ConfigError) as caught:
        law.check("x")
    assert caught.value.path == path
