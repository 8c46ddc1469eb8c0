"""What became of requests, measured or simulated: one row each, and the statistics compared."""

import numpy as np
import pandas as pd
import pyarrow as pa

METRICS = ("ttft_s", "tpot_s", "e2e_s")
"""First token after arrival, mean time of a later token, last token after arrival."""

LABELS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end"}
STATISTICS = ("mean", "P50", "P90", "P95", "P99")


def outcome(
    arrival_s: np.ndarray, first_s: np.ndarray, last_s: np.ndarray, output_tokens: np.ndarray
) -> pd.DataFrame:
    """Return the metrics of each request; a single output token has no TPOT."""
    gaps = np.where(output_tokens > 1, output_tokens - 1.0, np.nan)
    return pd.DataFrame(
        {
            "ttft_s": first_s - arrival_s,
            "tpot_s": (last_s - first_s) / gaps,
            "e2e_s": last_s - arrival_s,
        }
    )


def simulated(requests: pa.Table) -> pd.DataFrame:
    """Return the metrics of a simulated run."""
    names = ("arrival_s", "first_token_s", "finish_s", "output_tokens")
    return outcome(*(requests[name].to_numpy() for name in names))


def statistics(metrics: pd.DataFrame) -> pd.Series:
    """Return the 15 statistics, by (metric, statistic); quantiles are interpolated linearly."""
    found = {}
    for metric in METRICS:
        values = metrics[metric].dropna().to_numpy()
        found[metric, "mean"] = values.mean()
        for name in STATISTICS[1:]:
            found[metric, name] = np.quantile(values, int(name[1:]) / 100)
    return pd.Series(found)


def error_percent(predicted: pd.Series, measured: pd.Series) -> pd.Series:
    """Return how far statistics are from the measured ones, in percent of these."""
    return 100.0 * (predicted / measured - 1.0)


def absolute_error_percent(predicted: pd.DataFrame, measured: pd.DataFrame) -> pd.Series:
    """Return the mean absolute error a request, relative to what was measured."""
    return 100.0 * ((predicted - measured).abs() / measured).mean()
