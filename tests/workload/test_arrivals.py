import math

import numpy as np
import pytest
import scipy.stats

from simkv.errors import ConfigError
from simkv.rng import stream
from simkv.workload.arrivals import (
    Closed,
    Constant,
    Diurnal,
    Gamma,
    Mmpp,
    Poisson,
    Weibull,
    draw_arrivals,
    weibull_shape,
)
from simkv.workload.think import ConstantThink, ExponentialThink, LognormalThink

NUM = 100_000
OPEN = [
    Poisson(rate_per_s=3.0),
    Gamma(rate_per_s=3.0, cv=2.0),
    Weibull(rate_per_s=3.0, cv=1.6),
    Mmpp(rate_per_s=3.0, mean_on_s=20.0, mean_off_s=40.0, off_ratio=0.2),
    Constant(rate_per_s=3.0),
    Diurnal(rate_per_s=3.0, period_s=250.0),
]


def draw(process, num=NUM, end_s=None, seed=1):
    return draw_arrivals(process, stream(seed, "arrivals"), num=num, end_s=end_s)


@pytest.mark.parametrize(
    ("process", "law"),
    [
        (Poisson(rate_per_s=4.0), scipy.stats.expon(scale=1 / 4)),
        (Gamma(rate_per_s=4.0, cv=2.0), scipy.stats.gamma(0.25, scale=1.0)),
        (Gamma(rate_per_s=4.0, cv=0.5), scipy.stats.gamma(4, scale=1 / 16)),
        (Weibull(rate_per_s=4.0, shape=0.5), scipy.stats.weibull_min(0.5, scale=1 / 8)),
    ],
)
def test_gaps_follow_the_law_in_mean_cv_and_shape(process, law):
    gaps = np.diff(draw(process))
    cv = law.std() / law.mean()
    assert law.mean() == pytest.approx(1 / 4)
    assert gaps.mean() == pytest.approx(1 / 4, rel=4 * cv / math.sqrt(NUM))  # 4 standard errors
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)
    assert scipy.stats.kstest(gaps, law.cdf).pvalue > 0.01


@pytest.mark.parametrize("cv", [0.02, 0.5, 1.0, 2.5, 9.0, 90.0])
def test_the_weibull_shape_gives_back_its_cv(cv):
    shape = weibull_shape(cv)
    mean = math.gamma(1 + 1 / shape)
    assert math.gamma(1 + 2 / shape) / mean**2 - 1 == pytest.approx(cv**2, rel=1e-6)


def test_constant_arrivals_have_equal_gaps():
    assert draw(Constant(rate_per_s=4.0), num=3).tolist() == [0.25, 0.5, 0.75]


