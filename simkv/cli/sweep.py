"""``simkv sweep`` and ``simkv pick``: many configurations, ranked; the best ones as files."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simkv.cli.output import Json, examples, print_json, warn

SWEEP_EXAMPLES = examples(
    "simkv sweep experiments/block_size/sweep.toml --out results/block_size",
    "simkv sweep my_sweep.toml --out results/mine --workers 2 --json",
)
PICK_EXAMPLES = examples(
    "simkv pick results/block_size",
    "simkv pick results/block_size --top 5 --objective waste --json",
)


def sweep(
    file: Annotated[Path, Parameter(name="SWEEP.toml")],
    /,
    *,
    out: Path,
    workers: int | None = None,
    as_json: Json = False,
) -> None:
    """Simulate every combination of a sweep file at every seed, and rank them.

    A sweep that was interrupted goes on where it was when the same command is run again.

    Parameters
    ----------
    file
        The sweep: a base configuration, axes as dotted paths, seeds, an objective.
    out
        Folder of the results: new, empty, or of a sweep.
    workers
        Processes; one a core by default.
    as_json
        Print the ranking as JSON.
    """
    from simkv.sweep.progress import on_stderr
    from simkv.sweep.report import ranking_table
    from simkv.sweep.run import run_sweep

    try:
        result = run_sweep(file, out, workers=workers, progress=on_stderr)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "finished cells are kept; the same command goes on from there"
        ) from None
    warn(result.redone)
    warn(f"{label} could not run: {failure}" for label, failure in result.failures.items())
    if not as_json:
        print(result.page, end="")
        return
    print_json(
        {
            "objective": result.ranking.objective.name,
            "num_seeds": result.ranking.num_seeds,
            "num_cells_run": result.num_run,
            "num_cells_resumed": result.num_resumed,
            "ranking": ranking_table(result.ranking).to_pylist(),
            "failures": dict(result.failures),
            "notes": list(result.ranking.notes),
        }
    )


def pick(
    folder: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    top: int = 3,
    objective: str | None = None,
    engine: str = "vllm",
    as_json: Json = False,
) -> None:
    """Write the best configurations of a sweep as files, and as flags to serve with.

    Each says whether the engine accepts it, and if not, the best that it does and what that costs.

    Parameters
    ----------
    folder
        Folder of a finished sweep; the files go to its picks/.
    top
        How many to pick.
    objective
        What to rank by: goodput, throughput, p99-ttft, waste or hit-ratio; by default what the
        sweep file says.
    engine
        The engine that the picks are for.
    as_json
        Print what is known of each pick as a JSON list.
    """
    from simkv.sweep.pick import pick

    picks = pick(folder, top=top, objective=objective, engine=engine)
    if as_json:
        print_json([dict(found.details) for found in picks])
        return
    for found in picks:
        for number, sentence in enumerate(found.sentences):
            print(sentence if number == 0 else f"  {sentence}")
        print(f"  {found.path}")
    for note in picks[0].details["notes"]:
        print(f"note: {note}")
