"""What the slots of the pool do under each layout, and what batch and throughput come of it."""

import sys

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import caption, main, over_seeds

ACCOUNTS = {
    "memory_tokens_ratio": "live tokens",
    "memory_tail_ratio": "tail of last blocks",
    "memory_reserved_ratio": "reserved, used later",
    "memory_over_reserved_ratio": "reserved, never used",
    "memory_unreachable_ratio": "free, in no usable hole",
    "memory_free_ratio": "free",
}
BARS = (
    ("mean_running", "Batch: requests running", "requests"),
    ("output_tokens_per_s", "Throughput", "output tokens/s"),
    ("goodput_requests_per_s", "Goodput", "requests/s within objectives"),
)


def shares(table: pd.DataFrame, ax: Axes) -> None:
    """Draw the accounts of the pool as shares that add up, means over seeds."""
    means = table.groupby("layout", sort=False)[list(ACCOUNTS)].mean() * 100
    colors = [*sns.color_palette("colorblind", len(ACCOUNTS) - 1), "0.9"]
    means.rename(columns=ACCOUNTS).plot.bar(stacked=True, ax=ax, rot=0, width=0.6, color=colors)
    ax.set(title="What the pool's slots do", xlabel="", ylabel="% of the pool, mean over time")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1, 0.5))


def bars(table: pd.DataFrame, ax: Axes, metric: str, title: str, unit: str) -> None:
    """Draw a metric for each layout, with its interval over seeds."""
    sns.barplot(table, x="layout", y=metric, errorbar=over_seeds, width=0.6, color="C0", ax=ax)
    ax.set(title=title, xlabel="", ylabel=unit)


def named(table: pd.DataFrame) -> pd.DataFrame:
    """Break the layouts' names into lines, and say which were overloaded at any seed."""
    overloaded = table.groupby("layout")["overloaded"].transform("any")
    names = table["layout"].str.replace("-", "\n") + overloaded.map(
        {True: "\noverloaded", False: ""}
    )
    return table.assign(layout=names)


def draw(table: pd.DataFrame) -> Figure:
    """Draw the accounts and what follows from them."""
    figure, axes = plt.subplots(
        1, 4, figsize=(15, 4), layout="constrained", width_ratios=(3, 2, 2, 2)
    )
    table = named(table)
    shares(table, axes[0])
    for ax, (metric, title, unit) in zip(axes[1:], BARS, strict=True):
        bars(table, ax, metric, title, unit)
    figure.supxlabel(caption(table), fontsize="medium")
    return figure


if __name__ == "__main__":
    main(draw, "layout", sys.argv[1:])
