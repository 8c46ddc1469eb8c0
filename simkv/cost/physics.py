"""The formulas that measured kernel times are fitted with, over arrays.

Each is a fixed start-up time plus the p-norm of what can bound the kernel: with p = 1 the terms
add up, with a large p the longest counts alone. Outside the measured range they stay monotone,
which a table or a forest does not. Times are in microseconds, as in the published tables.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Coefficients = Mapping[str, float]

_MICRO_PER_TERA = 1e-6  # x / 1e12 per second, in microseconds
_MICRO_PER_GIGA = 1e-3


def pnorm(power: float, *terms: Array) -> Array:
    """Return ``(a^p + b^p + ..)^(1/p)``, scaled by the largest term so that nothing overflows."""
    top = np.maximum(np.maximum.reduce(np.broadcast_arrays(*terms)), 1e-12)
    total = np.zeros_like(top)
    for term in terms:
        total = total + (term / top) ** power
    return np.asarray(top * total ** (1.0 / power), dtype=np.float64)


def decode_us(c: Coefficients, batch: Array, context: Array, *, kv_bytes: float) -> Array:
    """Return the time of decode attention in one layer.

    Parameters
    ----------
    batch, context
        Sequences, and tokens that each attends to.
    kv_bytes
        Bytes of K and V that one token has in the layer.
    """
    read = batch * context * (kv_bytes * _MICRO_PER_GIGA / c["read_gb_per_s"])
    chain = c["chain_us"] * context ** c["chain_power"]
    return c["t0_us"] + pnorm(c["p"], read, chain, c["sequence_us"] * batch)


def prefill_us(
    c: Coefficients, batch: Array, new: Array, cached: Array, *, flop_per_pair: float
) -> Array:
    """Return the time of causal attention of ``batch`` chunks in one layer.

    Parameters
    ----------
    new, cached
        Tokens of each chunk, and tokens before them that are in the cache.
    flop_per_pair
        FLOPs of one query token against one key, all heads: ``4 x heads x head_dim``.
    """
    pairs = batch * new * (cached + 0.5 * (new + 1.0))
    work = pairs * (flop_per_pair * _MICRO_PER_TERA / c["tflop_per_s"])
    row = c["row_us"] * (cached + new)
    return c["t0_us"] + pnorm(c["p"], work, c["token_us"] * batch * new, row)


def gemm_us(c: Coefficients, m: Array, n: Array, k: Array, *, weight_bytes: float) -> Array:
    """Return the time of ``[m, k] @ [k, n]`` with weights of ``weight_bytes`` an element.

    Activations in and out are 16 bits wide.
    """
    flop = m * n * k * (2.0 * _MICRO_PER_TERA / c["tflop_per_s"])
    moved = n * k * weight_bytes + 2.0 * (m * k + m * n)
    return c["t0_us"] + pnorm(c["p"], flop, moved * (_MICRO_PER_GIGA / c["read_gb_per_s"]))


def mixed_us(c: Coefficients, new: Array, cached: Array, batch: Array, context: Array) -> Array:
    """Return the time of one kernel call over a chunk and a batch of decodes, in one layer.

    The work of all processors (rows, and tiles of 128 query rows against the keys) against the
    longest chain of one sequence: inside such a call decodes are not split over processors.
    """
    work = _mixed_work_us(c, new, cached, batch, context)
    return c["t0_us"] + pnorm(c["p"], work, c["chain_us"] * np.maximum(cached + new, context))


def mixed_ragged_ratio(
    c: Coefficients, new: Array, cached: Array, batch: Array, context: Array, longest: Array
) -> Array:
    """Return what such a call takes over one whose decodes all have the mean context.

    The longest sequence is one chain of work that starts late in the call: it adds what it is
    longer than the mean.

    Parameters
    ----------
    context, longest
        Mean and largest context of the decodes.
    """
    work = _mixed_work_us(c, new, cached, batch, context)
    chain = c["ragged_us"]
    uneven = work + chain * np.maximum(cached + new, longest)
    return np.asarray(uneven / (work + chain * np.maximum(cached + new, context)))


def _mixed_work_us(
    c: Coefficients, new: Array, cached: Array, batch: Array, context: Array
) -> Array:
    return np.asarray(
        c["tile_us"] * np.ceil(new / 128.0) * (cached + 0.5 * new)
        + c["context_us"] * batch * context
        + c["row_us"] * (new + batch)
    )
