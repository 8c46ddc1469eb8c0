"""Profiles from the kernel tables of NVIDIA's aiconfigurator (Apache-2.0).

Attention and matrix products of vLLM on one GPU, uniform batches, KV block 64, nothing cached
before a prefill. Norms, activations and sampling are not in these tables: see ``pointwise``.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from simkv.cost.catalog import find_device
from simkv.cost.geometry import Device, Dtype
from simkv.cost.profile import Curve, Fit, Profile, Source
from simkv.fit import host, kernels
from simkv.fit.heldout import Report, splits

Array = NDArray[np.float64]

_PROJECT = "ai-dynamo/aiconfigurator, PyPI aiconfigurator-core 0.12.0"
_LICENCE = "Apache-2.0"
_US_PER_MS = 1000.0

# Shapes whose fits are also tried on points left out: one to eight KV heads, groups of 1 to 8.
_TRIED = ((8, 1, 128), (8, 8, 128), (16, 8, 128), (32, 4, 128), (32, 8, 128), (40, 8, 128),
          (64, 8, 128))  # fmt: skip

# Rows of a matrix product whose residuals are kept: powers of two, the step to one more row than
# a tile, and halves between. The others test the interpolation.
_KEPT_ROWS = (1, 2, 4, 8, 16, 17, 32, 33, 48, 64, 65, 80, 96, 128, 129, 160, 192, 193, 256, 257,
              384, 512, 513, 768, 1024, 1025, 1536, 2048, 2049, 3072, 4096, 4097, 8192, 16384,
              32768)  # fmt: skip

# Narrower matrices belong to no model here and are bound by the launch alone.
_LEAST_WIDTH = 512

# A norm, a rotation or an activation takes 1.9 to 2.7 us at one token (layernorm, rotary_emb and
# act_fn of the LLMServingSim tables of two cards); reading at 0.8 of the datasheet is assumed.
_POINTWISE_KERNEL_US = 2.2
_POINTWISE_READ_RATIO = 0.8

# t_mean + a (t_max - t_mean) with a of 0.03 to 0.04 describes ragged batches (kernel tables of
# LLMServingSim with skewed lengths).
RAGGED_RATIO = 0.035


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """Where the tables of one system lie, relative to the folder of kernel tables."""

    profile: str
    device: str
    engine: str
    measured: str
    decode: dict[Dtype, str]
    prefill: str
    gemm: dict[Dtype, str]
    nccl: str
    custom_all_reduce: str


_AIC = "aiconfigurator-0.12.0"

H200 = Tables(
    profile="h200-vllm-0.24",
    device="h200",
    engine="vLLM 0.24.0 (FlashAttention 3), NCCL 2.29.2",
    measured="published 2026-08-21, day of measurement not recorded",
    decode={
        "bf16": f"{_AIC}/h200_sxm/attention/vllm/0.24.0/generation_attention_perf.parquet",
        "fp8": f"{_AIC}/h200_sxm/attention/vllm/0.24.0/generation_attention_perf.parquet",
    },
    prefill=f"{_AIC}/h200_sxm/attention/vllm/0.24.0/context_attention_perf.parquet",
    gemm={
        "bf16": f"{_AIC}/h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet",
        "fp8": f"{_AIC}/h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet",
    },
    nccl=f"{_AIC}/h200_sxm/comm/nccl/2.29.2/nccl_perf.parquet",
    custom_all_reduce=f"{_AIC}/h200_sxm/comm/vllm/0.24.0/custom_allreduce_perf.parquet",
)

A100 = Tables(
    profile="a100-vllm-0.14",
    device="a100-80gb",
    engine="vLLM 0.14.0 (FlashAttention 2), NCCL 2.27.3",
    measured="published 2026-08-21, day of measurement not recorded",
    decode={"bf16": f"{_AIC}/a100_sxm/attention/vllm/0.14.0/generation_attention_perf.parquet"},
    prefill=f"{_AIC}/a100_sxm/attention/vllm/0.14.0/context_attention_perf.parquet",
    gemm={"bf16": f"{_AIC}/a100_sxm/gemm/vllm/0.14.0/gemm_perf.parquet"},
    nccl=f"{_AIC}/a100_sxm/comm/nccl/2.27.3/nccl_perf.parquet",
    custom_all_reduce=f"{_AIC}/a100_sxm/comm/vllm/0.14.0/custom_allreduce_perf.parquet",
)


def make(tables: Tables, folder: Path) -> Profile:
    """Return the profile of one system from the folder that holds the kernel tables."""
    device = find_device(tables.device)
    heldout: dict[str, dict[str, list[float]]] = {}
    decode = {}
    for dtype, file in tables.decode.items():
        report = Report()
        decode[dtype] = _decode_fits(folder / file, dtype, device, report)
        heldout[f"decode {dtype}"] = report.summary()
    report = Report()
    prefill = _prefill_fits(folder / tables.prefill, device, report)
    heldout["prefill bf16"] = report.summary()
    gemm = {}
    for dtype, file in tables.gemm.items():
        report = Report()
        gemm[dtype] = _gemm_fit(folder / file, dtype, device, report)
        heldout[f"gemm {dtype}"] = report.summary()
    files = [*tables.decode.values(), tables.prefill, *tables.gemm.values(), tables.nccl,
             tables.custom_all_reduce]  # fmt: skip
    return Profile(
        name=tables.profile,
        device=tables.device,
        engine=tables.engine,
        measured=tables.measured,
        model=None,
        sources=[_source(folder, file) for file in dict.fromkeys(files)],
        notes=list(_NOTES),
        block_tokens_measured=64,
        block_size_varies=False,
        fused_mixed=False,
        ragged_ratio=RAGGED_RATIO,
        host_overhead_s=host.OVERHEAD_S,
        host_floor_s=host.FLOOR_S,
        host_floor_sequence_s=host.FLOOR_SEQUENCE_S,
        host_source=host.SOURCE,
        decode=decode,
        prefill=prefill,
        mixed=None,
        gemm=gemm,
        layer_us={},
        once_us={},
        sampled_us={},
        pointwise={
            "kernel_us": _POINTWISE_KERNEL_US,
            "read_gb_per_s": round(_POINTWISE_READ_RATIO * device.read_bytes_per_s / 1e9, 1),
        },
        all_reduce_us=_all_reduce(folder / tables.nccl, folder / tables.custom_all_reduce),
        heldout=heldout,
    )


_NOTES = (
    "No table varies the block size: step times do not depend on it.",
    "Lengths in a measured batch are equal; a ragged batch is priced at its mean context plus "
    "ragged_ratio of the way to its longest.",
    "Prefill was measured with nothing cached; a chunk over cached tokens is extrapolated by its "
    "FLOPs, and takes at least what one decode over the same context does. Against FlashInfer's "
    "times on an A100 (Vidur's profiles) that is within 5 % above 2,000 new tokens and about 25 % "
    "too fast at 512.",
    "A step with prefills and decodes was not measured: the two are added. Where it was measured "
    "(FlashAttention 2 on two other cards) adding missed the attention time by 24 to 34 % in the "
    "median, mostly too low.",
    "Norms, rotations, activations and sampling are a launch and their bytes, not measurements.",
)


def _source(folder: Path, file: str) -> Source:
    with (folder / file).open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return Source(file=file, sha256=digest, project=_PROJECT, licence=_LICENCE)


def _read(path: Path, columns: list[str], **equal: str) -> dict[str, Array]:
    """Return columns of a Parquet table as floats, the rows where others equal given words."""
    table = pyarrow.parquet.read_table(path)
    for column, value in equal.items():
        table = table.filter(pc.equal(table[column], value))
    if "window_size" in table.column_names:
        table = table.filter(pc.equal(table["window_size"], 0))
    return {name: table[name].to_numpy().astype(np.float64) for name in columns}


def _shapes(rows: dict[str, Array]) -> list[tuple[int, int, int]]:
    keys = zip(rows["num_heads"], rows["num_key_value_heads"], rows["head_dim"], strict=True)
    return sorted({(int(h), int(g), int(d)) for h, g, d in keys if d in (64, 128)})


def _of_shape(rows: dict[str, Array], shape: tuple[int, int, int]) -> NDArray[np.bool_]:
    heads, kv_heads, dim = shape
    return np.asarray(
        (rows["num_heads"] == heads)
        & (rows["num_key_value_heads"] == kv_heads)
        & (rows["head_dim"] == dim)
    )


_ATTENTION = ["batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "step",
              "latency"]  # fmt: skip


def _decode_fits(path: Path, dtype: Dtype, device: Device, report: Report) -> list[Fit]:
    rows = _read(path, _ATTENTION, kv_cache_dtype={"bf16": "bfloat16", "fp8": "fp8"}[dtype])
    fits = []
    for shape in _shapes(rows):
        mine = _of_shape(rows, shape)
        batch = rows["batch_size"][mine]
        context = rows["step"][mine] + 1.0  # the step's own token is attended to as well
        measured = rows["latency"][mine] * _US_PER_MS
        formula = kernels.decode(shape, dtype, device.read_bytes_per_s)
        fits.append(formula.fit([batch, context], measured, shape))
        if shape in _TRIED:
            named = splits({"batch": batch, "context": context}, batch * context)
            report.add(formula, [batch, context], measured, named)
    return fits


def _prefill_fits(path: Path, device: Device, report: Report) -> list[Fit]:
    rows = _read(path, _ATTENTION, kv_cache_dtype="bfloat16")
    fits = []
    for shape in _shapes(rows):
        mine = _of_shape(rows, shape)
        batch, new = rows["batch_size"][mine], rows["isl"][mine]
        measured = rows["latency"][mine] * _US_PER_MS
        formula = kernels.prefill(shape, device.bf16_flop_per_s)
        fits.append(formula.fit([batch, new], measured, shape))
        if shape in _TRIED:
            named = splits({"batch": batch, "tokens": new}, batch * new * new)
            report.add(formula, [batch, new], measured, named)
    return fits


def _gemm_fit(path: Path, dtype: Dtype, device: Device, report: Report) -> Fit:
    rows = _read(path, ["m", "n", "k", "latency"],
                 gemm_dtype={"bf16": "bfloat16", "fp8": "fp8"}[dtype])  # fmt: skip
    wide = (rows["n"] >= _LEAST_WIDTH) & (rows["k"] >= _LEAST_WIDTH)
    columns = [rows[name][wide] for name in ("m", "n", "k")]
    measured = rows["latency"][wide] * _US_PER_MS
    formula = kernels.gemm(dtype, device.flop_per_s(dtype), device.read_bytes_per_s)
    kept = np.isin(columns[0], _KEPT_ROWS)
    fit = formula.fit([column[kept] for column in columns], measured[kept])
    if not kept.all():
        predicted = formula.predict(fit, [column[~kept] for column in columns])
        report.note("rows not kept", np.abs(predicted / measured[~kept] - 1.0))
    m, n, _ = columns
    named = splits({"rows": m, "width": n}, m)
    del named["quarter of the grid"]
    report.add(formula, columns, measured, named)
    return fit


def _all_reduce(nccl: Path, custom: Path) -> dict[int, Curve]:
    """Return time over bytes: the faster of NCCL and vLLM's own kernel, as vLLM chooses.

    ``message_size`` counts 16-bit elements.
    """
    library = _read(nccl, ["num_gpus", "message_size", "latency"], op_name="all_reduce",
                    nccl_dtype="half")  # fmt: skip
    own = _read(custom, ["num_gpus", "message_size", "latency"], backend="vllm_graph")
    curves: dict[int, Curve] = {}
    for ranks in np.unique(library["num_gpus"]):
        best: dict[float, float] = {}
        for rows in (library, own):
            mine = rows["num_gpus"] == ranks
            sizes = rows["message_size"][mine] * 2.0
            for size, ms in zip(sizes.tolist(), rows["latency"][mine].tolist(), strict=True):
                best[size] = min(best.get(size, ms), ms)
        ordered = sorted(best.items())
        curves[int(ranks)] = (
            [size for size, _ in ordered],
            [round(ms * _US_PER_MS, 2) for _, ms in ordered],
        )
    return curves
