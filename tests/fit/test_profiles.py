"""Fits against the published tables: errors on points left out, and reproducible files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simkv.cost.profile import Profile, find_profile, save
from simkv.fit import aiconfigurator, llmservingsim
from simkv.fit.formula import Formula, Range
from simkv.fit.heldout import every_other, splits

_MAKERS: dict[str, Callable[[Path], Profile]] = {
    "h200-vllm-0.24": lambda folder: aiconfigurator.make(aiconfigurator.H200, folder),
    "a100-vllm-0.14": lambda folder: aiconfigurator.make(aiconfigurator.A100, folder),
    "rtx4090-llmservingsim": lambda folder: llmservingsim.make(llmservingsim.RTX4090, folder),
    "rtxpro6000-llmservingsim": lambda folder: llmservingsim.make(llmservingsim.RTXPRO6000, folder),
}


@pytest.mark.parametrize("name", _MAKERS)
def test_a_re_run_gives_the_shipped_bytes(
    name: str, shared: Callable[..., Path], tmp_path: Path
) -> None:
    made = _MAKERS[name](shared("data", "kernels"))
    save(made, tmp_path / "made.json")
    save(find_profile(name), tmp_path / "shipped.json")
    assert (tmp_path / "made.json").read_bytes() == (tmp_path / "shipped.json").read_bytes()


# Median and 90th percentile of the relative error, each within what the split allows.
_BANDS = [
    ("h200-vllm-0.24", "decode bf16", "alternate batch", 0.035, 0.15),
    ("h200-vllm-0.24", "decode bf16", "alternate context", 0.025, 0.12),
    ("h200-vllm-0.24", "decode bf16", "extrapolation x4", 0.07, 0.18),
    ("h200-vllm-0.24", "prefill bf16", "alternate batch", 0.03, 0.12),
    ("h200-vllm-0.24", "prefill bf16", "extrapolation x4", 0.04, 0.12),
    ("h200-vllm-0.24", "gemm bf16", "alternate rows", 0.04, 0.14),
    ("h200-vllm-0.24", "gemm bf16", "extrapolation x4", 0.07, 0.16),
    ("a100-vllm-0.14", "decode bf16", "alternate batch", 0.04, 0.18),
    ("a100-vllm-0.14", "prefill bf16", "alternate batch", 0.025, 0.10),
    ("rtx4090-llmservingsim", "decode bf16", "alternate batch", 0.04, 0.18),
    ("rtx4090-llmservingsim", "mixed bf16", "alternate batch", 0.05, 0.30),
    ("rtxpro6000-llmservingsim", "mixed bf16", "points off the grid", 0.02, 0.10),
    ("rtx4090-llmservingsim", "ragged bf16", "with a prefill", 0.03, 0.20),
    ("rtxpro6000-llmservingsim", "ragged bf16", "with a prefill", 0.03, 0.15),
]


@pytest.mark.parametrize(("name", "kernel", "split", "median", "p90"), _BANDS)
def test_errors_on_points_left_out(
    name: str, kernel: str, split: str, median: float, p90: float
) -> None:
    found = find_profile(name).heldout[kernel][split]
    assert found[0] <= median
    assert found[1] <= p90


def test_every_other_value_is_left_out_whole() -> None:
    values = np.array([4.0, 1.0, 2.0, 2.0, 8.0])
    assert every_other(values).tolist() == [False, False, True, True, True]


def test_splits_are_by_value_and_by_reach() -> None:
    batch, context = np.array([1.0, 2.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0, 8.0])
    found = splits({"batch": batch, "context": context}, batch * context)
    assert found["alternate batch"].tolist() == [False, True, False, True]
    assert found["quarter of the grid"].tolist() == [False, True, True, True]
    assert found["extrapolation x4"].tolist() == [False, False, True, True]


def test_coefficients_of_a_known_formula_come_back() -> None:
    formula = Formula(
        times_us=lambda c, x: c["t0"] + c["slope"] * x,
        ranges={"t0": Range(start=1.0, low=0.1, high=100.0),
                "slope": Range(start=1.0, low=0.01, high=10.0)},
    )  # fmt: skip
    x = np.array([1.0, 2.0, 4.0, 64.0, 256.0])
    fit = formula.fit([x], 5.0 + 0.25 * x)
    assert fit.coefficients == pytest.approx({"t0": 5.0, "slope": 0.25}, rel=1e-4)
    assert formula.predict(fit, [x]) == pytest.approx(5.0 + 0.25 * x, rel=1e-4)
