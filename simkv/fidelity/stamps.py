"""The cost model against single steps of a measured run, where its time stamps give them away.

A stamp (a first or a last token) is the end of a step. Between two stamps with nobody admitted
there are steps of decodes alone. A request that is admitted alone has its first token after one
more step of decodes, planned before it came (asynchronous scheduling), and the step with its
prompt. Contexts follow from each request's share of its tokens at that moment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from simkv.cost.model import CostModel
from simkv.sched.work import StepWork


@dataclass(frozen=True, slots=True)
class Kind:
    """Steps with one prompt: how many tokens it computes, and how many it found cached."""

    fewest_new: int
    most_new: int
    fewest_hit: int = 0
    price_hits: bool = True


DECODES = "decodes alone"
KINDS = {
    "a prompt of up to 512 tokens, and decodes": Kind(2, 512),
    "a prompt of 513 to 1,024 tokens, and decodes": Kind(513, 1024),
    "a prompt of 1,025 to 1,920 tokens, and decodes": Kind(1025, 1920),
    "a prompt with 256 tokens or more in the cache": Kind(1, 1920, 256),
    "the same, priced as if nothing were cached": Kind(1, 1920, 256, price_hits=False),
}

# More steps between two stamps than this cannot be told from one more or less.
_MOST_STEPS = 20

_FEWEST = 10

# Stamps of one step differ by less.
_SAME_S = 1e-4


def step_errors(cost: CostModel, requests: pd.DataFrame, hit_tokens: np.ndarray) -> pd.DataFrame:
    """Return, for each kind of step, how many were found and the quartiles of the error in percent.

    Quartiles, since a request that was preempted leaves no stamp: where there are preemptions it
    counts as decoding although it waits (told too much), and a few stretches hold its recomputation
    too (told too little). Kinds of fewer than 10 steps are left out.
    """
    steps = {DECODES: list(_decodes(cost, requests))}
    for name, kind in KINDS.items():
        steps[name] = list(_prompts(cost, requests, hit_tokens, kind))
    rows = {}
    for name, found in steps.items():
        if len(found) >= _FEWEST:
            errors = 100.0 * (np.array([told / real for told, real in found]) - 1.0)
            rows[name] = [len(found), *np.quantile(errors, [0.25, 0.5, 0.75])]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["found", "q25", "q50", "q75"])


def _work(requests: pd.DataFrame, at_s: float, prompts: list[tuple[int, int]]) -> StepWork:
    """Return a step of everybody who is decoding, with chunks of prompts."""
    live = requests[(requests.first_token_s <= at_s) & (requests.last_token_s > at_s + _SAME_S)]
    share = (at_s - live.first_token_s) / (live.last_token_s - live.first_token_s)
    context = np.ceil(live.input_tokens + share * (live.output_tokens - 1)).astype(int)
    return StepWork(
        prompts,
        len(live),
        int(context.sum()),
        int(context.max()) if len(live) else 0,
        len(live) + len(prompts),
    )


def _decodes(cost: CostModel, requests: pd.DataFrame) -> Iterator[tuple[float, float]]:
    """Yield predicted and measured seconds of a step between stamps with no admission."""
    stamps = np.unique(requests[["first_token_s", "last_token_s"]].to_numpy())
    for start_s, end_s in zip(stamps[:-1].tolist(), stamps[1:].tolist(), strict=True):
        if _outstanding(requests, start_s, end_s):
            continue
        work = _work(requests, 0.5 * (start_s + end_s), [])
        if not work.num_decodes:
            continue
        told_s = cost.step_time_s(work)
        steps = round((end_s - start_s) / told_s)
        if 1 < steps <= _MOST_STEPS:
            yield told_s, (end_s - start_s) / steps


def _prompts(
    cost: CostModel, requests: pd.DataFrame, hit_tokens: np.ndarray, kind: Kind
) -> Iterator[tuple[float, float]]:
    """Yield predicted and measured seconds of steps with one whole prompt and decodes."""
    stamps = np.sort(requests[["first_token_s", "last_token_s"]].to_numpy().ravel())
    columns = (requests[name].tolist() for name in ("scheduled_s", "first_token_s", "input_tokens"))
    for start_s, end_s, prompt, hit in zip(*columns, hit_tokens.tolist(), strict=True):
        between = np.searchsorted(stamps, end_s - _SAME_S) - np.searchsorted(
            stamps, start_s + _SAME_S
        )
        alone = _outstanding(requests, start_s, end_s) == 1
        fits = kind.fewest_new <= prompt - hit <= kind.most_new and hit >= kind.fewest_hit
        if not fits or between or not alone:
            continue
        before = _work(requests, start_s, [])
        if before.num_decodes:
            cached = hit if kind.price_hits else 0
            with_prompt = _work(requests, start_s, [(prompt - cached, cached)])
            yield cost.step_time_s(with_prompt), end_s - start_s - cost.step_time_s(before)


def _outstanding(requests: pd.DataFrame, start_s: float, end_s: float) -> int:
    """Return how many were admitted before the end and had no token at the start."""
    admitted = requests.scheduled_s < end_s - _SAME_S
    return int((admitted & (requests.first_token_s > start_s + _SAME_S)).sum())
