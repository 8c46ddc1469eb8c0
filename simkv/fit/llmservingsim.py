"""Profiles from LLMServingSim's kernel tables of Llama-3.1-8B under vLLM 0.19 (MIT).

Every operator of a layer was measured, and attention as vLLM calls it: one call over a prefill
chunk and a batch of decodes together.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.csv
from numpy.typing import NDArray

from simkv.cost.catalog import find_device
from simkv.cost.geometry import Device
from simkv.cost.physics import mixed_ragged_ratio
from simkv.cost.profile import Curve, Fit, Profile, Source
from simkv.fit import host, kernels
from simkv.fit.heldout import Report, every_other, splits

Array = NDArray[np.float64]

_PROJECT = "casys-kaist/LLMServingSim, commit 5daddb2"
_LICENCE = "MIT"
_MODEL = "llama-3.1-8b"
_SHAPE = (32, 8, 128)

# The table of ragged batches holds the sum of its three iterations: its batches of equal contexts
# take 3.00 times what the same batches take in the attention table (0.2 % off in the median), and
# only the latter is within the card's bandwidth.
_SKEW_ITERATIONS = 3.0

# Below this a batch is all launch, ragged or not.
_LEAST_SKEWED_TOKENS = 8000

# A layer calls layernorm twice, the others once.
_LAYER = ("layernorm", "qkv_proj", "rotary_emb", "o_proj", "gate_up_proj", "act_fn", "down_proj")
_TWICE = "layernorm"
_ONCE = ("embedding", "final_layernorm")

_AXES = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The folder of one card, relative to the folder of kernel tables."""

    profile: str
    device: str
    folder: str
    measured: str
    ragged_ratio: float


RTX4090 = Tables(
    profile="rtx4090-llmservingsim",
    device="rtx-4090",
    folder="llmservingsim/RTX4090/Llama-3.1-8B",
    measured="2026-08-17",
    ragged_ratio=0.035,
)

RTXPRO6000 = Tables(
    profile="rtxpro6000-llmservingsim",
    device="rtx-pro-6000",
    folder="llmservingsim/RTXPRO6000/Llama-3.1-8B",
    measured="2026-04-24",
    ragged_ratio=0.02,
)


def make(tables: Tables, folder: Path) -> Profile:
    """Return the profile of one card from the folder that holds the kernel tables."""
    device = find_device(tables.device)
    attention = _read(folder / tables.folder / "tp1_attention.csv.gz")
    points = {name: attention[name] for name in _AXES}
    measured = attention["time_us"]
    heldout: dict[str, dict[str, list[float]]] = {}
    alone = points["prefill_chunk"] == 0
    decode = _decode_fit(points, measured, alone, device, heldout)
    prefill = _prefill_fit(points, measured, device, heldout)
    together = (points["prefill_chunk"] > 0) & (points["n_decode"] > 0)
    mixed = _mixed_fit([points[name][together] for name in _AXES], measured[together], heldout)
    skewed = _skewed(folder / tables.folder / "tp1_skew.csv.gz")
    mixed = replace(mixed, coefficients=mixed.coefficients | _ragged(mixed, skewed))
    heldout["ragged bf16"] = _ragged_errors(skewed, tables.ragged_ratio, decode, mixed, device)
    dense = _curves(folder / tables.folder / "tp1_dense.csv", "tokens")
    doubled = (dense[_TWICE][0], [round(2 * us, 3) for us in dense[_TWICE][1]])
    files = ("tp1_attention.csv.gz", "tp1_dense.csv", "tp1_per_sequence.csv", "tp1_skew.csv.gz")
    return Profile(
        name=tables.profile,
        device=tables.device,
        engine="vLLM 0.19.0 (FlashAttention 2, one call for prefill and decode), eager",
        measured=tables.measured,
        model=_MODEL,
        sources=[_source(folder, f"{tables.folder}/{file}") for file in files],
        notes=list(_NOTES),
        block_tokens_measured=16,
        block_size_varies=False,
        fused_mixed=True,
        ragged_ratio=tables.ragged_ratio,
        host_overhead_s=host.OVERHEAD_S,
        host_floor_s=host.FLOOR_S,
        host_floor_sequence_s=host.FLOOR_SEQUENCE_S,
        host_source=host.SOURCE,
        decode={"bf16": [decode]},
        prefill=[prefill],
        mixed=mixed,
        gemm={},
        layer_us={op: doubled if op == _TWICE else dense[op] for op in _LAYER},
        once_us={op: dense[op] for op in _ONCE},
        sampled_us=_curves(folder / tables.folder / "tp1_per_sequence.csv", "sequences"),
        pointwise={},
        all_reduce_us={},
        heldout=heldout,
    )


_NOTES = (
    "For Llama-3.1-8B in bf16 on one device only: layers were measured as a whole.",
    "No table varies the block size: step times do not depend on it.",
    "Decodes of a measured step have equal contexts; a ragged batch is priced at its mean context "
    "plus ragged_ratio of the way to its longest, and together with a prefill by what the table of "
    "ragged batches says its longest decode adds (ragged_us).",
    "Kernels were timed one after another; in serving, prefills come between decodes, where a card "
    "may hold another clock.",
    "A step with several chunks is priced as its longest chunk together with the decodes, plus "
    "what each other chunk takes alone without the launch.",
)


