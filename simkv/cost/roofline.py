"""Step time from FLOPs and bytes against the device's peaks, for what has no table.

Four groups of operators run one after another, each as long as the longer of its arithmetic and
its memory traffic: the dense layers, attention of the decodes, attention of the prefills, the LM
head. Tensor parallelism adds two ring all-reduces a layer over the node's links. This is a bound
scaled by two ratios, not a measurement; a device without a table gets this and nothing else.
"""

from simkv.cost.choice import Roofline
from simkv.cost.geometry import BYTES_PER_ELEMENT, Device, Dtype, Model
from simkv.sched.work import StepWork

_WIDE_BYTES = 2  # hidden states, embeddings and the LM head stay in 16 bits


class RooflineCost:
    """The cost model of a :class:`~simkv.cost.choice.Roofline` choice."""

    def __init__(
        self,
        choice: Roofline,
        model: Model,
        device: Device,
        *,
        tensor_parallel: int,
        weight_dtype: Dtype,
        kv_dtype: Dtype,
    ) -> None:
        model.check_tensor_parallel(tensor_parallel)
        self._host_s = choice.host_overhead_s
        read = device.read_bytes_per_s * choice.bandwidth_ratio
        wide_flop = device.bf16_flop_per_s * choice.flops_ratio
        flop = device.flop_per_s(weight_dtype) * choice.flops_ratio
        ranks = tensor_parallel

        layers = model.active_parameters - model.embedding_parameters
        self._dense_flop_s = 2 * layers / ranks / flop
        self._dense_read = _DenseRead(model, weight_dtype, ranks, read)
        head = model.vocab * model.hidden / ranks
        self._head_flop_s = 2 * head / wide_flop
        self._head_read_s = head * _WIDE_BYTES / read

        heads = model.num_query_heads / ranks
        # Q K^T and P V: two products of a row by every token attended to.
        width = 2 * model.head_dim
        if model.latent is not None:
            width = 2 * model.latent.kv_rank + model.latent.rope_dim
        self._attend_flop_s = 2 * heads * width * model.num_layers / wide_flop
        self._attend_read_s = model.kv_bytes_per_token(kv_dtype, ranks) / read
        self._window = model.sliding_window_tokens
        # A ring moves 2 (n - 1) / n of the data over each link, twice a layer.
        share = 2 * (ranks - 1) / ranks
        hidden_bytes = model.hidden * _WIDE_BYTES
        self._reduce_s = 2 * model.num_layers * share * hidden_bytes / device.link_bytes_per_s

    def step_time_s(self, work: StepWork) -> float:
        """Return the sum of the groups' times and the host's."""
        tokens = work.num_decodes
        pairs = 0.0
        prefill_context = 0
        for new, cached in work.prefills:
            tokens += new
            attended, context = self._chunk(new, cached)
            pairs += attended
            prefill_context += context
        if tokens == 0:
            return self._host_s
        context = work.decode_context_tokens
        if self._window is not None:
            context = min(context, self._window * work.num_decodes)
        dense = max(self._dense_flop_s * tokens, self._dense_read.time_s(tokens))
        decode = max(self._attend_flop_s, self._attend_read_s) * context
        prefill = max(self._attend_flop_s * pairs, self._attend_read_s * prefill_context)
        head = 0.0
        if work.num_sampled:
            head = max(self._head_flop_s * work.num_sampled, self._head_read_s)
        return self._host_s + dense + decode + prefill + head + self._reduce_s * tokens

    def step_times_s(self, work: StepWork, num_steps: int) -> list[float]:
        """Return the times of steps on end in which every sequence decodes."""
        batch, first = work.num_decodes, work.decode_context_tokens
        most = first + num_steps * batch if self._window is None else self._window * batch
        before_s = self._host_s + max(self._dense_flop_s * batch, self._dense_read.time_s(batch))
        head_s = max(self._head_flop_s * work.num_sampled, self._head_read_s)
        attend_s = max(self._attend_flop_s, self._attend_read_s)
        reduce_s = self._reduce_s * batch
        contexts = (min(first + step * batch, most) for step in range(num_steps))
        return [before_s + attend_s * context + head_s + reduce_s for context in contexts]

    def note(self, work: StepWork, num_steps: int) -> None:
        """Count nothing: a bound has no measured range."""

    def warnings(self) -> list[str]:
        """Return nothing: a bound has no measured range."""
        return []

    def _chunk(self, new: int, cached: int) -> tuple[float, int]:
        """Return the query-key pairs of a causal chunk, and the tokens whose K and V it reads."""
        window = self._window
        if window is None or cached + new <= window:
            return new * (cached + 0.5 * (new + 1)), cached + new
        rising = max(0, window - cached)  # rows that still see everything before them
        pairs = rising * (cached + 0.5 * (rising + 1)) + (new - rising) * window
        return pairs, min(cached, window) + new


class _DenseRead:
    """Time to read the weights of the layers that a number of tokens touches."""

    def __init__(self, model: Model, dtype: Dtype, ranks: int, read_bytes_per_s: float) -> None:
        scale = BYTES_PER_ELEMENT[dtype] / ranks / read_bytes_per_s
        always = model.total_parameters - model.embedding_parameters
        self._routed_s = 0.0
        self._miss_ratio = 1.0
        if model.experts is not None:
            mix = model.experts
            one = sum(matrix.n * matrix.k for matrix in model.mlp_matrices(mix.intermediate))
            routed = model.num_expert_layers * mix.num_routed * one
            always -= routed
            self._routed_s = routed * scale
            self._miss_ratio = 1.0 - mix.num_active / mix.num_routed
        self._always_s = always * scale

    def time_s(self, tokens: int) -> float:
        """Return the time, with tokens sent to experts independently and evenly."""
        if not self._routed_s:
            return self._always_s
        return self._always_s + self._routed_s * (1.0 - self._miss_ratio**tokens)
