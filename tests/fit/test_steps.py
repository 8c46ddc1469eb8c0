"""A step-time model from logged steps: known coefficients come back, noise does not pull them."""

import numpy as np
import pytest

from simkv.cost.choice import Linear
from simkv.cost.linear import LinearCost
from simkv.fit.steps import SEVEN_TERMS, SIX_TERMS, Recipe, Steps, fit, left_out
from simkv.rng import stream
from simkv.sched.work import StepWork

_TRUE = Linear(base_s=3e-3, prefill_token_s=7e-5, decode_s=1e-4, context_token_s=3e-7,
               prefill_s=2e-4, pair_s=5e-8, mixed_s=1.5e-3)  # fmt: skip


def _works(num_steps: int) -> list[StepWork]:
    draw = stream(1, "steps")
    works = []
    for _ in range(num_steps):
        chunks = [(int(draw.integers(1, 900)), 0) for _ in range(draw.integers(0, 3))]
        batch = int(draw.integers(0 if chunks else 1, 20))
        contexts = draw.integers(20, 2000, batch)
        most = int(contexts.max(initial=0))
        works.append(StepWork(chunks, batch, int(contexts.sum()), most, batch + len(chunks)))
    return works


def _log(works: list[StepWork], noise_ratio: float) -> Steps:
    cost, draw = LinearCost(_TRUE), stream(1, "noise")
    times = np.array([cost.step_time_s(work) for work in works])
    rows = [
        (sum(n for n, _ in w.prefills), sum(n * (c + 0.5 * (n + 1)) for n, c in w.prefills),
         len(w.prefills), w.num_decodes,
         w.decode_context_tokens + sum(n + c for n, c in w.prefills))
        for w in works
    ]  # fmt: skip
    columns = np.array(rows, dtype=np.float64).T
    return Steps(
        step_s=times * draw.lognormal(-0.5 * noise_ratio**2, noise_ratio, len(works)),
        prefill_tokens=columns[0],
        pairs=columns[1],
        prefills=columns[2],
        decodes=columns[3],
        context_tokens=columns[4],
    )


def test_the_cost_model_and_the_columns_count_alike() -> None:
    works = _works(300)
    log = _log(works, 0.0)
    assert log.predict(_TRUE) == pytest.approx(log.step_s, rel=1e-12)


def test_known_coefficients_come_back() -> None:
    found = fit(Recipe(terms=SEVEN_TERMS), _log(_works(300), 0.0))
    for term in SEVEN_TERMS:
        assert getattr(found, term) == pytest.approx(getattr(_TRUE, term), rel=2e-3)


def test_weights_by_the_measured_time_pull_a_noisy_fit_down() -> None:
    log = _log(_works(4000), 0.2)
    total = log.step_s.sum()
    fair = log.predict(fit(Recipe(terms=SEVEN_TERMS), log)).sum() / total
    pulled = log.predict(fit(Recipe(terms=SEVEN_TERMS, weight_by_measured=True), log)).sum() / total
    assert fair == pytest.approx(1.0, abs=0.005)
    # About the square of the relative noise.
    assert -0.06 < pulled - 1.0 < -0.02


def test_a_block_is_predicted_by_a_fit_that_has_not_seen_it() -> None:
    log = _log(_works(400), 0.0)
    spoilt = log.step_s.copy()
    spoilt[:100] *= 10.0
    steps = Steps(**{n: getattr(log, n) for n in Steps.__slots__} | {"step_s": spoilt})
    predicted = left_out(Recipe(terms=SEVEN_TERMS), steps, num_blocks=4)
    assert predicted[:100] == pytest.approx(log.step_s[:100], rel=0.02)


def test_terms_that_are_left_out_stay_zero() -> None:
    assert fit(Recipe(terms=SIX_TERMS), _log(_works(200), 0.0)).mixed_s == 0.0
