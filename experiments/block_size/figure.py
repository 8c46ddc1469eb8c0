"""Block size against memory, hits, step time, throughput and latency."""

import sys

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import caption, lines, main

# Metric, its title, the unit shown, and the factor to it.
PANELS = (
    ("memory_waste_ratio", "Waste: taken slots without a live token", "%", 100.0),
    ("hit_ratio", "Prefix hits: prompt tokens found in the cache", "%", 100.0),
    ("mean_step_s", "Step time (no measurement varies the block size)", "ms", 1000.0),
    ("output_tokens_per_s", "Throughput", "output tokens/s", 1.0),
    ("ttft_p99_s", "Time to first token, 99th percentile", "s", 1.0),
    ("tpot_mean_s", "Time per output token, mean", "ms", 1000.0),
)


def panel(table: pd.DataFrame, ax: Axes, metric: str, title: str, unit: str, scale: float) -> None:
    """Draw one metric over the block size, one line a sharing policy."""
    lines(
        table,
        ax,
        x="kv.block_tokens",
        y=metric,
        by="kv.sharing.kind",
        title=title,
        label=unit,
        scale=scale,
    )
    ax.set_xlabel("block size, tokens")


def draw(table: pd.DataFrame) -> Figure:
    """Draw every panel; points are means over seeds, bands their 95 % intervals."""
    figure, axes = plt.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for ax, (metric, title, unit, scale) in zip(axes.flat, PANELS, strict=True):
        panel(table, ax, metric, title, unit, scale)
        ax.get_legend().remove()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    title = f"prefix sharing ({caption(table)})"
    figure.legend(handles, labels, title=title, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    main(draw, "block_size", sys.argv[1:])
