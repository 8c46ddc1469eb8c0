"""What a model and a device are to a cost model: shapes, bytes and FLOPs, and nothing else.

Numbers of parameters count matrices only: biases, norms and quantisation scales are below 0.1 %.
A tensor-parallel rank holds its share of every matrix; KV heads are copied where there are fewer
of them than ranks, and the latent of multi-head latent attention is copied to every rank.
"""

from dataclasses import dataclass
from typing import Literal

from simkv.errors import ConfigError

Dtype = Literal["bf16", "fp8"]

BYTES_PER_ELEMENT: dict[Dtype, int] = {"bf16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Shapes of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434).

    Parameters
    ----------
    kv_rank, rope_dim
        Elements kept for each token and layer: the compressed K and V, and the rotary key.
    query_rank
        Width of the compressed query.
    nope_dim, value_dim
        Elements of a head's key without rotation, and of its value.
    """

    kv_rank: int
    rope_dim: int
    query_rank: int
    nope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Shapes of a mixture of experts.

    Parameters
    ----------
    num_routed, num_active, num_shared
        Experts of a layer, experts that a token is sent to, and experts that see every token.
    intermediate
        Width of one expert.
    num_dense_layers
        Leading layers that have a plain MLP instead.
    """

    num_routed: int
    num_active: int
    num_shared: int
    intermediate: int
    num_dense_layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One dense product of a layer on one rank: ``[tokens, k] @ [k, n]``."""

    name: str
    n: int
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shapes of a decoder-only transformer.

    Parameters
    ----------
    max_position_tokens
        Longest sequence that the model takes.
    num_learned_positions
        Rows of a learned position table (OPT); 0 with rotary positions.
    gated_mlp
        Whether the MLP has a gate beside its up projection (three matrices instead of two).
    sliding_window_tokens
        Tokens that a layer attends to at most; None for full attention.
    published_parameters
        The publisher's count, for checks; None for a model read from a file.
    """

    name: str
    source: str
    num_layers: int
    hidden: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_position_tokens: int
    num_learned_positions: int = 0
    gated_mlp: bool = True
    tied_embeddings: bool = False
    sliding_window_tokens: int | None = None
    latent: Latent | None = None
    experts: Experts | None = None
    published_parameters: int | None = None

    def check_tensor_parallel(self, tensor_parallel: int) -> None:
        """Raise ConfigError where heads cannot be shared evenly by so many ranks."""
        heads, kv_heads = self.num_query_heads, self.num_kv_heads
        evenly = heads % tensor_parallel == 0
        if self.latent is None:
            evenly &= kv_heads % tensor_parallel == 0 or tensor_parallel % kv_heads == 0
        if not evenly:
            fits = [n for n in (1, 2, 4, 8, 16) if heads % n == 0]
            raise ConfigError(
                f"{self.name} has {heads} query and {kv_heads} KV heads, which {tensor_parallel} "
                f"ranks cannot share evenly; take one of {', '.join(map(str, fits))}",
                path="model.tensor_parallel",
            )

    def heads_per_rank(self, tensor_parallel: int) -> tuple[int, int]:
        """Return query heads and KV heads on one rank."""
        return self.num_query_heads // tensor_parallel, max(1, self.num_kv_heads // tensor_parallel)

    @property
    def kv_elements_per_token(self) -> int:
        """Elements that one layer stores for one token, all ranks together, none copied."""
        if self.latent is not None:
            return self.latent.kv_rank + self.latent.rope_dim
        return 2 * self.num_kv_heads * self.head_dim

    def kv_bytes_per_token(self, kv_dtype: Dtype, tensor_parallel: int = 1) -> int:
        """Return the bytes that one token takes in the KV cache of one rank, all layers."""
        if self.latent is not None:
            elements = self.kv_elements_per_token
        else:
            elements = 2 * self.heads_per_rank(tensor_parallel)[1] * self.head_dim
        return self.num_layers * elements * BYTES_PER_ELEMENT[kv_dtype]

    def attention_matrices(self, tensor_parallel: int = 1) -> list[Matrix]:
        """Return the projections of one attention layer on one rank."""
        heads, kv_heads = self.heads_per_rank(tensor_parallel)
        if self.latent is None:
            width = (heads + 2 * kv_heads) * self.head_dim
            return [
                Matrix(name="qkv", n=width, k=self.hidden),
                Matrix(name="attention_out", n=self.hidden, k=heads * self.head_dim),
            ]
        low = self.latent
        return [
            Matrix(name="query_down", n=low.query_rank, k=self.hidden),
            Matrix(name="query_up", n=heads * (low.nope_dim + low.rope_dim), k=low.query_rank),
            Matrix(name="kv_down", n=low.kv_rank + low.rope_dim, k=self.hidden),
            Matrix(name="kv_up", n=heads * (low.nope_dim + low.value_dim), k=low.kv_rank),
            Matrix(name="attention_out", n=self.hidden, k=heads * low.value_dim),
        ]

    def mlp_matrices(self, width: int, tensor_parallel: int = 1) -> list[Matrix]:
        """Return the matrices of an MLP (or an expert) of this width on one rank."""
        share = max(1, width // tensor_parallel)
        return [
            Matrix(name="mlp_up", n=(2 if self.gated_mlp else 1) * share, k=self.hidden),
            Matrix(name="mlp_down", n=self.hidden, k=share),
        ]

    @property
    def num_expert_layers(self) -> int:
        """Layers with a mixture of experts."""
        return 0 if self.experts is None else self.num_layers - self.experts.num_dense_layers

    @property
    def embedding_parameters(self) -> int:
        """Parameters of token embeddings, learned positions and the LM head."""
        tables = 1 if self.tied_embeddings else 2
        return (tables * self.vocab + self.num_learned_positions) * self.hidden

    @property
    def total_parameters(self) -> int:
        """Parameters of the whole model."""
        return self.embedding_parameters + self._layer_parameters(active=False)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token's computation touches, embeddings included."""
        return self.embedding_parameters + self._layer_parameters(active=True)

    def _layer_parameters(self, *, active: bool) -> int:
        attention = self.num_layers * _elements(self.attention_matrices())
        dense_layers = self.num_layers - self.num_expert_layers
        dense = dense_layers * _elements(self.mlp_matrices(self.intermediate))
        if self.experts is None:
            return attention + dense
        mix = self.experts
        count = mix.num_shared + (mix.num_active if active else mix.num_routed)
        one = _elements(self.mlp_matrices(mix.intermediate))
        router = mix.num_routed * self.hidden
        return attention + dense + self.num_expert_layers * (count * one + router)

    def weight_bytes(self, weight_dtype: Dtype, tensor_parallel: int = 1) -> int:
        """Return the bytes of the weights on one rank; embeddings and LM head stay in bf16."""
        layers = self._layer_parameters(active=False) * BYTES_PER_ELEMENT[weight_dtype]
        return (layers + self.embedding_parameters * 2) // tensor_parallel


def _elements(matrices: list[Matrix]) -> int:
    return sum(matrix.n * matrix.k for matrix in matrices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Peaks of an accelerator, by its datasheet.

    Parameters
    ----------
    memory_bytes
        Memory that a program finds, as the driver reports it.
    read_bytes_per_s
        Memory bandwidth.
    bf16_flop_per_s, fp8_flop_per_s
        Dense matrix throughput with 32-bit accumulation; equal where there is no fp8 unit.
    link_bytes_per_s
        Bandwidth to the other devices of a node, one direction.
    """

    name: str
    source: str
    memory_bytes: int
    read_bytes_per_s: float
    bf16_flop_per_s: float
    fp8_flop_per_s: float
    link_bytes_per_s: float

    def flop_per_s(self, dtype: Dtype) -> float:
        """Return the dense peak for a number format."""
        return self.fp8_flop_per_s if dtype == "fp8" else self.bf16_flop_per_s
