"""The one place where a configuration becomes objects."""

from dataclasses import dataclass, replace

from simkv.config.run import RunConfig
from simkv.cost.build import build_cost
from simkv.cost.capacity import capacity
from simkv.cost.catalog import find_device, find_model
from simkv.cost.geometry import Device, Model
from simkv.cost.model import CostModel
from simkv.errors import ConfigError
from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.contiguous import Reservations
from simkv.kv.groups import Attention, FullAttention, WindowAttention
from simkv.kv.layout import HashChain, Paged
from simkv.kv.manager import KVManager
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.leaps import LeapingScheduler
from simkv.sched.policy import VllmV1
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
    return Served(_windowed(model, config), device, limit)


def build_scheduler(config: RunConfig, served: Served, *, leaps: bool = False) -> Scheduler:
    """Build the scheduler of one replica with its empty KV memory.

    ``leaps`` asks for one that plans many steps at once, where that is known to be exact.
    """
    kv = build_manager(config, served)
    if leaps and isinstance(kv, Accounts | Reservations) and not config.sched.async_scheduling:
        return LeapingScheduler(config.sched, kv, max_model_len=served.max_model_len)
    return scheduler_for(config.sched, kv, max_model_len=served.max_model_len)


def scheduler_for(policy: VllmV1, kv: KVManager, *, max_model_len: int) -> Scheduler:
    """Return the scheduler that acts on a policy."""
    cls = AsyncScheduler if policy.async_scheduling else Scheduler
    return cls(policy, kv, max_model_len=max_model_len)


def build_manager(config: RunConfig, served: Served) -> KVManager:
    """Build one replica's KV memory, as large as said or as the device's memory allows.

    Paged memory is kept in accounts; windows need to know which block is which, so they get the
    physical manager.
    """
    layout = config.kv
    if isinstance(layout, Paged):
        groups = groups_for(layout, config.sched, served.model.sliding_window_tokens)
        if groups != (FullAttention(),):
            return build_blocks(config, served)
        return Accounts(
            block_tokens=layout.block_tokens,
            num_blocks=_num_blocks(config, served, layout, len(groups)),
            prefix_caching=isinstance(layout.sharing, HashChain),
        )
    return Reservations(
        num_slots=_num_slots(config, served, layout.num_slots),
        reserve_tokens=served.max_model_len,
    )


def build_blocks(config: RunConfig, served: Served) -> Blocks:
    """Build one replica's paged KV memory block by block, with real block tables.

    Raises
    ------
    ConfigError
        If the layout is not paged.
    """
    layout = config.kv
    if not isinstance(layout, Paged):
        raise ConfigError(f"got {layout.kind}, only a paged layout has blocks", path="kv.kind")
    groups = groups_for(layout, config.sched, served.model.sliding_window_tokens)
    return Blocks(
        block_tokens=layout.block_tokens,
        num_blocks=_num_blocks(config, served, layout, len(groups)),
        prefix_caching=isinstance(layout.sharing, HashChain),
        groups=groups,
    )


def groups_for(
    layout: Paged, sched: VllmV1, model_window_tokens: int | None
) -> tuple[Attention, ...]:
    """Return what each group of layers keeps of a sequence, the full one first."""
    window_tokens = layout.sliding_window_tokens
    if window_tokens is None:
        window_tokens = model_window_tokens or 0
    if not window_tokens:
        if layout.window_layers == "half":
            raise ConfigError(
                "half of the layers have a window of no size; set kv.sliding_window_tokens",
                path="kv.window_layers",
            )
        return (FullAttention(),)
    num_ahead = 2 if sched.async_scheduling else 1
    window = WindowAttention(
        window_tokens=window_tokens, step_tokens=num_ahead * sched.max_num_batched_tokens
    )
    return (FullAttention(), window) if layout.window_layers == "half" else (window,)


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


def _windowed(model: Model, config: RunConfig) -> Model:
    """Return the model with the window that the layout gives to all layers, if it gives one."""
    layout = config.kv
    if not isinstance(layout, Paged) or layout.sliding_window_tokens is None:
        return model
    window_tokens = layout.sliding_window_tokens if layout.window_layers == "all" else 0
    return replace(model, sliding_window_tokens=window_tokens or None)


def _num_blocks(config: RunConfig, served: Served, layout: Paged, num_groups: int) -> int:
    """Return the blocks of a pool; one of several groups' blocks holds its share of the layers."""
    if layout.num_blocks is not None:
        return layout.num_blocks
    num_slots = _num_slots(config, served, layout.num_slots)
    num_blocks = num_groups * num_slots // layout.block_tokens
    # Slots that are asked for are all usable. Of those that the memory holds, vLLM's null block
    # takes its share: it is the first of the blocks that fit (rule 1.1).
    return num_blocks if layout.num_slots is None else num_blocks + 1


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
