"""Profiles against what others measured on the same cards, with engines that they do not hold."""

import csv
import gzip
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from simkv.cost.attention import Attention
from simkv.cost.build import build_cost
from simkv.cost.catalog import find_device, find_model
from simkv.cost.choice import MeasuredTable
from simkv.cost.profile import find_profile
from simkv.sched.work import StepWork


def test_a100_attention_against_flashinfer_on_another_a100(shared: Callable[..., Path]) -> None:
    path = shared("data", "vidur", "a100_llama3_8b_tp1_attention_sampled.csv")
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    attention = Attention(
        find_profile("a100-vllm-0.14"),
        find_model("llama-3.1-8b"),
        tensor_parallel=1,
        kv_dtype="bf16",
    )
    errors: dict[str, list[float]] = {"decode": [], "long chunk": [], "short chunk": []}
    for row in rows:
        batch, new, cached = (
            np.array([float(row[name])])
            for name in ("batch_size", "prefill_chunk_size", "kv_cache_size")
        )
        if row["attn_decode_median_ms"] and not new[0]:
            found = attention.decode_us(batch, cached + 1)[0]
            errors["decode"].append(found / (1000 * float(row["attn_decode_median_ms"])) - 1)
        elif row["attn_prefill_median_ms"] and cached[0] > 0:
            found = attention.prefill_us(np.array([1.0]), new, cached)[0]
            kind = "long chunk" if new[0] > 2000 else "short chunk"
            errors[kind].append(found / (1000 * float(row["attn_prefill_median_ms"])) - 1)
    assert abs(median(errors["decode"])) < 0.1
    # Nothing was measured over cached tokens. Long chunks fill the card and come out right; short
    # ones do not fill it, which their FLOPs alone do not show: they come out too fast.
    assert abs(median(errors["long chunk"])) < 0.05
    assert -0.35 < median(errors["short chunk"]) < -0.1


def test_h200_steps_enclose_the_token_times_of_published_vllm_runs(
    shared: Callable[..., Path],
) -> None:
    path = shared("data", "kernels", "aiconfigurator-0.12.0", "silicon_sample_h100_h200.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["system"], row["backend"], row["model_path"])
            == ("h200_sxm", "vllm", "meta-llama/Llama-3.1-70B")
        ]
    assert len(rows) == 60
    alone, together = [], []
    for ranks in (1, 2, 4, 8):
        cost = build_cost(
            MeasuredTable(),
            find_model("llama-3.1-70b"),
            find_device("h200"),
            tensor_parallel=ranks,
            weight_dtype="fp8",
            kv_dtype="bf16",
            max_num_batched_tokens=8192,
            max_num_seqs=256,
            max_model_len=16384,
        )
        for row in rows:
            if int(float(row["tp_size"])) != ranks:
                continue
            batch, prompt, output = (int(float(row[k])) for k in ("batch_size", "isl", "osl"))
            context, tpot_s = prompt + output // 2, float(row["silicon_tpot_ms"]) / 1000
            step = StepWork([], batch, batch * context, context, batch)
            alone.append(cost.step_time_s(step) / tpot_s)
            # In a steady state every step also brings its share of the prompts.
            step.prefills.append((max(1, batch * prompt // output), prompt // 2))
            together.append(cost.step_time_s(step) / tpot_s)
    assert 0.85 < median(alone) < 1.0
    assert 1.0 < median(together) < 1.2
