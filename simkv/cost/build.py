"""From a choice to a cost model: the one place that the rest of simkv calls."""

from functools import lru_cache

from simkv.cost.choice import Cost, Linear, MeasuredTable, Roofline
from simkv.cost.geometry import Device, Dtype, Model
from simkv.cost.linear import LinearCost
from simkv.cost.model import CostModel
from simkv.cost.profile import find_profile, profile_of_device
from simkv.cost.roofline import RooflineCost
from simkv.cost.table import TableCost
from simkv.errors import ProfileError


def build_cost(
    choice: Cost,
    model: Model,
    device: Device,
    *,
    tensor_parallel: int,
    weight_dtype: Dtype,
    kv_dtype: Dtype,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
) -> CostModel:
    """Return the cost model that a choice names, made for one model on one device.

    Parameters
    ----------
    max_num_batched_tokens, max_num_seqs, max_model_len
        Limits of the scheduler; a table is prepared up to them.

    Raises
    ------
    ProfileError
        If no profile serves the model on the device.
    """
    if isinstance(choice, Linear):
        return LinearCost(choice)
    if isinstance(choice, Roofline):
        return RooflineCost(
            choice,
            model,
            device,
            tensor_parallel=tensor_parallel,
            weight_dtype=weight_dtype,
            kv_dtype=kv_dtype,
        )
    options = (tensor_parallel, weight_dtype, kv_dtype, max_num_batched_tokens, max_num_seqs)
    if choice.profile is not None and choice.profile.endswith(".json"):
        return _table(choice, model, device, *options, max_model_len)
    return _shipped_table(choice, model, device, *options, max_model_len).copy()


def _table(
    choice: MeasuredTable,
    model: Model,
    device: Device,
    tensor_parallel: int,
    weight_dtype: Dtype,
    kv_dtype: Dtype,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
) -> TableCost:
    if choice.profile is None:
        profile = profile_of_device(device.name)
    else:
        profile = find_profile(choice.profile)
    if profile.device != device.name:
        raise ProfileError(
            f"profile {profile.name} was measured on {profile.device}, but the replica runs on "
            f"{device.name}; make cost.profile and device.name agree"
        )
    return TableCost(
        profile,
        model,
        tensor_parallel=tensor_parallel,
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        host_overhead_s=choice.host_overhead_s,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        max_model_len=max_model_len,
    )


# Shipped profiles do not change while a program runs, and the cells of a sweep mostly share one.
_shipped_table = lru_cache(maxsize=4)(_table)
