"""How many tokens fit beside the weights: the memory of one device, shared out.

The shares follow vLLM's start-up profile: ``utilization x memory - weights - activations -
libraries`` is left for the KV cache. CUDA graphs and the CUDA context lie in the part that the
utilisation leaves out, as in vLLM up to 0.19.
"""

from dataclasses import dataclass

from simkv.cost.geometry import Device, Dtype, Model
from simkv.errors import ConfigError
from simkv.units import GIB, MIB

# What CUDA libraries hold outside the tensor allocator during vLLM's profile run, one device:
# 0.16 GiB in the log of github vllm-project/vllm PR 12126 (H100).
_LIBRARY_BYTES = 160 * MIB

# What NCCL holds for two ranks and for more: misc.nccl_mem of the system.yaml files of NVIDIA's
# aiconfigurator 0.12.0, called an estimate there.
_NCCL_PAIR_BYTES = 358_612_992
_NCCL_GROUP_BYTES = 411_041_792

# Sampling with top-k and top-p over a row of logits holds, for each entry of the vocabulary:
# logits in 16 bits (2) and 32 bits (4), sorted values (4) and their 64-bit positions (8), their
# probabilities (4) and running sum (4), a mask (1), the scattered result (4) and its
# probabilities (4).
_SAMPLER_BYTES_PER_LOGIT = 35

_ACTIVATION_BYTES = 2  # activations are 16 bits wide whatever the weights are


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Where the memory of one device goes.

    Parameters
    ----------
    memory_bytes, usable_bytes
        The device's memory, and the share of it that the engine may use.
    weight_bytes, activation_bytes, library_bytes
        What is taken from the usable bytes before the KV cache.
    kv_bytes
        What is left for the KV cache.
    kv_bytes_per_token
        Bytes of one token in the cache of this device, all layers.
    """

    memory_bytes: int
    usable_bytes: int
    weight_bytes: int
    activation_bytes: int
    library_bytes: int
    kv_bytes: int
    kv_bytes_per_token: int

    @property
    def num_slots(self) -> int:
        """Tokens that fit, without rounding to blocks."""
        return self.kv_bytes // self.kv_bytes_per_token

    def num_blocks(self, block_tokens: int) -> int:
        """Return the blocks of this size that fit, the null block included."""
        return self.kv_bytes // (self.kv_bytes_per_token * block_tokens)

    def lines(self) -> list[str]:
        """Return the breakdown, a line a share, for people."""
        rows = (
            ("device memory", self.memory_bytes),
            ("engine may use", self.usable_bytes),
            ("- weights", self.weight_bytes),
            ("- activations at peak", self.activation_bytes),
            ("- CUDA libraries", self.library_bytes),
            ("= KV cache", self.kv_bytes),
        )
        lines = [f"{label:<22} {size / GIB:8.2f} GiB" for label, size in rows]
        per_token = f"{self.kv_bytes_per_token:,} bytes a token"
        return [*lines, f"{'tokens that fit':<22} {self.num_slots:8,} ({per_token})"]


def capacity(
    model: Model,
    device: Device,
    *,
    utilization_ratio: float,
    tensor_parallel: int,
    weight_dtype: Dtype,
    kv_dtype: Dtype,
    max_num_batched_tokens: int,
    max_num_seqs: int,
) -> Capacity:
    """Return how the memory of one device of a replica is shared out.

    Raises
    ------
    ConfigError
        If nothing is left for the KV cache, with the numbers.
    """
    model.check_tensor_parallel(tensor_parallel)
    usable = int(device.memory_bytes * utilization_ratio)
    weights = model.weight_bytes(weight_dtype, tensor_parallel)
    activations = activation_bytes(
        model,
        tensor_parallel=tensor_parallel,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )
    libraries = _LIBRARY_BYTES + _nccl_bytes(tensor_parallel)
    left = usable - weights - activations - libraries
    per_token = model.kv_bytes_per_token(kv_dtype, tensor_parallel)
    if left < per_token:
        raise ConfigError(
            f"{model.name} in {weight_dtype} leaves no room for the KV cache on {device.name} "
            f"with tensor_parallel={tensor_parallel}: {utilization_ratio:g} x "
            f"{device.memory_bytes / GIB:.1f} GiB may be used, weights take "
            f"{weights / GIB:.1f} GiB, activations {activations / GIB:.1f} GiB and libraries "
            f"{libraries / GIB:.1f} GiB; take more devices, fp8 weights or a larger device",
            path="device.name",
        )
    return Capacity(
        memory_bytes=device.memory_bytes,
        usable_bytes=usable,
        weight_bytes=weights,
        activation_bytes=activations,
        library_bytes=libraries,
        kv_bytes=left,
        kv_bytes_per_token=per_token,
    )


def activation_bytes(
    model: Model, *, tensor_parallel: int, max_num_batched_tokens: int, max_num_seqs: int
) -> int:
    """Return the most that intermediate results take on one rank.

    Within a layer: the hidden state and the residual, and either the inputs and outputs of
    attention or those of the MLP, for every token of the budget. After the layers: sampling for
    every sequence over the whole vocabulary, which every rank does. The two never overlap, so
    the larger counts.
    """
    heads, kv_heads = model.heads_per_rank(tensor_parallel)
    attention = (2 * heads + 2 * kv_heads) * model.head_dim
    width = model.intermediate
    if model.experts is not None:
        sent = model.experts.num_active + model.experts.num_shared
        width = max(width, sent * model.experts.intermediate)
    mlp = (3 if model.gated_mlp else 2) * width // tensor_parallel
    a_token = (2 * model.hidden + max(attention, mlp)) * _ACTIVATION_BYTES
    layer = max_num_batched_tokens * a_token
    hidden = max_num_batched_tokens * model.hidden * _ACTIVATION_BYTES
    return max(layer, hidden + max_num_seqs * model.vocab * _SAMPLER_BYTES_PER_LOGIT)


def _nccl_bytes(tensor_parallel: int) -> int:
    if tensor_parallel == 1:
        return 0
    return _NCCL_PAIR_BYTES if tensor_parallel == 2 else _NCCL_GROUP_BYTES
