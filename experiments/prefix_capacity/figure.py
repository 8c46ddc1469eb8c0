"""Capacity of the KV pool against prefix hits, and what the hits do to latency."""

import sys

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import caption, lines, main

PANELS = (
    ("hit_ratio", "Prefix hits: prompt tokens found in the cache", "%", 100.0),
    ("ttft_p99_s", "Time to first token, 99th percentile", "s", 1.0),
    ("memory_cached_ratio", "Pool that holds idle cached prefixes", "%", 100.0),
)


def panel(table: pd.DataFrame, ax: Axes, metric: str, title: str, unit: str, scale: float) -> None:
    """Draw one metric over the pool's capacity, one line a trace."""
    lines(
        table,
        ax,
        x="capacity",
        y=metric,
        by="trace",
        title=title,
        label=unit,
        scale=scale,
    )
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.set_xlabel("KV pool, slots / 1,024")


def draw(table: pd.DataFrame) -> Figure:
    """Draw every panel; points are means over seeds, bands their 95 % intervals."""
    shown = table.assign(capacity=table["kv.num_slots"] / 1024)
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for ax, (metric, title, unit, scale) in zip(axes.flat, PANELS, strict=True):
        panel(shown, ax, metric, title, unit, scale)
        ax.get_legend().remove()
    handles, labels = axes.flat[0].get_legend_handles_labels()
    title = f"trace ({caption(table)})"
    figure.legend(handles, labels, title=title, loc="outside lower center", ncols=2)
    return figure


if __name__ == "__main__":
    main(draw, "prefix_capacity", sys.argv[1:])
