"""What is left for the KV cache, against block counts that vLLM printed."""

from typing import Any

import pytest

from simkv.cost.capacity import Capacity, capacity
from simkv.cost.catalog import find_device, find_model
from simkv.errors import ConfigError


def _capacity(model: str, device: str, **changes: Any) -> Capacity:
    options: dict[str, Any] = {
        "utilization_ratio": 0.9,
        "tensor_parallel": 1,
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 256,
    }
    return capacity(find_model(model), find_device(device), **options | changes)


def test_blocks_of_the_logged_vllm_run_on_an_rtx_4090() -> None:
    # vLLM 0.19 measured 2,588 blocks of 16 in that run; nothing here is fitted to it.
    assert _capacity("llama-3.1-8b", "rtx-4090").num_blocks(16) == pytest.approx(2588, rel=0.03)


def test_activations_of_the_logged_start_on_an_h100() -> None:
    # github vllm-project/vllm PR 10511: weights 14.96 GiB, activations at peak 1.26 GiB.
    found = _capacity("llama-3.1-8b", "h100")
    assert found.weight_bytes / 2**30 == pytest.approx(14.96, abs=0.01)
    assert found.activation_bytes / 2**30 == pytest.approx(1.26, rel=0.2)


def test_shares_add_up() -> None:
    found = _capacity("llama-3.1-70b", "h200", tensor_parallel=2)
    taken = found.weight_bytes + found.activation_bytes + found.library_bytes
    assert found.usable_bytes == taken + found.kv_bytes
    assert found.num_slots // 16 == found.num_blocks(16)
    assert found.lines()[-1].endswith("(163,840 bytes a token)")


def test_fp8_kv_doubles_the_slots() -> None:
    wide, narrow = (_capacity("llama-3.1-8b", "h200", kv_dtype=d) for d in ("bf16", "fp8"))
    assert narrow.num_slots == pytest.approx(2 * wide.num_slots, abs=1)


def test_a_model_that_does_not_fit_is_refused_with_its_numbers() -> None:
    with pytest.raises(
        ConfigError, match=r"device.name: llama-3.1-70b in bf16 leaves no room.*131"
    ):
        _capacity("llama-3.1-70b", "h100")
