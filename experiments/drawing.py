"""What figures of all experiments have in common: their look, intervals over seeds, files.

A figure is a function ``(table, ax) -> None``; tables come from a sweep and nothing is run here.
"""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from simkv.obs.stats import LEVEL_RATIO, estimate

# Text in SVG stays text, and the same figure gives the same bytes.
mpl.use("agg")
mpl.rcParams["svg.fonttype"] = "none"
mpl.rcParams["svg.hashsalt"] = "simkv"


def style() -> None:
    """Set the look of all figures."""
    sns.set_theme(context="paper", style="whitegrid", palette="colorblind")


def load_cells(results: Path) -> pd.DataFrame:
    """Return the cell table of a sweep, one row an arm and seed."""
    return pd.read_parquet(results / "cells.parquet")


def over_seeds(values: "pd.Series[float]") -> tuple[float, float]:
    """Return the interval of a mean over seeds, as the ranking has it; a point if there is none."""
    found = estimate(values.to_list())
    if found.interval is None:
        return found.mean, found.mean
    return found.interval.low, found.interval.high


def caption(table: pd.DataFrame) -> str:
    """Say what the points and intervals of a figure are."""
    return f"means over {table['seed'].nunique()} seeds, {100 * LEVEL_RATIO:g} % intervals"


def lines(
    table: pd.DataFrame,
    ax: Axes,
    *,
    x: str,
    y: str,
    by: str,
    title: str,
    label: str,
    scale: float = 1.0,
) -> None:
    """Draw means over seeds with their intervals as lines over a logarithmic axis.

    Parameters
    ----------
    table
        Cells.
    x, y, by
        Columns: the axis, the metric, what tells lines apart.
    title, label
        What is shown, and its unit.
    scale
        What the metric is multiplied by for display.
    """
    shown = table.assign(**{y: table[y] * scale})
    sns.lineplot(
        shown, x=x, y=y, hue=by, style=by, markers=True, dashes=False, errorbar=over_seeds, ax=ax
    )
    ticks = sorted(table[x].unique())
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.minorticks_off()
    ax.set(title=title, ylabel=label)
    ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and SVG; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(files[0], dpi=160, metadata={"Software": None})
    figure.savefig(files[1], metadata={"Date": None, "Creator": "simkv"})
    return files


def main(draw: Callable[[pd.DataFrame], Figure], name: str, arguments: list[str]) -> None:
    """Draw one figure from the folder of a sweep, and say where it is."""
    if len(arguments) != 1:
        raise SystemExit(f"usage: python -m experiments.{name}.figure RESULTS")
    results = Path(arguments[0])
    if not (results / "cells.parquet").is_file():
        raise SystemExit(
            f"{results} holds no cells.parquet; first run: simkv sweep "
            f"experiments/{name}/sweep.toml --out {results}"
        )
    style()
    for file in save(draw(load_cells(results)), results / "figures", name):
        print(file)
