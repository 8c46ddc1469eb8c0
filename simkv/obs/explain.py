"""Why requests took as long as they did: one request's story, and the shares of many."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from simkv.errors import InputError
from simkv.obs.metrics import Floats, column, latencies
from simkv.obs.parts import PARTS, WAITS
from simkv.obs.schema import REQUESTS

LOST = "lost_s"
"""Time between admission and first token that preemptions took: waiting again, computing again."""

TTFT_PARTS = (*WAITS, "prefill_s", LOST)
"""What a TTFT divides into."""

WORDS = {
    "waited_step_s": "waiting for the step under way",
    "waited_preemption_s": "waiting behind a preemption",
    "waited_token_budget_s": "waiting for the token budget",
    "waited_batch_slot_s": "waiting for a batch slot",
    "waited_memory_s": "waiting for KV blocks",
    "prefill_s": "prefill",
    "decode_s": "decode",
    "preempted_s": "preempted",
    "recompute_s": "computing again",
    LOST: "preempted or computing again",
}
"""Each part for people."""

_SUMMED = ("parts", "ttft_parts", "ttft_p99_parts")
_SMALLEST_RATIO = 0.0005  # what is not printed as 0.0 %


def part_metrics(requests: pa.Table) -> dict[str, Any]:
    """Return the part of a summary that says where time went, as docs/metrics.md defines it."""
    ttft_s = latencies(requests)["ttft_s"]
    parts = ttft_parts(requests)
    known = np.isfinite(ttft_s)
    slow = known & (ttft_s >= np.percentile(ttft_s[known], 99)) if known.any() else known
    values = (totals(requests), _ratios(parts, ttft_s, known), _ratios(parts, ttft_s, slow))
    return dict(zip(_SUMMED, values, strict=True))


def totals(requests: pa.Table) -> dict[str, float]:
    """Return the seconds of each part, summed over the requests that finished."""
    finished = requests.filter(pc.equal(requests["status"], "finished"))
    return {name: float(column(finished, name).sum()) for name in PARTS}


def ttft_parts(requests: pa.Table) -> dict[str, Floats]:
    """Return what each TTFT divides into, NaN where there is none, ``[rows]`` each."""
    parts = {name: column(requests, name) for name in (*WAITS, "prefill_s")}
    in_batch_s = column(requests, "first_token_s") - column(requests, "first_scheduled_s")
    # Without a preemption nothing is lost; the difference would be rounding.
    preempted = column(requests, "num_preemptions") > 0
    lost_s = np.where(preempted, in_batch_s - parts["prefill_s"], 0.0)
    return parts | {LOST: np.maximum(lost_s, 0.0)}


def sentence(ratios: dict[str, float | None]) -> str:
    """Return shares as a list in words, the greatest first, empty where there are none."""
    known = [
        (ratio, name)
        for name, ratio in ratios.items()
        if ratio is not None and ratio >= _SMALLEST_RATIO
    ]
    known.sort(key=lambda item: -item[0])
    return ", ".join(
        f"{100 * ratio:.1f} % {WORDS[name.removesuffix('_ratio') + '_s']}" for ratio, name in known
    )


def read_requests(folder: Path) -> pa.Table:
    """Read the request table of a result.

    Raises
    ------
    InputError
        If the folder holds none, or one that an older version wrote.
    """
    path = folder / "requests.parquet"
    if not path.is_file():
        raise InputError(
            f"{folder} holds no requests.parquet, so it is no result of simkv run --out"
        )
    table = pq.read_table(path)
    missing = [name for name in REQUESTS.names if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} has no {missing[0]}: another version of simkv wrote it; run it again"
        )
    return table


def read_parts(folder: Path) -> dict[str, Any]:
    """Return the part of a result's summary that says where time went.

    Raises
    ------
    InputError
        If the folder holds no summary, or one without such a part.
    """
    path = folder / "summary.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no summary.json, so it is no result of simkv run --out")
    summary = json.loads(path.read_text(encoding="utf-8"))["summary"]
    if _SUMMED[0] not in summary:
        raise InputError(
            f"{path} has no {_SUMMED[0]}: another version of simkv wrote it; run it again"
        )
    return {name: summary[name] for name in _SUMMED}


def story(requests: pa.Table, request: int) -> dict[str, Any]:
    """Return what a result knows of one request: its row, its latencies and their ranks.

    A rank is the share of requests that were faster.

    Raises
    ------
    InputError
        If there is no such request.
    """
    found = np.flatnonzero(column(requests, "request") == request)
    if not len(found):
        raise InputError(
            f"there is no request {request}; this result has 0 to {requests.num_rows - 1:,}"
        )
    row = int(found[0])
    told: dict[str, Any] = requests.slice(row, 1).to_pylist()[0]
    for name, values in latencies(requests).items():
        known = values[np.isfinite(values)]
        value = float(values[row]) if np.isfinite(values[row]) else None
        told[name] = value
        told[name.removesuffix("_s") + "_rank_ratio"] = (
            None if value is None else float((known < value).mean())
        )
    return told


def render_story(told: dict[str, Any]) -> str:
    """Return a request's story as lines that a person can read."""
    of = f" (session {told['session']}, turn {told['turn']})" if told["session"] >= 0 else ""
    lines = [
        f"request {told['request']}{of}: "
        f"{told['prompt_tokens']:,} prompt tokens, {told['output_tokens']:,} output tokens"
    ]
    if told["status"] == "rejected":
        return "\n".join([*lines, f"rejected when it arrived: {told['reason']}"])
    if told["arrival_s"] is None:
        return "\n".join([*lines, "did not arrive before the run ended"])
    if told["replica"] >= 0:
        lines[0] += f", on replica {told['replica']}"
    lines += [
        f"{label:<15}{told[name]:>14,.4f} s{_after(told, name)}"
        if told[name] is not None
        else f"{label:<15}{'-':>14}"
        for name, label in (
            ("arrival_s", "arrived"),
            ("first_scheduled_s", "admitted"),
            ("first_token_s", "first token"),
            ("finish_s", "last token"),
        )
    ]
    if told["finish_s"] is None:
        lines.append("unfinished when the run ended")
    known = [(told[name], name) for name in PARTS if told[name]]
    if known:
        lines += ["", f"{'where its time went':<48}{'s':>12}{'share':>9}"]
    whole_s = sum(seconds for seconds, _ in known)
    for seconds, name in known:
        what = f"{WORDS[name]}{_count(told, name)}"
        lines.append(f"  {what:<46}{seconds:>12,.4f}{100 * seconds / whole_s:>7.1f} %")
    return "\n".join(lines)


