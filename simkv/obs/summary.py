"""One summary of a run, from its recorder."""

from typing import Any

import pyarrow.compute as pc

from simkv.obs.explain import part_metrics
from simkv.obs.metrics import memory_metrics, overload, request_metrics
from simkv.obs.recorder import Recorder, Tables
from simkv.obs.schema import SERIES


def summarize(
    recorder: Recorder,
    tables: Tables,
    *,
    ttft_s: float,
    tpot_s: float,
    warmup_s: float,
    end_s: float,
) -> dict[str, Any]:
    """Return the metrics of a run, nested by name (docs/metrics.md).

    Parameters
    ----------
    ttft_s, tpot_s
        The objectives of goodput.
    warmup_s
        Requests that arrive before count in nothing but the judgement of overload, nor does memory.
    end_s
        When the run ended.
    """
    requests = tables.requests
    if warmup_s:
        requests = requests.filter(pc.greater_equal(requests["arrival_s"], warmup_s))
    span_s = max(0.0, end_s - warmup_s)
    means = recorder.means()
    num_steps, busy_s = recorder.num_steps, sum(recorder.busy_s)
    return {
        **request_metrics(
            requests,
            ttft_s=ttft_s,
            tpot_s=tpot_s,
            span_s=span_s,
            overload_reason=overload(tables.requests),
        ),
        **part_metrics(requests),
        "makespan_s": end_s,
        "num_steps": num_steps,
        "mean_step_s": busy_s / num_steps if num_steps else None,
        "busy_ratio": busy_s / (end_s * len(recorder.busy_s)) if end_s else None,
        **memory_metrics(dict(zip(SERIES, means.tolist(), strict=True))),
    }
