"""Draws the measured and the predicted distribution of every latency, a row of panels a run."""

import sys
from pathlib import Path

import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from experiments.drawing import save, style

METRICS = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "end to end"}


def draw(requests: pd.DataFrame) -> Figure:
    """Draw cumulative shares of requests, one row of the table each request by each source."""
    runs = requests.run.unique()
    figure, axes = plt.subplots(
        len(runs), len(METRICS), figsize=(9.5, 2.6 * len(runs)), layout="constrained", squeeze=False
    )
    for row, run in zip(axes, runs, strict=True):
        table = requests[requests.run == run].reset_index(drop=True)
        for ax, (metric, label) in zip(row, METRICS.items(), strict=True):
            first = metric == "ttft_s"
            sns.ecdfplot(table.dropna(subset=[metric]), x=metric, hue="by", ax=ax, legend=first)
            if first:
                ax.get_legend().set_title(None)
            ax.set(title=f"{run}: {label}", xlabel="s", ylabel="share of requests")
            ax.set_xlim(left=0.0)
    return figure


def main(arguments: list[str]) -> None:
    """Draw the figure from the folder of the comparison, and say where it is."""
    if len(arguments) != 1:
        raise SystemExit("usage: python -m experiments.fidelity.figure RESULTS")
    results = Path(arguments[0])
    if not (results / "requests.csv").is_file():
        raise SystemExit(f"{results} holds no requests.csv; first run: make fidelity")
    style()
    figure = draw(pd.read_csv(results / "requests.csv"))
    for file in save(figure, results / "figures", "fidelity"):
        print(file)


if __name__ == "__main__":
    main(sys.argv[1:])
