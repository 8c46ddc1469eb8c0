"""The formulas of the four kinds of kernel, with where their coefficients may lie."""

import numpy as np
from numpy.typing import NDArray

from simkv.cost.geometry import BYTES_PER_ELEMENT, Dtype
from simkv.cost.physics import (
    Coefficients,
    decode_us,
    gemm_us,
    mixed_ragged_ratio,
    mixed_us,
    prefill_us,
)
from simkv.fit.formula import Formula, Range

Array = NDArray[np.float64]

# Below 1 the p-norm is none; above 6 it is a maximum, and larger powers overflow.
_POWER = Range(start=2.0, low=1.0, high=6.0)
_START_US = Range(start=10.0, low=1.0, high=60.0)


def kv_bytes(shape: tuple[int, ...], dtype: Dtype = "bf16") -> float:
    """Return the bytes of K and V of one token in one layer, for (heads, KV heads, dim)."""
    _, kv_heads, head_dim = shape
    return 2.0 * kv_heads * head_dim * BYTES_PER_ELEMENT[dtype]


def flop_per_pair(shape: tuple[int, ...]) -> float:
    """Return the FLOPs of a query token against a key, all heads."""
    heads, _, head_dim = shape
    return 4.0 * heads * head_dim


def decode(shape: tuple[int, ...], dtype: Dtype, read_bytes_per_s: float) -> Formula:
    """Return the formula of decode attention over (batch, context)."""
    size, peak = kv_bytes(shape, dtype), read_bytes_per_s / 1e9

    def times(c: Coefficients, batch: Array, context: Array) -> Array:
        return decode_us(c, batch, context, kv_bytes=size)

    return Formula(
        times_us=times,
        ranges={
            "t0_us": _START_US,
            "read_gb_per_s": Range(start=0.8 * peak, low=0.1 * peak, high=3.0 * peak),
            "chain_us": Range(start=0.5, low=1e-4, high=50.0),
            "chain_power": Range(start=0.4, low=0.05, high=1.2),
            "sequence_us": Range(start=0.1, low=1e-4, high=10.0),
            "p": _POWER,
        },
    )


def _prefill_ranges(flop_per_s: float) -> dict[str, Range]:
    peak = flop_per_s / 1e12
    return {
        "t0_us": _START_US,
        "tflop_per_s": Range(start=0.6 * peak, low=0.02 * peak, high=1.2 * peak),
        "token_us": Range(start=0.01, low=1e-6, high=1.0),
        "row_us": Range(start=0.01, low=1e-6, high=1.0),
        "p": _POWER,
    }


def prefill(shape: tuple[int, ...], flop_per_s: float) -> Formula:
    """Return the formula of prefill attention over (batch, new tokens), nothing cached."""
    pair = flop_per_pair(shape)

    def times(c: Coefficients, batch: Array, new: Array) -> Array:
        return prefill_us(c, batch, new, np.zeros_like(new), flop_per_pair=pair)

    return Formula(times_us=times, ranges=_prefill_ranges(flop_per_s))


def prefill_cached(shape: tuple[int, ...], flop_per_s: float) -> Formula:
    """Return the formula of prefill attention of one chunk over (new tokens, cached tokens)."""
    pair = flop_per_pair(shape)

    def times(c: Coefficients, new: Array, cached: Array) -> Array:
        return prefill_us(c, np.ones_like(new), new, cached, flop_per_pair=pair)

    return Formula(times_us=times, ranges=_prefill_ranges(flop_per_s))


def mixed() -> Formula:
    """Return the formula of one call over (new tokens, cached tokens, decodes, their context)."""
    return Formula(
        times_us=mixed_us,
        ranges={
            "t0_us": _START_US,
            "tile_us": Range(start=0.02, low=1e-6, high=10.0),
            "context_us": Range(start=0.01, low=1e-6, high=1.0),
            "row_us": Range(start=0.03, low=1e-6, high=1.0),
            "chain_us": Range(start=0.03, low=1e-6, high=1.0),
            "p": _POWER,
        },
    )


def mixed_ragged(coefficients: Coefficients) -> Formula:
    """Return the formula of the time with ragged decodes over that with equal ones.

    Over (new tokens, cached tokens, decodes, their mean context, the longest).
    """

    def ratio(c: Coefficients, *columns: Array) -> Array:
        return mixed_ragged_ratio({**coefficients, **c}, *columns)

    return Formula(times_us=ratio, ranges={"ragged_us": Range(start=0.03, low=1e-6, high=1.0)})


def gemm(dtype: Dtype, flop_per_s: float, read_bytes_per_s: float) -> Formula:
    """Return the formula of a matrix product over (m, n, k)."""
    peak, read = flop_per_s / 1e12, read_bytes_per_s / 1e9
    weight_bytes = float(BYTES_PER_ELEMENT[dtype])

    def times(c: Coefficients, m: Array, n: Array, k: Array) -> Array:
        return gemm_us(c, m, n, k, weight_bytes=weight_bytes)

    return Formula(
        times_us=times,
        ranges={
            "t0_us": Range(start=4.0, low=0.5, high=40.0),
            "tflop_per_s": Range(start=0.8 * peak, low=0.1 * peak, high=1.2 * peak),
            "read_gb_per_s": Range(start=0.8 * read, low=0.1 * read, high=2.0 * read),
            "p": Range(start=3.0, low=1.0, high=6.0),
        },
    )