def test_mmpp_has_its_rate_and_its_dispersion():
    process = Mmpp(rate_per_s=5.0, mean_on_s=2.0, mean_off_s=6.0, off_ratio=0.25)
    times = draw(process, num=400_000)
    # Two-state MMPP: on 2/8 of the time at rate a, off at a/4; mean 5 gives a = 80/7.
    on, off, share, stay_s = 80 / 7, 20 / 7, 0.25, 1 / (1 / 2 + 1 / 6)
    dispersion = 1 + 2 * (on - off) ** 2 * share * (1 - share) * stay_s / 5
    error = 4 * math.sqrt(dispersion / len(times))
    assert len(times) / times[-1] == pytest.approx(5.0, rel=error)
    counts = np.bincount((times // 100).astype(int))[:-1]  # 100 s is long beside 2 and 6
    assert counts.var() / counts.mean() == pytest.approx(dispersion, rel=0.15)


def test_mmpp_starts_on_as_often_as_it_is_on():
    process = Mmpp(rate_per_s=50.0, mean_on_s=100.0, mean_off_s=300.0, off_ratio=0.0)
    early = [len(draw(process, end_s=0.1, seed=seed)) > 0 for seed in range(600)]
    # On with 1/4, and then silent for 0.1 s at 200/s with almost no chance.
    assert np.mean(early) == pytest.approx(0.25, abs=4 * math.sqrt(0.25 * 0.75 / 600))


def test_diurnal_rate_follows_its_cosine():
    process = Diurnal(rate_per_s=10.0, swing_ratio=0.8, period_s=100.0, peak_s=30.0)
    times = draw(process)
    num = len(times)
    assert num / times[-1] == pytest.approx(10.0, rel=4 / math.sqrt(num))
    quarter = ((times - 30.0 + 12.5) % 100.0) // 25  # centred on the peak, the fall, …
    counts = np.bincount(quarter.astype(int))
    swing = 0.8 * 2 / math.pi * math.sin(math.pi / 4) * 2 / 2  # mean of the cosine over a quarter
    expected = num / 4 * (1 + 2 * swing * np.array([1, 0, -1, 0]))
    assert np.abs(counts - expected).max() < 4 * math.sqrt(num / 4)


@pytest.mark.parametrize("process", OPEN, ids=lambda process: process.kind)
def test_times_ascend_and_end_in_time(process):
    times = draw(process, num=10**9, end_s=500.0)
    assert (np.diff(times) >= 0).all()
    assert times[0] > 0
    assert times[-1] <= 500.0
    assert len(times) == pytest.approx(1500, rel=0.25)
    assert np.array_equal(times, draw(process, num=10**9, end_s=500.0))
    assert len(draw(process, num=7)) == 7
    assert len(draw(process, num=7, end_s=500.0)) == 7


def test_a_poisson_count_has_its_mean_and_variance():
    counts = np.array(
        [
            len(draw(Poisson(rate_per_s=2.0), num=10**9, end_s=50.0, seed=seed))
            for seed in range(400)
        ]
    )
    assert counts.mean() == pytest.approx(100, abs=4 * 10 / math.sqrt(400))
    assert counts.var() == pytest.approx(100, rel=4 * math.sqrt(2 / 400))


@pytest.mark.parametrize(
    ("law", "mean_s"),
    [
        (ExponentialThink(mean_s=4.0), 4.0),
        (LognormalThink(median_s=4.0, sigma=0.5), 4.0 * math.exp(0.125)),
        (ConstantThink(think_s=4.0), 4.0),
    ],
)
def test_think_times_have_their_mean(law, mean_s):
    drawn = law.draw(stream(1, "think"), NUM)
    assert drawn.mean() == pytest.approx(mean_s, rel=4 / math.sqrt(NUM))


@pytest.mark.parametrize(
    ("kind", "given", "path"),
    [
        (Poisson, {"rate_per_s": 0.0}, "rate_per_s"),
        (Poisson, {"rate_per_s": math.inf}, "rate_per_s"),
        (Gamma, {"cv": -1.0}, "cv"),
        (Weibull, {"cv": 1000.0}, "cv"),
        (Weibull, {"shape": 0.01}, "shape"),
        (Mmpp, {"off_ratio": 1.5}, "off_ratio"),
        (Mmpp, {"mean_on_s": 0.0}, "mean_on_s"),
        (Mmpp, {"mean_on_s": 1e300}, "mean_on_s"),
        (Gamma, {"cv": 1e9}, "cv"),
        (Diurnal, {"swing_ratio": -0.1}, "swing_ratio"),
        (Diurnal, {"period_s": 0.0}, "period_s"),
        (Closed, {"num_clients": 0}, "num_clients"),
        (Closed, {"num_clients": 10**9}, "num_clients"),
        (Closed, {"ramp_s": -1.0}, "ramp_s"),
        (Closed, {"think": ExponentialThink(mean_s=-1.0)}, "think.mean_s"),
        (Closed, {"think": LognormalThink(median_s=0.0)}, "think.median_s"),
        (Closed, {"think": ConstantThink(think_s=-1.0)}, "think.think_s"),
    ],
)
def test_values_out_of_range_name_their_path(kind, given, path):
    with pytest.raises(ConfigError) as caught:
        kind(**given)
    assert caught.value.path == f"workload.arrivals.{path}"


@pytest.mark.parametrize("given", [{}, {"cv": 1.0, "shape": 1.0}])
def test_weibull_takes_exactly_one_of_cv_and_shape(given):
    with pytest.raises(ConfigError, match="exactly one"):
        Weibull(**given)
