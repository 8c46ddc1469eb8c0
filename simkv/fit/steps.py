"""A linear step-time model fitted to the steps that an engine logged.

It says which terms there are, how they are weighted, and how well blocks of steps are predicted
that were left out. Reading logs is not its matter, nor is simulating with the result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from simkv.cost.choice import Linear

Array = NDArray[np.float64]

SIX_TERMS = (
    "base_s",
    "prefill_token_s",
    "pair_s",
    "prefill_s",
    "decode_s",
    "context_token_s",
)
"""A constant, prompt tokens, query-key pairs, prefills, decodes, tokens attended to."""

SEVEN_TERMS = (*SIX_TERMS, "mixed_s")
"""The same and a constant for steps that have both prefills and decodes."""

# Weights settle in a few rounds; coefficients have the digits of shipped profiles.
_ROUNDS = 20
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of a log, one array a column, each ``[num_steps] float64``.

    Parameters
    ----------
    step_s
        Measured time.
    prefill_tokens, pairs, prefills
        Tokens of prefilling entries, their query tokens times keys, and how many entries.
    decodes, context_tokens
        Decoding entries, and tokens that all entries attend to, their own included.
    """

    step_s: Array
    prefill_tokens: Array
    pairs: Array
    prefills: Array
    decodes: Array
    context_tokens: Array

    def part(self, kept: NDArray[np.bool_]) -> "Steps":
        """Return some of the steps."""
        return Steps(**{name: getattr(self, name)[kept] for name in Steps.__slots__})

    def columns(self, terms: Sequence[str]) -> Array:
        """Return what each term counts, ``[num_steps, num_terms] float64``."""
        counts = {
            "base_s": np.ones(len(self.step_s)),
            "prefill_token_s": self.prefill_tokens,
            "pair_s": self.pairs,
            "prefill_s": self.prefills,
            "decode_s": self.decodes,
            "context_token_s": self.context_tokens,
            "mixed_s": ((self.prefills > 0) & (self.decodes > 0)).astype(np.float64),
        }
        return np.column_stack([counts[term] for term in terms])

    def predict(self, cost: Linear) -> Array:
        """Return the time of every step by a model."""
        coefficients = [getattr(cost, term) for term in SEVEN_TERMS]
        return np.asarray(self.columns(SEVEN_TERMS) @ coefficients)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a model is fitted.

    Parameters
    ----------
    terms
        Fields of :class:`~simkv.cost.choice.Linear`; the others stay zero.
    weight_by_measured
        Divide squared misses by the measured time instead of the predicted one. It pulls the fit
        down: of two equal steps the one that happened to be short counts more.
    """

    terms: tuple[str, ...]
    weight_by_measured: bool = False


def fit(recipe: Recipe, *logs: Steps) -> Linear:
    """Return the model with the least squared misses relative to the time, no term negative."""
    columns = np.concatenate([log.columns(recipe.terms) for log in logs])
    measured = np.concatenate([log.step_s for log in logs])
    expected = measured
    for _ in range(1 if recipe.weight_by_measured else _ROUNDS):
        weight = 1.0 / np.sqrt(expected)
        found, _ = nnls(columns * weight[:, None], measured * weight)
        expected = np.maximum(columns @ found, measured.min())
    values: dict[str, Any] = {
        term: float(f"{value:.{_DIGITS}g}")
        for term, value in zip(recipe.terms, found.tolist(), strict=True)
    }
    return Linear(**values)


def left_out(recipe: Recipe, log: Steps, *others: Steps, num_blocks: int) -> Array:
    """Return the time of every step of a log, each predicted by a fit that has not seen its block.

    Blocks are consecutive, so that a slow minute is left out whole; ``others`` are always seen.
    """
    block = np.arange(len(log.step_s)) * num_blocks // len(log.step_s)
    predicted = np.empty(len(log.step_s))
    for number in range(num_blocks):
        out = block == number
        predicted[out] = log.part(out).predict(fit(recipe, log.part(~out), *others))
    return predicted