def render_parts(summary: dict[str, Any]) -> str:
    """Return where the time of all requests went, and of the slowest first tokens."""
    whole_s = sum(summary["parts"].values())
    lines = [f"{'':<32}{'end to end':>12}{'TTFT':>12}{'P99 TTFT':>12}"]
    for name in (*PARTS, LOST):
        ratio = summary["parts"].get(name, 0.0) / whole_s if whole_s else None
        key = f"{name.removesuffix('_s')}_ratio"
        ratios = (
            ratio if name in summary["parts"] else None,
            summary["ttft_parts"].get(key),
            summary["ttft_p99_parts"].get(key),
        )
        cells = ("-" if one is None else f"{100 * one:.1f} %" for one in ratios)
        lines.append(f"{WORDS[name]:<32}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def _ratios(parts: dict[str, Floats], whole_s: Floats, chosen: Any) -> dict[str, float | None]:
    """Return the share of each part in the chosen requests' time, all together."""
    total_s = float(whole_s[chosen].sum())
    return {
        f"{name.removesuffix('_s')}_ratio": float(seconds[chosen].sum()) / total_s
        if total_s
        else None
        for name, seconds in parts.items()
    }


def _after(told: dict[str, Any], name: str) -> str:
    """Return what a moment means for a latency, with the latency's rank."""
    latency, label = {
        "first_scheduled_s": ("queue_s", "in the queue"),
        "first_token_s": ("ttft_s", "TTFT"),
        "finish_s": ("e2e_s", "end to end"),
    }.get(name, ("", ""))
    if told.get(latency) is None:
        return ""
    rank_ratio = told[latency.removesuffix("_s") + "_rank_ratio"]
    return f"   {told[latency]:,.4f} s {label}, {100 * rank_ratio:.1f} % of requests were faster"


def _count(told: dict[str, Any], name: str) -> str:
    if name == "preempted_s":
        return f", {told['num_preemptions']} times" if told["num_preemptions"] > 1 else ", once"
    if name == "recompute_s":
        return f" ({told['recomputed_tokens']:,} tokens)"
    if name == "prefill_s" and told["hit_tokens"]:
        return f" ({told['hit_tokens']:,} tokens were cached)"
    return ""
