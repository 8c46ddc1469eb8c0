"""Which block sizes serving engines take: facts with their sources, and the question itself.

Engines change; each entry says where it was read. A block size that is not known to be taken
counts as not taken.
"""

from collections.abc import Callable
from dataclasses import dataclass

from simkv.config.run import RunConfig
from simkv.kv.layout import Paged


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A serving engine with one attention kernel.

    Parameters
    ----------
    name
        What it is called on the command line.
    title
        What people call it.
    blocks
        The block sizes that it takes, in words.
    takes
        Says whether it takes a block size.
    source
        Where that was read.
    """

    name: str
    title: str
    blocks: str
    takes: Callable[[int], bool]
    source: str

    def objection(self, config: RunConfig) -> str | None:
        """Return why the engine cannot run a configuration's memory layout, None if it can."""
        layout = config.kv
        if not isinstance(layout, Paged):
            return f"{self.title} has no {layout.kind} layout, only paged memory"
        if not self.takes(layout.block_tokens):
            return f"{self.title} takes {self.blocks}, not {layout.block_tokens}"
        return None


def _multiple_of_16(block_tokens: int) -> bool:
    return block_tokens % 16 == 0


def _power_of_two(block_tokens: int) -> bool:
    return block_tokens > 1 and block_tokens & (block_tokens - 1) == 0


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            name="vllm",
            title="vLLM with FlashAttention (its default on Ampere and Hopper)",
            blocks="multiples of 16",
            takes=_multiple_of_16,
            source=(
                "docs.vllm.ai v0.28.0, v1/attention/backends/flash_attn: "
                "get_supported_kernel_block_sizes is MultipleOf(16); --block-size was limited to "
                "1, 8, 16, 32, 64, 128, 256 up to v0.16.0 (config/cache) and is any whole number "
                "above 0 in v0.26.0"
            ),
        ),
        Engine(
            name="vllm-flashinfer",
            title="vLLM with FlashInfer",
            blocks="16, 32 and 64",
            takes=lambda block_tokens: block_tokens in (16, 32, 64),
            source=(
                "vllm v1/attention/backends/flashinfer: get_supported_kernel_block_sizes is "
                "[16, 32, 64]; vllm-project/vllm pull requests 24486 (no kernel for 128) and 36241"
            ),
        ),
        Engine(
            name="sglang",
            title="SGLang with FlashInfer or FlashAttention 3",
            blocks="every page size",
            takes=lambda block_tokens: block_tokens >= 1,
            source="docs.sglang.io, advanced_features/attention_backend: page size > 1 native",
        ),
        Engine(
            name="sglang-trtllm",
            title="SGLang with TRTLLM MHA (its default on Blackwell)",
            blocks="16, 32 and 64",
            takes=lambda block_tokens: block_tokens in (16, 32, 64),
            source="docs.sglang.io, advanced_features/attention_backend: TRTLLM MHA 16, 32 or 64",
        ),
        Engine(
            name="tensorrt-llm",
            title="TensorRT-LLM",
            blocks="powers of two above 1",
            takes=_power_of_two,
            source=(
                "nvidia.github.io/TensorRT-LLM 1.4.0rc4, features/kvcache: a power of two greater "
                "than 1; KvCacheConfig.tokens_per_block is 32 by default"
            ),
        ),
    )
}
