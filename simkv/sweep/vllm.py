"""A configuration as the arguments of ``vllm serve``."""

from simkv.config.run import RunConfig
from simkv.cost.catalog import find_model
from simkv.kv.layout import HashChain, Paged

_HUB = "huggingface.co/"


def vllm_flags(config: RunConfig) -> list[str]:
    """Return what follows ``vllm serve`` to serve as a configuration says: the model, then flags.

    ``--num-gpu-blocks-override`` counts the null block, as ``kv.num_blocks`` does. A layout that
    vLLM does not have gets the arguments of everything else.
    """
    sched = config.sched
    flags = [
        hub_name(config.model.name),
        *("--tensor-parallel-size", str(config.model.tensor_parallel)),
        *("--gpu-memory-utilization", f"{config.device.memory_utilization_ratio:g}"),
        *("--kv-cache-dtype", "auto" if config.model.kv_dtype == "bf16" else config.model.kv_dtype),
        *("--max-num-seqs", str(sched.max_num_seqs)),
        *("--max-num-batched-tokens", str(sched.max_num_batched_tokens)),
        *("--scheduling-policy", sched.policy),
        *("--long-prefill-token-threshold", str(sched.long_prefill_token_threshold)),
        _switch("enable-chunked-prefill", on=sched.chunked_prefill),
    ]
    if config.model.weight_dtype == "fp8":
        flags += ["--quantization", "fp8"]
    if sched.max_model_len is not None:
        flags += ["--max-model-len", str(sched.max_model_len)]
    if not sched.reserve_full_prompt:
        flags.append("--no-scheduler-reserve-full-isl")
    if sched.watermark_ratio:
        flags += ["--watermark", f"{sched.watermark_ratio:g}"]
    if isinstance(config.kv, Paged):
        flags += ["--block-size", str(config.kv.block_tokens), *_pool(config.kv)]
        sharing = isinstance(config.kv.sharing, HashChain)
        flags.append(_switch("enable-prefix-caching", on=sharing))
    return flags


def hub_name(name: str) -> str:
    """Return what vLLM calls a model: its name on the hub where the model's source says it."""
    source = find_model(name).source
    if source.startswith(_HUB):
        return "/".join(source.removeprefix(_HUB).split("/")[:2])
    return name


def _pool(layout: Paged) -> list[str]:
    num_blocks = layout.num_blocks
    if num_blocks is None and layout.num_slots is not None:
        # vLLM's null block holds nothing, so it comes on top of the slots asked for.
        num_blocks = layout.num_slots // layout.block_tokens + 1
    return [] if num_blocks is None else ["--num-gpu-blocks-override", str(num_blocks)]


def _switch(name: str, *, on: bool) -> str:
    return f"--{name}" if on else f"--no-{name}"
