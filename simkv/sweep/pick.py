"""The best arms of a finished sweep as files: configurations to run, and flags to serve with.

::

    OUT/picks/01-<id>.json   the configuration of a pick, complete, for the standard library alone
                             (``simkv.config.load.read_json_config``)
    OUT/picks/picks.json     of each pick: what it achieved, the vLLM arguments, whether the engine
                             takes it, and if not, what does and at which cost
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from simkv.config.load import config_from_mapping, config_to_mapping
from simkv.config.run import RunConfig
from simkv.digest import digest_of
from simkv.errors import InputError
from simkv.sweep.engines import ENGINES, Engine
from simkv.sweep.objective import OBJECTIVES, Objective
from simkv.sweep.rank import MEMORY, Ranked, Ranking, Versus, decisive, have, rank, versus
from simkv.sweep.report import sentence, shown
from simkv.sweep.store import MARKER, json_bytes, read_marker, write_whole
from simkv.sweep.tables import about
from simkv.sweep.vllm import vllm_flags

PICK_FORMAT = "simkv-pick"


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitute:
    """The best arm that the engine does take.

    Parameters
    ----------
    label, config, flags
        The arm.
    decisive
        How the pick compares with it on what decides between the two.
    costs
        The same on the objective, hits and waste.
    """

    label: str
    config: RunConfig
    flags: tuple[str, ...]
    decisive: Versus
    costs: tuple[Versus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One of the best arms.

    Parameters
    ----------
    path
        The file that was written.
    place, label, config
        The arm: its place in the ranking, its name, its complete configuration.
    flags
        Arguments of ``vllm serve``.
    engine
        The engine that was asked about.
    objection
        Why the engine does not take it; None if it does.
    substitute
        If it does not: the best arm that it does take; None if there is none in the sweep.
    sentences
        All of that for people.
    details
        All of that for programs, as in ``picks.json``.
    """

    path: Path
    place: int
    label: str
    config: RunConfig
    flags: tuple[str, ...]
    engine: Engine
    objection: str | None
    substitute: Substitute | None
    sentences: tuple[str, ...]
    details: Mapping[str, Any]


def pick(
    out: Path, *, top: int = 3, objective: str | None = None, engine: str = "vllm"
) -> list[Pick]:
    """Write the best arms of a sweep's folder to ``picks/`` and return them, best first.

    Parameters
    ----------
    out
        Folder of a finished sweep.
    top
        How many arms.
    objective
        What to rank by; None takes the sweep file's.
    engine
        The engine that the picks are for, a name of ``engines.ENGINES``.

    Raises
    ------
    InputError
        The folder is no finished sweep, nothing could be ranked, or a name is unknown.
    """
    if top < 1:
        raise InputError(f"--top {top}: expected 1 or more")
    usual, configs, cells = _sweep_of(out)
    wanted = _named(OBJECTIVES, objective or usual, "objective")
    served = _named(ENGINES, engine, "engine")
    ranking = rank(cells, wanted)
    if not ranking.ranked:
        raise InputError(f"{out}: nothing to pick from; {ranking.notes[-1]}")
    folder = out / "picks"
    picks = [
        _pick(folder, number, row, ranking, configs, served)
        for number, row in enumerate(ranking.ranked[:top], start=1)
    ]
    for old in sorted(folder.glob("[0-9][0-9]-*.json")) if folder.is_dir() else []:
        old.unlink()
    for found in picks:
        write_whole(found.path, json_bytes(config_to_mapping(found.config)))
    told = {"format": PICK_FORMAT, "picks": [dict(found.details) for found in picks]}
    write_whole(folder / "picks.json", json_bytes(told))
    return picks


def _sweep_of(out: Path) -> tuple[str, dict[str, RunConfig], pa.Table]:
    """Return a finished sweep's objective, configurations by arm, and cells."""
    marker = read_marker(out)
    if marker is None:
        raise InputError(f"{out}: is no folder of a sweep; make one with simkv sweep")
    try:
        cells = pq.read_table(out / "cells.parquet")
        about(cells)  # a table that says nothing of itself is none of a sweep
        configs = {arm["label"]: config_from_mapping(arm["config"]) for arm in marker["arms"]}
        objective = str(marker["objective"])
    except FileNotFoundError:
        raise InputError(
            f"{out}: the sweep has not finished; run the same simkv sweep again to go on"
        ) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(
            f"{out / 'cells.parquet'}: not readable ({error}); run the same simkv sweep again"
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{out}: {MARKER} or cells.parquet is not as simkv sweep writes it "
            f"({type(error).__name__}: {error}); run the same simkv sweep again"
        ) from None
    if unknown := sorted(set(cells["arm"].to_pylist()) - configs.keys()):
        raise InputError(
            f"{out}: {MARKER} knows no arm {unknown[0]}, which cells.parquet has; run the same "
            "simkv sweep again"
        )
    return objective, configs, cells


