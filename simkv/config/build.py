"""The one place where a configuration becomes objects."""

from dataclasses import dataclass

from simkv.config.run import RunConfig
from simkv.cost.build import build_cost
from simkv.cost.capacity import capacity
from simkv.cost.catalog import find_device, find_model
from simkv.cost.geometry import Device, Model
from simkv.cost.model import CostModel
from simkv.errors import ConfigError
from simkv.kv.accounts import Accounts
from simkv.kv.contiguous import Reservations
from simkv.kv.layout import HashChain, Paged
from simkv.kv.manager import KVManager
from simkv.sched.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Served:
    """What every replica of a run has in common.

    Parameters
    ----------
    model, device
        Geometry.
    max_model_len
        Most tokens of a request, prompt and output together.
    """

    model: Model
    device: Device
    max_model_len: int


def build_served(config: RunConfig) -> Served:
    """Look up model and device and settle the longest request."""
    model, device = find_model(config.model.name), find_device(config.device.name)
    limit = config.sched.max_model_len or model.max_position_tokens
    if limit > model.max_position_tokens:
        raise ConfigError(
            f"got {limit} tokens, but {model.name} takes at most {model.max_position_tokens}; "
            "lower it",
            path="sched.max_model_len",
        )
    budget = config.sched.max_num_batched_tokens
    if not config.sched.chunked_prefill and budget < limit:
        raise ConfigError(
            f"without chunked prefill the budget of {budget} tokens must hold the longest prompt, "
            f"{limit} tokens for {model.name}; raise it or set sched.max_model_len",
            path="sched.max_num_batched_tokens",
        )
    return Served(model, device, limit)


def build_scheduler(config: RunConfig, served: Served) -> Scheduler:
    """Build the scheduler of one replica with its empty KV memory."""
    kv = build_manager(config, served)
    return Scheduler(config.sched, kv, max_model_len=served.max_model_len)


def build_manager(config: RunConfig, served: Served) -> KVManager:
    """Build one replica's KV memory, as large as said or as the device's memory allows."""
    layout = config.kv
    if isinstance(layout, Paged):
        if layout.num_blocks is not None:
            num_blocks = layout.num_blocks
        else:
            # One block more than fits is vLLM's null block, which needs no memory of its own.
            num_blocks = _num_slots(config, served, layout.num_slots) // layout.block_tokens + 1
        return Accounts(
            block_tokens=layout.block_tokens,
            num_blocks=num_blocks,
            prefix_caching=isinstance(layout.sharing, HashChain),
        )
    return Reservations(
        num_slots=_num_slots(config, served, layout.num_slots),
        reserve_tokens=served.max_model_len,
    )


def build_cost_model(config: RunConfig, served: Served) -> CostModel:
    """Build what prices the steps of a replica."""
    return build_cost(
        config.cost,
        served.model,
        served.device,
        tensor_parallel=config.model.tensor_parallel,
        weight_dtype=config.model.weight_dtype,
        kv_dtype=config.model.kv_dtype,
        max_num_batched_tokens=config.sched.max_num_batched_tokens,
        max_num_seqs=config.sched.max_num_seqs,
        max_model_len=served.max_model_len,
    )


def _num_slots(config: RunConfig, served: Served, num_slots: int | None) -> int:
    if num_slots is not None:
        return num_slots
    return capacity(
        served.model,
        served.device,
        utilization_ratio=config.device.memory_utilization_ratio,
        tensor_parallel=config.model.tensor_parallel,
        weight_dtype=config.model.weight_dtype,
        kv_dtype=config.model.kv_dtype,
        max_num_batched_tokens=config.sched.max_num_batched_tokens,
        max_num_seqs=config.sched.max_num_seqs,
    ).num_slots
