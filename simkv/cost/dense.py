"""Everything of a step but attention: matrix products, what lies between them, LM head, links.

Each function gives microseconds for whole arrays of token counts, summed over all layers.
"""

import numpy as np
from numpy.typing import NDArray

from simkv.cost.geometry import BYTES_PER_ELEMENT, Dtype, Matrix, Model
from simkv.cost.physics import gemm_us, pnorm
from simkv.cost.profile import Curve, Fit, Profile
from simkv.errors import ProfileError

Array = NDArray[np.float64]

_WIDE_BYTES = 2.0  # hidden states, embeddings and the LM head stay in 16 bits

# Two norms, a rotation and an activation, each a kernel of its own.
_POINTWISE_KERNELS = 4

# Sampling reads and writes a row of logits as 16-bit, then 32-bit numbers: copy, scale, softmax
# and draw.
_SAMPLER_BYTES_PER_LOGIT = 2.0 + 4.0 * 4.0
_SAMPLER_KERNELS = 10


def layers_us(
    profile: Profile, model: Model, tokens: Array, *, tensor_parallel: int, dtype: Dtype
) -> Array:
    """Return the time of all layers without attention, for steps of so many tokens each."""
    if profile.layer_us:
        layer = sum_of_curves(profile.layer_us, tokens)
        return model.num_layers * layer + sum_of_curves(profile.once_us, tokens)
    fit = _gemm(profile, dtype)
    attention = sum(
        (_product_us(fit, matrix, tokens, dtype)
         for matrix in model.attention_matrices(tensor_parallel)),
        np.zeros(len(tokens)),
    )  # fmt: skip
    dense_layers = model.num_layers - model.num_expert_layers
    mlp = np.zeros(len(tokens))
    if dense_layers:
        for matrix in model.mlp_matrices(model.intermediate, tensor_parallel):
            mlp = mlp + _product_us(fit, matrix, tokens, dtype)
    total = model.num_layers * attention + dense_layers * mlp
    if model.experts is not None:
        experts = _experts_us(fit, model, tokens, tensor_parallel=tensor_parallel, dtype=dtype)
        total = total + model.num_expert_layers * experts
    total = total + model.num_layers * _pointwise_us(profile, model, tokens, tensor_parallel)
    if tensor_parallel > 1:
        size = tokens * model.hidden * _WIDE_BYTES
        total = total + 2 * model.num_layers * _all_reduce_us(profile, size, tensor_parallel)
    return total


def head_us(profile: Profile, model: Model, rows: Array, *, tensor_parallel: int) -> Array:
    """Return the time of the LM head and sampling, for steps that sample so many rows each."""
    if profile.sampled_us:
        return sum_of_curves(profile.sampled_us, rows)
    matrix = Matrix(name="lm_head", n=model.vocab // tensor_parallel, k=model.hidden)
    product = _product_us(_gemm(profile, "bf16"), matrix, rows, "bf16")
    speed = profile.pointwise
    moved = rows * model.vocab * (_SAMPLER_BYTES_PER_LOGIT * 1e-3 / speed["read_gb_per_s"])
    return product + _SAMPLER_KERNELS * speed["kernel_us"] + moved


def sum_of_curves(curves: dict[str, Curve], x: Array) -> Array:
    """Return the sum of curves at each point: linear between samples, the last slope beyond."""
    total = np.zeros(len(x))
    for at, us in curves.values():
        knots, values = np.asarray(at, np.float64), np.asarray(us, np.float64)
        slope = max(0.0, (values[-1] - values[-2]) / (knots[-1] - knots[-2]))
        beyond = np.maximum(x - knots[-1], 0.0)
        total = total + np.interp(x, knots, values) + slope * beyond
    return total


def last_measured(curves: dict[str, Curve]) -> float:
    """Return the largest quantity at which every curve has a sample."""
    return min(at[-1] for at, _ in curves.values())


def gaps(profile: Profile, model: Model) -> list[str]:
    """Return in sentences what of the dense part was not measured."""
    if model.experts is None:
        return []
    return [
        "expert layers were not measured: their products are priced as one over all experts "
        "that a step's tokens reach, evenly"
    ]


def _gemm(profile: Profile, dtype: Dtype) -> Fit:
    if dtype not in profile.gemm:
        raise ProfileError(
            f"profile {profile.name} has no matrix products with weights in {dtype} (it has "
            f"{', '.join(profile.gemm)}); change model.weight_dtype or set cost.kind=roofline"
        )
    return profile.gemm[dtype]


def _product_us(fit: Fit, matrix: Matrix, tokens: Array, dtype: Dtype) -> Array:
    n, k = np.array([float(matrix.n)]), np.array([float(matrix.k)])
    size = float(BYTES_PER_ELEMENT[dtype])
    physics = gemm_us(fit.coefficients, tokens, n, k, weight_bytes=size)
    return physics * fit.surface.factor(tokens, n, k)


def _experts_us(
    fit: Fit, model: Model, tokens: Array, *, tensor_parallel: int, dtype: Dtype
) -> Array:
    """Return the two grouped products of a layer's experts: all FLOPs, the bytes of those hit."""
    mix = model.experts
    assert mix is not None
    c = fit.coefficients
    reached = mix.num_routed * (1.0 - (1.0 - mix.num_active / mix.num_routed) ** tokens)
    sent = mix.num_active + mix.num_shared
    total = np.zeros(len(tokens))
    for matrix in model.mlp_matrices(mix.intermediate, tensor_parallel):
        one = matrix.n * matrix.k
        flop = tokens * (sent * one * 2e-6 / c["tflop_per_s"])
        weights = (reached + mix.num_shared) * one * BYTES_PER_ELEMENT[dtype]
        moved = weights + tokens * (sent * (matrix.n + matrix.k) * _WIDE_BYTES)
        read = moved * (1e-3 / c["read_gb_per_s"])
        total = total + c["t0_us"] + pnorm(c["p"], flop, read)
    return total


def _pointwise_us(profile: Profile, model: Model, tokens: Array, tensor_parallel: int) -> Array:
    """Return norms, rotation and activation of a layer: a launch and the bytes moved, each."""
    heads, kv_heads = model.heads_per_rank(tensor_parallel)
    norms = 2 * 4 * model.hidden  # the hidden state and the residual, in and out
    rotation = 2 * (heads + kv_heads) * model.head_dim
    width = model.intermediate
    if model.experts is not None:
        width = (model.experts.num_active + model.experts.num_shared) * model.experts.intermediate
    activation = (3 if model.gated_mlp else 2) * width // tensor_parallel
    size = (norms + rotation + activation) * _WIDE_BYTES
    speed = profile.pointwise
    moved = tokens * (size * 1e-3 / speed["read_gb_per_s"])
    return _POINTWISE_KERNELS * speed["kernel_us"] + moved


def _all_reduce_us(profile: Profile, size_bytes: Array, ranks: int) -> Array:
    if ranks not in profile.all_reduce_us:
        known = ", ".join(str(n) for n in profile.all_reduce_us) or "one device only"
        raise ProfileError(
            f"profile {profile.name} has no all-reduce between {ranks} devices (it has {known}); "
            "change model.tensor_parallel or set cost.kind=roofline"
        )
    at, us = profile.all_reduce_us[ranks]
    knots, values = np.log(at), np.log(us)
    inside = np.exp(np.interp(np.log(size_bytes), knots, values))
    # Beyond the largest message it is bandwidth alone.
    return inside * np.maximum(size_bytes / at[-1], 1.0)
