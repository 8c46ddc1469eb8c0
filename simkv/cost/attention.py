"""Attention times of one model on one rank, read from a profile.

Where the profile has no kernel of the model's head shape, the one with the nearest group size
stands in: a (sequence, KV head) pair is independent work in these kernels, so B sequences of H
heads take what ``B x H / H'`` sequences of H' heads take. On the shapes of the H200 table that
misses by 2.5 % in the median (90 % within 10 %) for a factor of 2, and 6 % (18 %) for 8.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simkv.cost.geometry import BYTES_PER_ELEMENT, Dtype, Model
from simkv.cost.physics import decode_us, mixed_us, pnorm, prefill_us
from simkv.cost.profile import Fit, Profile
from simkv.errors import ProfileError

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fitted kernel and how a model's work is expressed in its terms.

    ``heads_ratio`` is the model's heads over the kernel's, ``dim_ratio`` the same for the head
    dimension.
    """

    fit: Fit
    heads_ratio: float = 1.0
    dim_ratio: float = 1.0


class Attention:
    """Times of one layer's attention on one rank, over arrays, in microseconds.

    ``gaps`` says in sentences what of it was not measured.
    """

    def __init__(
        self, profile: Profile, model: Model, *, tensor_parallel: int, kv_dtype: Dtype
    ) -> None:
        heads, kv_heads = model.heads_per_rank(tensor_parallel)
        self.gaps: list[str] = []
        self._window = model.sliding_window_tokens
        self._latent = model.latent
        self._heads = heads
        self._kv_dtype: Dtype = kv_dtype
        shape = (heads, kv_heads, model.head_dim)
        self._decode = self._choose(_decodes(profile, kv_dtype), shape, "decode", by_query=False)
        # Multi-head latent attention expands K and V for a prefill: as many KV heads as heads.
        self._prefill = self._choose(profile.prefill, shape, "prefill", by_query=True)
        self._mixed = None if profile.mixed is None else Kernel(profile.mixed)
        if self._latent is not None:
            self.gaps.append(
                "multi-head latent attention is not in the profile: its time is its bytes and "
                f"FLOPs at the speed of the kernel for {_words(self._decode.fit.shape)}"
            )
        if self._window is not None:
            self.gaps.append(
                f"the sliding window of {self._window:,} tokens was not measured: attention is "
                "priced as over a context of that length"
            )

    @property
    def fused(self) -> bool:
        """Whether one call over prefills and decodes was measured."""
        return self._mixed is not None

    @property
    def launch_us(self) -> float:
        """Start-up time of a prefill call."""
        return self._prefill.fit.coefficients["t0_us"]

    def decode_us(self, batch: Array, context: Array) -> Array:
        """Return the time of a decode batch of equal contexts."""
        if self._window is not None:
            context = np.minimum(context, float(self._window))
        fit = self._decode.fit
        if self._latent is not None:
            return self._latent_decode_us(batch, context)
        size = 2.0 * fit.shape[1] * fit.shape[2] * BYTES_PER_ELEMENT[self._kv_dtype]
        b, c = batch * self._decode.heads_ratio, context * self._decode.dim_ratio
        return decode_us(fit.coefficients, b, c, kv_bytes=size) * fit.surface.factor(b, c)

    def prefill_us(self, chunks: Array, new: Array, cached: Array) -> Array:
        """Return the time of equal chunks in one call, each over its cached tokens."""
        if self._window is not None:
            # The rows of a chunk see the window and what of the chunk is before them.
            cached = np.minimum(cached, np.maximum(float(self._window) - 0.5 * new, 0.0))
        fit = self._prefill.fit
        pair = 4.0 * fit.shape[0] * fit.shape[2]
        k = chunks * self._prefill.heads_ratio * self._prefill.dim_ratio
        # A fused profile measured one chunk over cached tokens, the others several over none.
        known = fit.surface.factor(new, cached) if self.fused else fit.surface.factor(k, new)
        times = prefill_us(fit.coefficients, k, new, cached, flop_per_pair=pair) * known
        if self.fused:
            return times
        # One decode over the same context reads the same K and V and has less to compute.
        return np.maximum(times, self.decode_us(chunks, cached + new))

    def mixed_us(self, new: Array, cached: Array, batch: Array, context: Array) -> Array:
        """Return the time of one call over a chunk and a decode batch."""
        if self._mixed is None:
            raise ProfileError("this profile has no call over prefills and decodes together")
        fit = self._mixed.fit
        factor = fit.surface.factor(new, cached, batch, context)
        return mixed_us(fit.coefficients, new, cached, batch, context) * factor

    def decode_context_limits(self, max_batch: int) -> list[float]:
        """Return, for each batch from 0 to ``max_batch``, the longest measured context."""
        surface, ratio = self._decode.fit.surface, self._decode.heads_ratio
        reach = surface.measured_up_to() / self._decode.dim_ratio
        limits = [math.inf]
        for batch in range(1, max_batch + 1):
            row = int(np.searchsorted(surface.axes[0], batch * ratio))
            limits.append(float(reach[row]) if row < len(reach) else 0.0)
        return limits

    def prefill_limits(self) -> tuple[float, float]:
        """Return the longest measured chunk and the most tokens cached before one."""
        axes = self._prefill.fit.surface.axes
        if self.fused:
            return float(axes[0][-1]), float(axes[1][-1])
        return float(axes[1][-1]), 0.0

    def _latent_decode_us(self, batch: Array, context: Array) -> Array:
        """Absorbed form: every head reads one latent of a token, so it is read once."""
        assert self._latent is not None
        rank, rope = self._latent.kv_rank, self._latent.rope_dim
        c, p = self._decode.fit.coefficients, self._prefill.fit.coefficients
        pairs = batch * context
        size = (rank + rope) * BYTES_PER_ELEMENT[self._kv_dtype]
        read = pairs * (size * 1e-3 / c["read_gb_per_s"])
        flop = pairs * (2.0 * self._heads * (2 * rank + rope) * 1e-6 / p["tflop_per_s"])
        return c["t0_us"] + pnorm(c["p"], read, flop, c["sequence_us"] * batch)

    def _choose(
        self, fits: list[Fit], shape: tuple[int, int, int], kind: str, *, by_query: bool
    ) -> Kernel:
        heads, kv_heads, dim = shape
        width = float(dim)
        if self._latent is not None:
            # The key of a head is wider than its value: their mean makes the same FLOPs.
            low = self._latent
            width = 0.5 * (low.nope_dim + low.rope_dim + low.value_dim)
        group = heads / kv_heads

        def distance(fit: Fit) -> tuple[float, float, float]:
            q, kv, d = fit.shape
            by_dim = abs(math.log2(d / dim))
            by_group = abs(math.log2(q / kv / group))
            by_heads = abs(math.log2(q / heads if by_query else kv / kv_heads))
            return (by_dim, by_heads, by_group) if by_query else (by_dim, by_group, by_heads)

        best = min(fits, key=distance)
        q, kv, d = best.shape
        if best.shape != (heads, kv_heads, dim) and self._latent is None:
            self.gaps.append(
                f"{kind} attention of {_words(shape)} was not measured: the kernel for "
                f"{_words(best.shape)} stands in, its work scaled"
            )
        ratio = heads / q if by_query else kv_heads / kv
        return Kernel(best, heads_ratio=ratio, dim_ratio=width / d)


def _decodes(profile: Profile, kv_dtype: Dtype) -> list[Fit]:
    if kv_dtype not in profile.decode:
        raise ProfileError(
            f"profile {profile.name} has no decode attention over a KV cache in {kv_dtype} (it "
            f"has {', '.join(profile.decode)}); change model.kv_dtype or set cost.kind=roofline"
        )
    return profile.decode[kv_dtype]


def _words(shape: tuple[int, ...]) -> str:
    heads, kv_heads, dim = shape
    return f"{heads} query and {kv_heads} KV heads of {dim}"
