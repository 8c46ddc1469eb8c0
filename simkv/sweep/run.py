"""One sweep from its file to its tables: what is there is skipped, what is missing is run.

::

    OUT/sweep.json    what was swept
    OUT/cells/        finished cells (store.py)
    OUT/cells.parquet, cells.csv, ranking.csv, summary.md

The tables are made at the end from what the store holds, in the order of the sweep file, so they
are the same bytes for any number of workers and interruptions.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from simkv.config.build import build_served
from simkv.config.load import config_to_mapping
from simkv.config.run import RunConfig
from simkv.config.tree import leaves
from simkv.errors import InputError
from simkv.sim.simulate import simulate
from simkv.sweep.grid import Cell, Sweep, read_sweep
from simkv.sweep.pool import Load, Simulate, Work, run_cells
from simkv.sweep.progress import Progressing, silent
from simkv.sweep.rank import Ranking, rank
from simkv.sweep.report import granularity_notes, page, ranking_table
from simkv.sweep.store import FORMAT, MARKER, Store, Stored, json_bytes, one_sentence, write_whole
from simkv.sweep.tables import cell_table, csv_bytes, parquet_bytes
from simkv.workload.load import load
from simkv.workload.trace import Trace

TABLES = ("cells.parquet", "cells.csv", "ranking.csv", "summary.md")

# What of the arms' common configuration the one-page summary shows.
_TELLING = (
    "workload.path",
    "workload.transform.rate_scale",
    "model.name",
    "device.name",
    "cluster.num_replicas",
    "kv.num_slots",
    "kv.num_blocks",
    "cost.kind",
    "objectives.ttft_s",
    "objectives.tpot_s",
)


def load_trace(config: RunConfig) -> Trace:
    """Return the trace of one configuration, transformed, and resampled for its seed."""
    served = build_served(config)
    return load(config.workload, seed=config.seed, max_model_len=served.max_model_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """What a sweep gave.

    Parameters
    ----------
    cells
        One row a finished cell.
    ranking
        The arms in order.
    page
        The one-page summary.
    failures
        Arms that could not run with their configuration: label to sentence.
    redone
        A sentence for each cell whose stored result could not be used.
    num_run, num_resumed
        Cells that were run now, and that were there already.
    """

    out: Path
    cells: pa.Table
    ranking: Ranking
    page: str
    failures: Mapping[str, str]
    redone: tuple[str, ...]
    num_run: int
    num_resumed: int


def run_sweep(
    path: Path,
    out: Path,
    *,
    workers: int | None = None,
    progress: Progressing = silent,
    simulate: Simulate = simulate,
    load: Load = load_trace,
) -> SweepResult:
    """Run a sweep, or what is missing of it, and write its tables.

    Parameters
    ----------
    path
        The sweep file.
    out
        Folder of the results: new, empty, or of a sweep.
    workers
        Processes; None takes one a core, 1 runs in this process.
    progress
        ``progress.on_stderr`` or ``progress.silent``.
    simulate, load
        What runs a cell: functions of modules, so that processes can be given them.

    Raises
    ------
    InputError
        The sweep file or a configuration is wrong, the folder holds something else, the disk is
        full, a worker died, or no arm can run.
    KeyboardInterrupt
        Ctrl-C or SIGTERM; finished cells are kept.
    """
    if workers is not None and workers < 1:
        raise InputError(f"--workers {workers}: expected 1 or more")
    sweep = read_sweep(path)
    store = Store(out)
    store.open()
    stored, redone = _found(store, sweep.cells)
    missing = _missing(sweep.cells, stored)
    _mark(out, json_bytes(_marker(sweep)), is_whole=not missing)
    work = Work(out=out, keep_requests=sweep.keep_requests, simulate=simulate, load=load)
    failures: dict[str, str] = {}
    with progress(len(sweep.cells), len(sweep.cells) - len(missing)) as advance:
        for report in run_cells(work, missing, workers=workers or os.cpu_count() or 1):
            if report.failure is not None:
                failures.setdefault(report.cell.arm.label, report.failure)
            advance(f"{report.cell.arm.label} seed {report.cell.seed}")
    # Read back what was written: a table never says what the store does not.
    stored, _ = _found(store, sweep.cells)
    if not stored:
        label, failure = next(iter(failures.items()))
        raise InputError(f"no arm can run; {label}: {failure}")
    return _written(sweep, out, stored, failures, redone, num_run=len(missing))


def _written(
    sweep: Sweep,
    out: Path,
    stored: Mapping[str, Stored],
    failures: Mapping[str, str],
    redone: Sequence[str],
    *,
    num_run: int,
) -> SweepResult:
    cells = cell_table(sweep, stored)
    ranking = rank(cells, sweep.objective)
    columns = {
        column: list(
            dict.fromkeys(
                arm.columns[column] for arm in sweep.arms if arm.columns[column] is not None
            )
        )
        for axis in sweep.axes
        for column in axis
    }
    granularity = granularity_notes((cell.granularity_tokens for cell in stored.values()), columns)
    summary = page(
        sweep.name,
        ranking,
        common=_common(sweep, set(columns)),
        axes=columns,
        seeds=sweep.seeds,
        notes=[*granularity, *sweep.notes],
        trace_notes=[note for cell in stored.values() for note in cell.trace_notes],
        warnings=_warnings(sweep.cells, stored, failures),
    )
    write_whole(out / "cells.parquet", parquet_bytes(cells))
    write_whole(out / "cells.csv", csv_bytes(cells))
    write_whole(out / "ranking.csv", csv_bytes(ranking_table(ranking)))
    write_whole(out / "summary.md", summary.encode())
    return SweepResult(
        out=out,
        cells=cells,
        ranking=ranking,
        page=summary,
        failures=failures,
        redone=tuple(redone),
        num_run=num_run,
        num_resumed=len(sweep.cells) - num_run,
    )


def _common(sweep: Sweep, varied: set[str]) -> list[str]:
    """Return the settings that say most about a sweep, as far as no axis varies them."""
    fixed = leaves(config_to_mapping(sweep.arms[0].config))
    shown = [
        f"`{path}` = {fixed[path]}"
        for path in _TELLING
        if fixed.get(path) is not None and path not in varied
    ]
    return [", ".join(shown)] if shown else []


def _mark(out: Path, marker: bytes, *, is_whole: bool) -> None:
    """Say what is swept; tables of another sweep, or of cells that are gone, go first.

    Otherwise an interruption would leave them beside a marker that they do not belong to.
    """
    file = out / MARKER
    if not (is_whole and file.is_file() and file.read_bytes() == marker):
        with one_sentence(out):
            for name in TABLES:
                (out / name).unlink(missing_ok=True)
    write_whole(file, marker)


def _found(store: Store, cells: Iterable[Cell]) -> tuple[dict[str, Stored], list[str]]:
    """Return the finished cells by id; those that are not whole are removed, with a note each."""
    stored: dict[str, Stored] = {}
    notes = []
    for cell in cells:
        found, why_not = store.find(cell.id)
        if found is not None:
            stored[cell.id] = found
        elif why_not:
            store.discard(cell.id)
            notes.append(f"cell {cell.id} was run again: what was stored {why_not}")
    return stored, notes


def _missing(cells: Iterable[Cell], stored: Mapping[str, Stored]) -> list[Cell]:
    """Return the cells to run; two arms that come to the same configuration are run once."""
    return list({cell.id: cell for cell in cells if cell.id not in stored}.values())


def _marker(sweep: Sweep) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "name": sweep.name,
        "objective": sweep.objective.name,
        "seeds": list(sweep.seeds),
        "arms": [
            {"label": arm.label, "config": config_to_mapping(arm.config)} for arm in sweep.arms
        ],
    }


def _warnings(
    cells: Iterable[Cell], stored: Mapping[str, Stored], failures: Mapping[str, str]
) -> list[tuple[str, str]]:
    told = [(arm, f"could not run: {failure}") for arm, failure in failures.items()]
    for cell in cells:
        if cell.id in stored:
            told += [(cell.arm.label, warning) for warning in stored[cell.id].warnings]
    return told