def _source(folder: Path, file: str) -> Source:
    with (folder / file).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Source(file=file, sha256=digest, project=_PROJECT, licence=_LICENCE)


def _read(path: Path, without: str = "") -> dict[str, Array]:
    table = pyarrow.csv.read_csv(path)
    if without:
        table = table.drop_columns([without])
    return {name: table[name].to_numpy().astype(np.float64) for name in table.column_names}


def _curves(path: Path, axis: str) -> dict[str, Curve]:
    table = pyarrow.csv.read_csv(path)
    curves: dict[str, tuple[list[float], list[float]]] = {}
    columns = (table[name].to_pylist() for name in ("layer", axis, "time_us"))
    for layer, at, us in zip(*columns, strict=True):
        x, y = curves.setdefault(layer, ([], []))
        x.append(at)
        y.append(round(us, 3))
    return curves


def _decode_fit(
    points: dict[str, Array],
    measured: Array,
    alone: NDArray[np.bool_],
    device: Device,
    heldout: dict[str, dict[str, list[float]]],
) -> Fit:
    batch, context = points["n_decode"][alone], points["kv_decode"][alone]
    formula = kernels.decode(_SHAPE, "bf16", device.read_bytes_per_s)
    report = Report()
    named = splits({"batch": batch, "context": context}, batch * context)
    report.add(formula, [batch, context], measured[alone], named)
    heldout["decode bf16"] = report.summary()
    return formula.fit([batch, context], measured[alone], _SHAPE)


def _prefill_fit(
    points: dict[str, Array],
    measured: Array,
    device: Device,
    heldout: dict[str, dict[str, list[float]]],
) -> Fit:
    alone = points["n_decode"] == 0
    new, cached = points["prefill_chunk"][alone], points["kv_prefill"][alone]
    formula = kernels.prefill_cached(_SHAPE, device.bf16_flop_per_s)
    report = Report()
    named = splits({"tokens": new, "cached": cached}, new * (cached + 0.5 * new))
    report.add(formula, [new, cached], measured[alone], named)
    heldout["prefill bf16"] = report.summary()
    return formula.fit([new, cached], measured[alone], _SHAPE)


def _mixed_fit(
    columns: list[Array], measured: Array, heldout: dict[str, dict[str, list[float]]]
) -> Fit:
    """Return the fit on the grid of powers of two; other points, where there are any, test it."""
    on_grid = np.logical_and.reduce([_power_of_two(column) for column in columns])
    grid = [column[on_grid] for column in columns]
    formula = kernels.mixed()
    report = Report()
    named = {
        f"alternate {name}": every_other(column)
        for name, column in zip(("tokens", "cached", "batch", "context"), grid, strict=True)
    }
    report.add(formula, grid, measured[on_grid], named)
    fit = formula.fit(grid, measured[on_grid], _SHAPE)
    if not on_grid.all():
        predicted = formula.predict(fit, [column[~on_grid] for column in columns])
        report.note("points off the grid", np.abs(predicted / measured[~on_grid] - 1.0))
    heldout["mixed bf16"] = report.summary()
    return fit


def _skewed(path: Path) -> dict[str, Array]:
    """Return the table of ragged batches that are more than a launch, times of one iteration."""
    rows = _read(path, without="regime")
    large = rows["n"] * rows["kv_mean"] > _LEAST_SKEWED_TOKENS
    kept = {name: column[large] for name, column in rows.items()}
    for name in ("t_mean_us", "t_skew_us"):
        kept[name] = kept[name] / _SKEW_ITERATIONS
    return kept


def _ragged(together: Fit, rows: dict[str, Array]) -> dict[str, float]:
    """Return what the longest decode adds to a call with a prefill, from half of the batches."""
    used = (rows["pc"] > 0) & ~every_other(rows["n"])
    columns = [rows[name][used] for name in ("pc", "kp", "n", "kv_mean", "kv_big")]
    ratio = rows["t_skew_us"][used] / rows["t_mean_us"][used]
    return kernels.mixed_ragged(together.coefficients).coefficients(columns, ratio)


def _ragged_errors(
    rows: dict[str, Array], ratio: float, decode: Fit, together: Fit, device: Device
) -> dict[str, list[float]]:
    """Return how well ragged batches are priced that no fit has seen."""
    report = Report()
    alone = rows["pc"] == 0
    context = rows["kv_mean"] + ratio * (rows["kv_big"] - rows["kv_mean"])
    columns = [rows["n"][alone], context[alone]]
    predicted = kernels.decode(_SHAPE, "bf16", device.read_bytes_per_s).predict(decode, columns)
    report.note("decodes alone", np.abs(predicted / rows["t_skew_us"][alone] - 1.0))
    both = (rows["pc"] > 0) & every_other(rows["n"])
    columns = [rows[name][both] for name in ("pc", "kp", "n", "kv_mean", "kv_big")]
    predicted = kernels.mixed().predict(together, columns[:-1])
    predicted = predicted * mixed_ragged_ratio(together.coefficients, *columns)
    report.note("with a prefill", np.abs(predicted / rows["t_skew_us"][both] - 1.0))
    return report.summary()


def _power_of_two(values: Array) -> NDArray[np.bool_]:
    whole = values.astype(np.int64)
    return np.asarray((whole & (whole - 1)) == 0)