def _named(known: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise InputError(f"there is no {what} {name!r}, expected {', '.join(known)}")
    return known[name]


def _pick(
    folder: Path,
    number: int,
    row: Ranked,
    ranking: Ranking,
    configs: Mapping[str, RunConfig],
    engine: Engine,
) -> Pick:
    config = configs[row.arm.label]
    objection = engine.objection(config)
    substitute = None if objection is None else _substitute(row, ranking, configs, engine)
    path = folder / f"{number:02d}-{digest_of(config_to_mapping(config))}.json"
    flags = tuple(vllm_flags(config))
    sentences = _sentences(row, ranking, engine, objection, config, substitute)
    return Pick(
        path=path,
        place=row.place or 0,
        label=row.arm.label,
        config=config,
        flags=flags,
        engine=engine,
        objection=objection,
        substitute=substitute,
        sentences=tuple(sentences),
        details={
            "file": path.name,
            "place": row.place,
            "arm": row.arm.label,
            "objective": ranking.objective.name,
            "values": {by.column: _estimate(row, by) for by in OBJECTIVES.values()},
            "vllm": _serve(flags),
            "engine": {
                "name": engine.name,
                "accepted": objection is None,
                "objection": objection,
                "source": engine.source,
            },
            "substitute": None if substitute is None else _of_substitute(substitute),
            "says": sentences,
            "notes": list(ranking.notes),
        },
    )


def _serve(flags: Sequence[str]) -> str:
    return shlex.join(["vllm", "serve", *flags])


def _of_substitute(substitute: Substitute) -> dict[str, Any]:
    return {
        "arm": substitute.label,
        "config": config_to_mapping(substitute.config),
        "vllm": _serve(substitute.flags),
        "costs": [_cost(cost) for cost in substitute.costs],
    }


def _substitute(
    row: Ranked, ranking: Ranking, configs: Mapping[str, RunConfig], engine: Engine
) -> Substitute | None:
    """Return the best arm that the engine takes, whatever else differs from the pick."""
    taken = (
        other for other in ranking.ranked if engine.objection(configs[other.arm.label]) is None
    )
    other = next(taken, None)
    if other is None:
        return None
    config = configs[other.arm.label]
    return Substitute(
        label=other.arm.label,
        config=config,
        flags=tuple(vllm_flags(config)),
        decisive=decisive(row.arm, other.arm, ranking.objective, ranking.by_memory),
        costs=tuple(
            versus(row.arm, other.arm, by)
            for by in dict.fromkeys([ranking.objective, *MEMORY])
            if have([row.arm, other.arm], by)
        ),
    )


def _sentences(
    row: Ranked,
    ranking: Ranking,
    engine: Engine,
    objection: str | None,
    config: RunConfig,
    substitute: Substitute | None,
) -> list[str]:
    objective = ranking.objective
    place = f"place {row.place} of {len(ranking.ranked)}"
    value = shown(objective, row.arm.estimate(objective))
    said = [f"{row.arm.label}: {place}, {value} {objective.title}"]
    if objection is None:
        return [*said, f"accepted by {engine.title}", f"serve it{_command(config)}"]
    said.append(f"not accepted: {objection}")
    if substitute is None:
        return [*said, "no arm of this sweep is accepted by it"]
    said.append(f"the best that it accepts is {substitute.label}")
    first = substitute.decisive
    rest = [cost for cost in substitute.costs if cost.objective is not first.objective]
    said += [sentence(row.arm.label, substitute.label, cost) for cost in (first, *rest)]
    return [*said, f"serve that one{_command(substitute.config)}"]


def _command(config: RunConfig) -> str:
    """Return the command that serves a configuration, and how many replicas it is for."""
    cluster, command = config.cluster, _serve(vllm_flags(config))
    if cluster.num_replicas == 1:
        return f" with: {command}"
    return (
        f" on each of {cluster.num_replicas} replicas, behind a {cluster.routing.kind} router, "
        f"with: {command}"
    )


def _estimate(row: Ranked, objective: Objective) -> dict[str, Any] | None:
    value = row.arm.estimate(objective)
    if value is None:
        return None
    interval = value.interval
    return {
        "mean": value.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "num_seeds": value.num_seeds,
    }


def _cost(cost: Versus) -> dict[str, Any]:
    difference = cost.comparison.difference
    interval = difference.interval
    return {
        "column": cost.objective.column,
        "pick_minus_substitute": difference.mean,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "pick_beats_substitute_ratio": cost.beats_ratio,
        "is_tie": cost.is_tie,
    }
