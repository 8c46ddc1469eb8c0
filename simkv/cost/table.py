"""Step time from a profile: tables made once for a model, looked up for each step.

A step takes its dense layers at the number of its tokens, attention of its decodes and prefills,
and the LM head at its sampled rows; or the host's own time, if that is longer. Fits, residuals
and their interpolation are done with in the constructor. A lookup is linear between knots and
uses only operations that IEEE 754 fixes to the last bit (``math.frexp``, + - * / and
comparisons), so the same lookups over arrays give the same bits.

Contexts are whole tokens, the mean of a ragged batch rounded to one. So where every sequence of a
batch decodes, the next step is the next entry of a row of step times: rows are filled as they are
needed, a stretch of contexts at a time.
"""

import math
from copy import copy

import numpy as np
from numpy.typing import NDArray

from simkv.cost import dense
from simkv.cost.attention import Attention
from simkv.cost.geometry import Dtype, Model
from simkv.cost.octaves import Plane, bilinear, octaves
from simkv.cost.outside import Outside
from simkv.cost.profile import Profile
from simkv.errors import ProfileError
from simkv.sched.work import StepWork

Array = NDArray[np.float64]

# Pieces of an octave: between knots times are taken as straight, which misses by less than 0.2 %
# with eight. The table of mixed steps has four quantities, so it makes do with two.
_STEPS = 8
_MIXED_STEPS = 2

# Cached tokens start at zero and knots at a power of two: they are looked up with this added.
_SHIFT = 64
_MIXED_SHIFT = 16

# Contexts whose decode steps are priced together, the first time that one of them is met.
_STRETCH = 512

_RATIO_UNITS = 100_000


