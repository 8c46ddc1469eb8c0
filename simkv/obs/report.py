"""A run's summary as text for people."""

from typing import Any

from simkv.obs.explain import sentence

_ACCOUNTS = (
    ("tokens", "live tokens"),
    ("tail", "tail of last blocks"),
    ("reserved", "reserved, used later"),
    ("over_reserved", "reserved, never used"),
    ("unreachable", "free, in no usable hole"),
    ("cached", "cached prefixes"),
    ("free", "free"),
)


def render_summary(summary: dict[str, Any]) -> str:
    """Return the summary as lines that a person can read."""
    lines = [
        f"requests    {summary['num_finished']:,} finished of {summary['num_requests']:,}"
        + _counted(summary, "num_rejected", "rejected")
        + _counted(summary, "num_unfinished", "unfinished")
        + _counted(summary, "num_aborted", "given up by their clients"),
        f"time        {summary['makespan_s']:,.1f} s simulated, {summary['num_steps']:,} steps, "
        f"{_percent(summary['busy_ratio'])} busy",
        f"rates       {_number(summary['requests_per_s'])} requests/s, "
        f"{_number(summary['output_tokens_per_s'])} output tokens/s, "
        f"goodput {_number(summary['goodput_requests_per_s'])} requests/s "
        f"({_percent(summary['goodput_ratio'])} meet their objectives)",
    ]
    if summary["overloaded"]:
        lines.append(f"OVERLOADED  {summary['overload_reason']}")
    lines += ["", f"{'latency, s':<24}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}"]
    for name, label in (
        ("ttft_s", "time to first token"),
        ("tpot_s", "time per output token"),
        ("e2e_s", "end to end"),
        ("queue_s", "in the queue"),
    ):
        values = (_number(summary[name][key]) for key in ("mean", "p50", "p90", "p99"))
        lines.append(f"{label:<24}" + "".join(f"{value:>10}" for value in values))
    for label, ratios in (
        ("TTFT", summary["ttft_parts"]),
        ("P99 TTFT", summary["ttft_p99_parts"]),
    ):
        if words := sentence(ratios):
            lines.append(f"{label:<12}{words}")
    memory, sharing = summary["memory"], summary["sharing"]
    lines += ["", f"KV memory, {memory['pool_slots']:,} slots (mean over time)"]
    lines += [
        f"  {label:<26}{_percent(memory[f'{name}_ratio']):>8}"
        for name, label in _ACCOUNTS
        if memory[f"{name}_ratio"]
    ]
    lines += [
        f"waste       {_percent(memory['waste_ratio'])} of what is taken holds no live token",
        f"batch       {_number(summary['mean_running'])} running, "
        f"{_number(summary['mean_waiting'])} waiting on average",
        f"prefix hits {_percent(summary['hit_ratio'])} of {summary['query_tokens']:,} prompt "
        f"tokens; logical/physical tokens {_number(sharing['logical_ratio'])}",
        f"preemptions {summary['num_preemptions']:,}, "
        f"{summary['recomputed_tokens']:,} tokens computed again",
    ]
    return "\n".join(lines)


def _counted(summary: dict[str, Any], key: str, word: str) -> str:
    return f", {summary[key]:,} {word}" if summary[key] else ""


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.1f} %"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
