"""Metrics: functions from tables to numbers, as docs/metrics.md defines them."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Floats = npt.NDArray[np.float64]

QUANTILES = (50, 90, 95, 99)

ACCOUNTS = ("tokens", "tail", "reserved", "over_reserved", "unreachable", "cached", "free")
"""The accounts that add up to the pool."""

# An overload is a queue that grows through the time of arrivals, and that at their end holds more
# than this share of all requests. Below so many requests there is no telling.
_BACKLOG_RATIO = 0.05
_GROWTH = 1.5
_FEWEST_REQUESTS = 50


def column(requests: pa.Table, name: str) -> Floats:
    """Return a column of numbers as floats, NaN where it is null."""
    values: Floats = pc.cast(requests[name], pa.float64()).to_numpy(zero_copy_only=False)
    return values


def latencies(requests: pa.Table) -> dict[str, Floats]:
    """Return TTFT, TPOT, end-to-end latency and queueing time of every request, in seconds.

    NaN where a request has none: no token, fewer than two tokens (TPOT), not finished.
    """
    arrival_s, first_s = column(requests, "arrival_s"), column(requests, "first_token_s")
    finish_s, output = column(requests, "finish_s"), column(requests, "output_tokens")
    gaps = np.where(output > 1, output - 1, np.nan)
    return {
        "ttft_s": first_s - arrival_s,
        "tpot_s": (finish_s - first_s) / gaps,
        "e2e_s": finish_s - arrival_s,
        "queue_s": column(requests, "first_scheduled_s") - arrival_s,
    }


def distribution(values: Floats) -> dict[str, float | None]:
    """Return mean, quantiles and maximum of the values that exist; None where none does."""
    known = values[np.isfinite(values)]
    names = ("mean", *(f"p{quantile}" for quantile in QUANTILES), "max")
    if not len(known):
        return dict.fromkeys(names)
    quantiles = np.percentile(known, QUANTILES).tolist()
    return dict(zip(names, (float(known.mean()), *quantiles, float(known.max())), strict=True))


def meets_objectives(requests: pa.Table, ttft_s: float, tpot_s: float) -> npt.NDArray[np.bool_]:
    """Return which requests finished within both objectives.

    A request without a second token has no TPOT to miss.
    """
    times = latencies(requests)
    finished = np.isfinite(times["e2e_s"])
    in_time = ~(times["ttft_s"] > ttft_s) & ~(times["tpot_s"] > tpot_s)
    met: npt.NDArray[np.bool_] = finished & in_time
    return met


def overload(requests: pa.Table) -> str | None:
    """Return in a sentence that the queue grew without bound, or None if it did not.

    The number of requests that have arrived and are not scheduled yet is taken at 64 moments of
    the span of arrivals. It is an overload if its mean grows by half from the second to the last
    quarter, and at the end of arrivals more than 5 % of all requests wait.

    Parameters
    ----------
    requests
        Those of the whole run: a queue does not forget what came in the warm-up. Rejected ones
        never wait, and those whose client gave up in the queue leave it; both are left out.
    """
    gone = pc.is_in(requests["status"].cast(pa.string()), pa.array(["rejected", "aborted"]))
    never_ran = pc.and_(gone, pc.is_null(requests["first_scheduled_s"]))
    requests = requests.filter(pc.invert(never_ran))
    arrival_s = np.sort(column(requests, "arrival_s"))
    arrival_s = arrival_s[np.isfinite(arrival_s)]
    if len(arrival_s) < _FEWEST_REQUESTS or arrival_s[0] == arrival_s[-1]:
        return None
    scheduled_s = np.sort(column(requests, "first_scheduled_s"))
    moments = np.linspace(arrival_s[0], arrival_s[-1], 65)[1:]
    waiting = np.searchsorted(arrival_s, moments, "right") - np.searchsorted(
        scheduled_s[np.isfinite(scheduled_s)], moments, "right"
    )
    second, last = waiting[16:32].mean(), waiting[48:].mean()
    if waiting[-1] <= _BACKLOG_RATIO * len(arrival_s) or last <= _GROWTH * max(second, 1.0):
        return None
    return (
        f"the queue grew from {second:.0f} to {waiting[-1]:.0f} waiting requests while they "
        "arrived, so latencies depend on the length of the trace; lower the rate, add replicas "
        "or memory"
    )


def request_metrics(
    requests: pa.Table,
    *,
    ttft_s: float,
    tpot_s: float,
    span_s: float,
    overload_reason: str | None,
) -> dict[str, Any]:
    """Return the part of a summary that follows from the request table.

    Parameters
    ----------
    requests
        Those that count: the ones that arrived after the warm-up.
    ttft_s, tpot_s
        The objectives of goodput.
    span_s
        Time that rates are taken over.
    overload_reason
        What ``overload`` says of the whole run.
    """
    status = pc.value_counts(requests["status"]).to_pylist()
    counts = {item["values"]: item["counts"] for item in status}
    finished = requests.filter(pc.equal(requests["status"], "finished"))
    rejected = requests.filter(pc.equal(requests["status"], "rejected"))
    reasons = pc.value_counts(rejected["reason"]).to_pylist()
    num_met = int(meets_objectives(requests, ttft_s, tpot_s).sum())
    prompt, hit = column(finished, "prompt_tokens").sum(), column(finished, "hit_tokens").sum()

    def rate(amount: float) -> float | None:
        return float(amount) / span_s if span_s > 0 else None

    return {
        "num_requests": requests.num_rows,
        "num_finished": counts.get("finished", 0),
        "num_rejected": counts.get("rejected", 0),
        "num_unfinished": counts.get("unfinished", 0),
        "num_aborted": counts.get("aborted", 0),
        "rejected": {item["values"]: item["counts"] for item in reasons},
        "overloaded": overload_reason is not None,
        "overload_reason": overload_reason,
        **{name: distribution(values) for name, values in latencies(requests).items()},
        "requests_per_s": rate(finished.num_rows),
        "output_tokens_per_s": rate(column(finished, "output_tokens").sum()),
        "goodput_requests_per_s": rate(num_met),
        "goodput_ratio": num_met / requests.num_rows if requests.num_rows else None,
        "query_tokens": int(prompt),
        "hit_tokens": int(hit),
        "hit_ratio": float(hit / prompt) if prompt else None,
        "num_preemptions": int(column(requests, "num_preemptions").sum()),
        "recomputed_tokens": int(column(requests, "recomputed_tokens").sum()),
    }


def memory_metrics(means: dict[str, float]) -> dict[str, Any]:
    """Return the part of a summary that follows from time-weighted means of the memory accounts.

    Parameters
    ----------
    means
        Slots by account (``simkv.kv.usage``) and lengths of queues, summed over replicas.
    """
    pool = sum(means[name] for name in ACCOUNTS)
    lost = means["tail"] + means["reserved"] + means["over_reserved"] + means["unreachable"]
    taken = means["tokens"] + lost
    shares = {
        f"{name}_ratio": means[name] / pool if pool else None for name in (*ACCOUNTS, "rounding")
    }
    return {
        "mean_running": means["num_running"],
        "mean_waiting": means["num_waiting"],
        "memory": {
            "pool_slots": round(pool),
            **shares,
            "waste_ratio": lost / taken if taken else None,
        },
        "sharing": {
            "logical_ratio": means["logical_tokens"] / means["tokens"] if means["tokens"] else None,
            "blocks_saved": means["blocks_saved"],
        },
    }
