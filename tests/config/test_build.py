"""From a configuration to objects: how large a pool is."""

from simkv.config.build import build_manager, build_served
from simkv.config.load import load_config
from simkv.cost.capacity import capacity


def pool_slots(*sets: str) -> int:
    config = load_config(sets=sets)
    return build_manager(config, build_served(config)).pool_slots


def test_slots_that_are_asked_for_are_usable():
    assert pool_slots("kv.num_slots=1000", "kv.block_tokens=16") == 62 * 16
    assert pool_slots("kv.num_slots=1000", "kv.block_tokens=1") == 1000
    assert pool_slots("kv.kind=contiguous-max", "kv.num_slots=1000") == 1000


def test_the_null_block_is_one_of_the_blocks_that_are_named():
    assert pool_slots("kv.num_blocks=100", "kv.block_tokens=16") == 99 * 16


def test_the_null_block_is_one_of_the_blocks_that_the_memory_holds():
    config = load_config()
    served = build_served(config)
    fits = capacity(
        served.model,
        served.device,
        utilization_ratio=0.9,
        tensor_parallel=1,
        weight_dtype="bf16",
        kv_dtype="bf16",
        max_num_batched_tokens=8192,
        max_num_seqs=256,
    )
    for block_tokens in (1, 16, 256):
        usable = fits.num_blocks(block_tokens) - 1
        assert pool_slots(f"kv.block_tokens={block_tokens}") == usable * block_tokens