class TableCost:
    """The cost model of a :class:`~simkv.cost.choice.MeasuredTable` choice.

    Parameters
    ----------
    host_overhead_s
        Host time that every step adds; None takes the profile's.
    max_num_batched_tokens, max_num_seqs, max_model_len
        Up to where the tables are made; beyond them the last slope goes on.
    """

    def __init__(
        self,
        profile: Profile,
        model: Model,
        *,
        tensor_parallel: int,
        weight_dtype: Dtype,
        kv_dtype: Dtype,
        host_overhead_s: float | None,
        max_num_batched_tokens: int,
        max_num_seqs: int,
        max_model_len: int,
    ) -> None:
        model.check_tensor_parallel(tensor_parallel)
        _check_serves(profile, model, tensor_parallel, weight_dtype)
        self._outside = Outside()
        self._name = profile.name
        self._host_s = profile.host_overhead_s if host_overhead_s is None else host_overhead_s
        self._floor_s = profile.host_floor_s
        self._floor_sequence_s = profile.host_floor_sequence_s
        self._ragged_units = round(_RATIO_UNITS * profile.ragged_ratio)
        self._mixed = {} if profile.mixed is None else profile.mixed.coefficients

        tokens = np.arange(1.0, max_num_batched_tokens + 1)
        layers = dense.layers_us(
            profile, model, tokens, tensor_parallel=tensor_parallel, dtype=weight_dtype
        )
        sequences = np.arange(1.0, max_num_seqs + 1)
        head = dense.head_us(profile, model, sequences, tensor_parallel=tensor_parallel)
        self._dense_s = [0.0, *_seconds(layers).tolist()]
        self._head_s = [0.0, *_seconds(head).tolist()]
        self._token_limit = dense.last_measured(profile.layer_us) if profile.layer_us else math.inf
        self._row_limit = min(max_num_seqs, self._token_limit)

        attention = Attention(profile, model, tensor_parallel=tensor_parallel, kv_dtype=kv_dtype)
        self._gaps = [*attention.gaps, *dense.gaps(profile, model)]
        self._fused = attention.fused
        self._max_seqs = max_num_seqs
        self._decode_rows: list[dict[int, tuple[list[float], list[float]]]] = [
            {} for _ in range(max_num_seqs + 1)
        ]
        self._launch_s = float(_seconds(np.float64(model.num_layers * attention.launch_us)))
        self._context_limits = attention.decode_context_limits(max_num_seqs)
        self._chunk_limit, self._cached_limit = attention.prefill_limits()
        self._tabulate(attention, model.num_layers, max_num_batched_tokens, max_model_len)

    def copy(self) -> "TableCost":
        """Return a model with the same tables that has been asked nothing yet."""
        other = copy(self)
        other._outside = Outside()
        return other

    def step_time_s(self, work: StepWork) -> float:
        """Return the time of a step, the longer of the device's and the host's."""
        if not work.prefills:
            step_s = self._listed_step_s(work)
            if step_s is not None:
                return step_s
        prefills, num_decodes, attended, longest = _rows(work)
        tokens, device_s = num_decodes, 0.0
        for new, cached in prefills:
            tokens += new
            if new > self._chunk_limit or cached > self._cached_limit:
                self._note_chunk(new, cached)
        if prefills and not (num_decodes and self._fused):
            device_s = self._prefills_s(prefills)
        if num_decodes:
            context = self._context_tokens(num_decodes, attended, longest)
            if num_decodes > self._max_seqs or context > self._context_limits[num_decodes]:
                self._note_decode(num_decodes, context)
            if prefills and self._fused:
                device_s = self._mixed_s(prefills, num_decodes, attended / num_decodes, longest)
            else:
                device_s += self._decodes_s(num_decodes, context)
        if tokens > self._token_limit:
            self._outside.note("tokens of a step", tokens, self._token_limit)
        device_s += _listed(self._dense_s, tokens) + _listed(self._head_s, work.num_sampled)
        floor_s = self._floor_s + self._floor_sequence_s * (num_decodes + len(prefills))
        return (device_s if device_s > floor_s else floor_s) + self._host_s

    def step_times_s(self, work: StepWork, num_steps: int) -> list[float]:
        """Return the times of steps on end in which every sequence decodes."""
        batch = work.num_decodes
        context = self._context_tokens(
            batch, work.decode_context_tokens, work.max_decode_context_tokens
        )
        if batch > self._max_seqs:
            return [self._decode_step_s(batch, context + step) for step in range(num_steps)]
        at = context % _STRETCH
        times_s = self._stretch(batch, context // _STRETCH)[0][at : at + num_steps]
        while len(times_s) < num_steps:
            number = (context + len(times_s)) // _STRETCH
            times_s += self._stretch(batch, number)[0][: num_steps - len(times_s)]
        return times_s

    def note(self, work: StepWork, num_steps: int) -> None:
        """Count what of so many decode steps, the last of them given, was not measured."""
        batch, most = work.num_decodes, work.max_decode_context_tokens
        if batch <= self._row_limit:
            limit, total = self._context_limits[batch], work.decode_context_tokens
            # A batch is priced at no more than its longest context.
            if most <= limit or self._context_tokens(batch, total, most) <= limit:
                return
        for step in range(1 - num_steps, 1):
            self.step_time_s(work.later(step))

    def warnings(self) -> list[str]:
        """Return what of the model was not measured, then what was asked out of range."""
        return [f"profile {self._name}: {line}" for line in self._gaps + self._outside.sentences()]

    def _context_tokens(self, batch: int, total: int, longest: int) -> int:
        """Return the context at which a decode batch is priced; a step later it is one more."""
        units = self._ragged_units
        whole = 2 * _RATIO_UNITS * batch
        return (
            2 * (total * (_RATIO_UNITS - units) + longest * batch * units) + whole // 2
        ) // whole

    def _decode_step_s(self, batch: int, context: int) -> float:
        """Return the time of a step of decodes only."""
        device_s = self._decodes_s(batch, context)
        device_s += _listed(self._dense_s, batch) + _listed(self._head_s, batch)
        floor_s = self._floor_s + self._floor_sequence_s * batch
        return (device_s if device_s > floor_s else floor_s) + self._host_s

    def _listed_step_s(self, work: StepWork) -> float | None:
        """Return the time of a step of decodes only, if it is in a row and was measured."""
        batch = work.num_decodes
        if not 0 < batch == work.num_sampled <= self._row_limit:
            return None
        context = self._context_tokens(
            batch, work.decode_context_tokens, work.max_decode_context_tokens
        )
        if context > self._context_limits[batch]:
            return None
        row = self._decode_rows[batch].get(context // _STRETCH)
        return (row or self._stretch(batch, context // _STRETCH))[0][context % _STRETCH]

    def _stretch(self, batch: int, number: int) -> tuple[list[float], list[float]]:
        """Return ``_decode_step_s`` and ``_decodes_s`` for a stretch of contexts."""
        found = self._decode_rows[batch].get(number)
        if found is None:
            contexts = np.arange(number * _STRETCH, (number + 1) * _STRETCH, dtype=np.float64)
            piece, share = self._context.locate_all(np.maximum(contexts, 1.0))
            table = np.asarray(self._decode_s[batch])
            low = table[piece]
            attention_s = low + share * (table[piece + 1] - low)
            device_s = attention_s + (self._dense_s[batch] + self._head_s[batch])
            floor_s = self._floor_s + self._floor_sequence_s * batch
            step_s = np.maximum(device_s, floor_s) + self._host_s
            found = self._decode_rows[batch][number] = (step_s.tolist(), attention_s.tolist())
        return found

    def _decodes_s(self, batch: int, context: int) -> float:
        """Return the attention time of all layers for a decode batch."""
        if batch > self._max_seqs:
            return self._decodes_s(self._max_seqs, context) * (batch / self._max_seqs)
        row = self._decode_rows[batch].get(context // _STRETCH)
        return (row or self._stretch(batch, context // _STRETCH))[1][context % _STRETCH]

    def _prefills_s(self, prefills: list[tuple[int, int]]) -> float:
        """Return the attention time of all layers for the chunks of a step."""
        if len(prefills) == 1:
            new, cached = prefills[0]
            if cached or new >= len(self._fresh_s):
                return self._chunk_s(new, cached)
            return self._fresh_s[new]
        if self._fused:
            # Measured one chunk at a time: the work adds up, the launch happens once.
            total = self._launch_s
            for new, cached in prefills:
                total += self._chunk_s(new, cached) - self._launch_s
            return total
        # As many equal chunks as there are, with the same tokens and the same query-key pairs.
        tokens, pairs = 0, 0.0
        for new, cached in prefills:
            tokens += new
            pairs += new * (cached + 0.5 * new)
        mean = tokens / len(prefills)
        i, x = self._chunks.locate(len(prefills))
        j, y = self._new.locate(mean)
        k, z = self._cached.locate(pairs / tokens - 0.5 * mean + _SHIFT)
        low = bilinear(self._prefill_s[i], j, y, k, z)
        return low + x * (bilinear(self._prefill_s[i + 1], j, y, k, z) - low)

    def _chunk_s(self, new: float, cached: float) -> float:
        j, y = self._new.locate(new)
        k, z = self._cached.locate(cached + _SHIFT)
        return bilinear(self._prefill_s[0], j, y, k, z)

    def _mixed_s(
        self, prefills: list[tuple[int, int]], batch: int, context: float, longest: int
    ) -> float:
        """Return the attention time of all layers for one call over chunks and decodes.

        Measured with one chunk and equal contexts: the chunk with the most work is looked up
        together with the decodes at their mean context, the longest of them stretches that, and
        each other chunk adds what it takes alone.
        """
        chunks = prefills
        if len(chunks) > 1:
            chunks = sorted(chunks, key=_pairs, reverse=True)
        new, cached = chunks[0]
        i, w = self._mixed_new.locate(new)
        j, x = self._mixed_cached.locate(cached + _MIXED_SHIFT)
        k, y = self._mixed_batch.locate(batch)
        m, z = self._mixed_context.locate(context)
        near, far = self._together_s[i], self._together_s[i + 1]
        low = bilinear(near[j], k, y, m, z)
        low += x * (bilinear(near[j + 1], k, y, m, z) - low)
        high = bilinear(far[j], k, y, m, z)
        high += x * (bilinear(far[j + 1], k, y, m, z) - high)
        total = low + w * (high - low)
        if longest > context:
            total *= self._ragged(new, cached, batch, context, longest)
        for other, before in chunks[1:]:
            total += self._chunk_s(other, before) - self._launch_s
        return total

    def _ragged(self, new: int, cached: int, batch: int, context: float, longest: int) -> float:
        """Return ``physics.mixed_ragged_ratio`` of one step; IEEE 754 fixes its every bit."""
        c = self._mixed
        work = (
            c["tile_us"] * -(-new // 128) * (cached + 0.5 * new)
            + c["context_us"] * batch * context
            + c["row_us"] * (new + batch)
        )
        chain, own = c["ragged_us"], cached + new
        return (work + chain * max(own, longest)) / (work + chain * max(own, context))

    def _tabulate(
        self, attention: Attention, num_layers: int, max_tokens: int, max_context: int
    ) -> None:
        """Make the attention tables up to the scheduler's limits."""
        self._context = octaves(1, max_context, _STEPS)
        batches = np.arange(1.0, self._max_seqs + 1)
        decode = attention.decode_us(batches[:, None], self._context.array()[None, :])
        self._decode_s: Plane = [[], *_seconds(num_layers * decode).tolist()]

        self._chunks = octaves(1, 1 if self._fused else self._max_seqs, 1)
        self._new = octaves(1, max_tokens, _STEPS)
        self._cached = octaves(_SHIFT, max_context + _SHIFT, _STEPS)
        prefill = attention.prefill_us(
            self._chunks.array()[:, None, None],
            self._new.array()[None, :, None],
            self._cached.array()[None, None, :] - _SHIFT,
        )
        self._prefill_s: list[Plane] = _seconds(num_layers * prefill).tolist()
        # A chunk over nothing cached lies on the first knot of that quantity.
        piece, share = self._new.locate_all(np.arange(1.0, max_tokens + 1))
        table = np.asarray([row[0] for row in self._prefill_s[0]])
        low = table[piece]
        self._fresh_s: list[float] = [0.0, *(low + share * (table[piece + 1] - low)).tolist()]
        if not self._fused:
            return
        self._mixed_new = octaves(1, max_tokens, _MIXED_STEPS)
        self._mixed_cached = octaves(_MIXED_SHIFT, max_context + _MIXED_SHIFT, _MIXED_STEPS)
        self._mixed_batch = octaves(1, self._max_seqs, _MIXED_STEPS)
        self._mixed_context = octaves(1, max_context, _MIXED_STEPS)
        together = attention.mixed_us(
            self._mixed_new.array()[:, None, None, None],
            self._mixed_cached.array()[None, :, None, None] - _MIXED_SHIFT,
            self._mixed_batch.array()[None, None, :, None],
            self._mixed_context.array()[None, None, None, :],
        )
        self._together_s: list[list[Plane]] = _seconds(num_layers * together).tolist()

    def _note_decode(self, batch: int, context: int) -> None:
        if batch > self._max_seqs:
            self._outside.note("sequences of a decode batch", batch, self._max_seqs)
            return
        limit = self._context_limits[batch]
        self._outside.note("mean context of a decode batch", context, limit)

    def _note_chunk(self, new: int, cached: int) -> None:
        if new > self._chunk_limit:
            self._outside.note("tokens of a prefill chunk", new, self._chunk_limit)
        if cached > self._cached_limit:
            self._outside.note("tokens cached before a prefill chunk", cached, self._cached_limit)


def _rows(work: StepWork) -> tuple[list[tuple[int, int]], int, int, int]:
    """Return a step as kernels see it: chunks, one-token rows, what these attend to, the longest.

    A chunk of one token is a row like a decode, whatever its place in the prompt: vLLM takes the
    kernel for chunks only if some row has two tokens or more. Such a chunk is what is left of a
    prompt that was found in the prefix cache, or of one cut by the token budget.
    """
    rows, attended = work.num_decodes, work.decode_context_tokens
    longest, chunks = work.max_decode_context_tokens, work.prefills
    for new, _ in chunks:
        if new == 1:
            break
    else:
        return chunks, rows, attended, longest
    singles = [cached + 1 for new, cached in chunks if new == 1]
    chunks = [chunk for chunk in chunks if chunk[0] > 1]
    return chunks, rows + len(singles), attended + sum(singles), max(longest, *singles)


def _check_serves(
    profile: Profile, model: Model, tensor_parallel: int, weight_dtype: Dtype
) -> None:
    """Raise ProfileError where layers were measured as a whole and this is another model."""
    if profile.model is None:
        return
    if (model.name, tensor_parallel, weight_dtype) != (profile.model, 1, "bf16"):
        raise ProfileError(
            f"profile {profile.name} was measured with {profile.model} in bf16 on one device and "
            f"serves nothing else, got {model.name} in {weight_dtype} on {tensor_parallel}; "
            "change the model, or set cost.kind=roofline"
        )


def _seconds(microseconds: Array | np.float64) -> Array:
    """Return seconds to the picosecond, below which math libraries differ."""
    return np.round(np.asarray(microseconds, np.float64) * 1e-6, 12)


def _listed(times_s: list[float], count: int) -> float:
    """Return the time at a count; beyond the list in proportion to the last."""
    if count < len(times_s):
        return times_s[count]
    return times_s[-1] * (count / (len(times_s) - 1))


def _pairs(chunk: tuple[int, int]) -> float:
    new, cached = chunk
    return new * (cached + 0.5 * new)
