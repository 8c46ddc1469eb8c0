"""From a choice to a cost model: the one place that the rest of simkv calls."""

from simkv.cost.choice import Cost, Linear, Roofline
from simkv.cost.geometry import Device, Dtype, Model
from simkv.cost.linear import LinearCost
from simkv.cost.model import CostModel
from simkv.cost.roofline import RooflineCost
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
    raise ProfileError(f"no profile serves {model.name} on {device.name}; set cost.kind=roofline")
