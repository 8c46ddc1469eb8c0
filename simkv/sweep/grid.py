"""What a sweep file asks for: arms (combinations of values), seeds, and the cells they make.

::

    base = "run.toml"              # a config beside this file, or a [base] table
    seeds = 5                      # a count, or a list of seeds
    objective = "goodput"          # what the arms are ranked by

    [objectives]                   # laid over the base's own
    ttft_s = 1.0

    [axes]                         # each combination of the values is an arm
    kv.block_tokens = [16, 32]
    kv.sharing.kind = ["none", "hash-chain"]

    [linked.layout]                # these paths move together, and count as one axis
    names = ["paged", "reserved"]  # optional: what to call the combinations
    kv.kind = ["paged", "contiguous-max"]
    sched.max_num_seqs = [256, 64]

Dotted paths are those of the configuration; a value that is a table is laid over the base's. A
seed means the same draw for every arm: on a trace a resample of it, on a generator its streams.
This module reads and multiplies; it runs nothing.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from simkv.config.load import (
    anchored,
    config_from_mapping,
    config_to_mapping,
    read_toml,
    resolve,
)
from simkv.config.run import RunConfig
from simkv.config.tree import leaves, overlaid
from simkv.errors import ConfigError
from simkv.sweep.identity import Identities
from simkv.sweep.objective import OBJECTIVES, Objective

_KEYS = {
    "base", "seeds", "objective", "objectives", "axes", "linked", "keep_requests"
}  # fmt: skip
_MAX_CELLS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of an axis: what it sets, and what it is called.

    Parameters
    ----------
    columns
        What tables show: dotted path (or the name of a linked axis) to value.
    sets
        What is laid over the base: dotted path to value.
    label
        Short text that tells it from the axis's other points.
    """

    columns: Mapping[str, Any]
    sets: Mapping[str, Any]
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One combination of values, over all seeds; ``config`` is what a single run of it uses."""

    index: int
    label: str
    columns: Mapping[str, Any]
    config: RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One arm at one seed; ``id`` is the digest of everything that its result depends on."""

    index: int
    arm: Arm
    seed: int
    id: str
    config: RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A sweep file, resolved.

    Parameters
    ----------
    axes
        Columns of each axis, in the order of the file; an axis of linked paths has several.
    step_time_knows_block_tokens
        Whether the step times of every arm depend on the block size.
    notes
        Sentences about what was decided for the user.
    """

    file: Path
    axes: tuple[tuple[str, ...], ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    objective: Objective
    keep_requests: bool
    step_time_knows_block_tokens: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What to call the sweep: the file's folder where the file is called sweep.toml."""
        return self.file.parent.name if self.file.stem == "sweep" else self.file.stem


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file.

    Raises
    ------
    ConfigError
        The file cannot be read, or a key or value of it or of the base is wrong.
    """
    table = read_toml(path)
    try:
        return _resolved(path, table)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _resolved(path: Path, table: Mapping[str, Any]) -> Sweep:
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"unknown key; a sweep has {', '.join(sorted(_KEYS))}", path=key)
    base, said = _base(path, table.get("base", {}))
    if "objectives" in table:
        base = _checked(_laid(base, {"objectives": table["objectives"]}))
    points = [*_axes(table.get("axes", {})), *_linked(table.get("linked", {}))]
    if not points:
        raise ConfigError(
            "nothing to vary; say for example kv.block_tokens = [16, 32]", path="axes"
        )
    _check_disjoint(points)
    seeds = _seeds(table.get("seeds", 5), int(base["seed"]))
    _check_size(points, seeds)
    arms = tuple(_arms(base, points, path.parent))
    says_resample = _says_resample(said, points)
    identities = Identities()
    return Sweep(
        file=path,
        axes=tuple(tuple(axis[0].columns) for axis in points),
        arms=arms,
        seeds=seeds,
        cells=tuple(_cells(arms, seeds, identities, resample=not says_resample)),
        objective=_objective(table.get("objective", "goodput")),
        keep_requests=_flag(table.get("keep_requests", False), "keep_requests"),
        step_time_knows_block_tokens=all(identities.knows_block_tokens(a.config) for a in arms),
        notes=tuple(_seed_notes(arms, says_resample=says_resample)),
    )


def _base(path: Path, base: Any) -> tuple[dict[str, Any], set[str]]:
    """Return the base as a complete mapping, and the dotted paths that it says itself."""
    if isinstance(base, str):
        resolved = resolve(path.parent / base)
        return config_to_mapping(resolved.config), set(resolved.origin)
    if not isinstance(base, Mapping):
        raise ConfigError(f"expected a file name or a table, got {base!r}", path="base")
    return _checked(anchored(base, path.parent)), set(leaves(base))


def _checked(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return config_to_mapping(config_from_mapping(mapping))


def _laid(mapping: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    return dict(overlaid(mapping, change, RunConfig))


def _nested(sets: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in sets.items():
        *tables, last = path.split(".")
        node = nested
        for table in tables:
            node = node.setdefault(table, {})
        node[last] = value
    return nested


def _leaves(table: Any, section: str, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Walk tables down to lists: ``kv.x = [1]`` and ``"kv.x" = [1]`` are the same axis."""
    if not isinstance(table, Mapping):
        at = f"{section}.{path}" if path else section
        raise ConfigError(f"expected a list of values, got {table!r}", path=at)
    for key, value in table.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, list):
            if not value:
                raise ConfigError("an empty list of values", path=f"{section}.{inner}")
            yield inner, value
        else:
            yield from _leaves(value, section, inner)


def _axes(table: Any) -> Iterator[list[Point]]:
    for path, values in _leaves(table, "axes"):
        shown = [_shown(value, values) for value in values]
        repeated = [text for text in shown if shown.count(text) > 1]
        if repeated:
            raise ConfigError(f"{repeated[0]!r} is given twice", path=f"axes.{path}")
        yield [
            Point(columns=columns, sets={path: value}, label=f"{_short(path)}={text}")
            for text, value, columns in zip(shown, values, _columns(path, values), strict=True)
        ]


def _linked(table: Any) -> Iterator[list[Point]]:
    if not isinstance(table, Mapping):
        raise ConfigError(f"expected tables, got {table!r}", path="linked")
    for name, group in table.items():
        at = f"linked.{name}"
        lists = dict(_leaves(group, at))
        names = lists.pop("names", None)
        if not lists:
            raise ConfigError("names no path to vary", path=at)
        lengths = {path: len(values) for path, values in lists.items()}
        if names is not None:
            lengths["names"] = len(names)
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{path}: {length}" for path, length in lengths.items())
            raise ConfigError(f"lists that move together differ in length ({told})", path=at)
        if names is not None and len(set(map(str, names))) < len(names):
            raise ConfigError("a name is given twice", path=f"{at}.names")
        yield [
            _linked_point(name, lists, None if names is None else str(names[row]), row)
            for row in range(next(iter(lengths.values())))
        ]


def _linked_point(axis: str, lists: Mapping[str, list[Any]], name: str | None, row: int) -> Point:
    sets = {path: values[row] for path, values in lists.items()}
    columns = {
        column: value
        for path, values in lists.items()
        for column, value in _columns(path, values)[row].items()
    }
    if name is not None:
        return Point(columns={axis: name, **columns}, sets=sets, label=name)
    label = " ".join(f"{_short(path)}={_shown(sets[path], lists[path])}" for path in sets)
    return Point(columns=columns, sets=sets, label=label)


def _columns(path: str, values: list[Any]) -> list[dict[str, Any]]:
    """Return the columns of each value: a table has one a key, empty where it lacks the key."""
    rows = [leaves({path: value}) for value in values]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: _plain(row.get(name)) for name in names} for row in rows]


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _shown(value: Any, values: list[Any]) -> Any:
    """Return what labels show of a value: tables by their kind where that tells them apart."""
    if not isinstance(value, Mapping):
        return _plain(value)
    kinds = [other.get("kind") if isinstance(other, Mapping) else None for other in values]
    if kinds.count(value.get("kind")) == 1 and value.get("kind") is not None:
        return value["kind"]
    return ",".join(f"{_short(key)}={inner}" for key, inner in leaves(value).items())


def _short(path: str) -> str:
    """Return the telling end of a dotted path: ``kv.sharing.kind`` is about sharing."""
    parts = [part for part in path.split(".") if part != "kind"]
    return parts[-1] if parts else path


def _check_size(axes: list[list[Point]], seeds: tuple[int, ...]) -> None:
    """Refuse what nobody waits for, before it is multiplied out."""
    num_arms = math.prod(map(len, axes))
    if num_arms * len(seeds) > _MAX_CELLS:
        raise ConfigError(
            f"{num_arms:,} arms and {len(seeds):,} seeds make more than {_MAX_CELLS:,} cells; "
            "split the sweep",
            path="axes",
        )


def _check_disjoint(axes: list[list[Point]]) -> None:
    seen: list[str] = []
    for points in axes:
        for path in points[0].sets:
            if path == "seed":
                raise ConfigError("seeds are no axis: say seeds = [0, 1, 2]", path=f"axes.{path}")
            for other in seen:
                if path == other or f"{path}.".startswith(f"{other}."):
                    raise ConfigError("set by two axes", path=path)
                if f"{other}.".startswith(f"{path}."):
                    raise ConfigError("set by two axes", path=other)
        seen += list(points[0].sets)


def _arms(base: Mapping[str, Any], axes: list[list[Point]], folder: Path) -> Iterator[Arm]:
    for index, points in enumerate(product(*axes)):
        label = " ".join(point.label for point in points)
        # All at once: the order of the axes must not decide what a change of kind drops.
        sets = {path: value for point in points for path, value in point.sets.items()}
        try:
            config = config_from_mapping(_laid(base, anchored(_nested(sets), folder)))
        except ConfigError as error:
            raise ConfigError(f"arm {label}: {error}") from error
        columns = {path: value for point in points for path, value in point.columns.items()}
        yield Arm(index=index, label=label, columns=columns, config=config)


def _cells(
    arms: tuple[Arm, ...], seeds: tuple[int, ...], identities: Identities, *, resample: bool
) -> Iterator[Cell]:
    index = 0
    for arm in arms:
        mapping = config_to_mapping(arm.config)
        if resample and _on_trace(arm):
            mapping = _laid(mapping, {"workload": {"transform": {"resample": True}}})
        for seed in seeds:
            config = config_from_mapping({**mapping, "seed": seed})
            named = identities.of(config)
            yield Cell(index=index, arm=arm, seed=seed, id=named, config=config)
            index += 1


def _on_trace(arm: Arm) -> bool:
    return arm.config.workload.kind == "trace"


def _says_resample(said: set[str], axes: list[list[Point]]) -> bool:
    """Whether the base or an axis decides itself what a seed means on a trace."""
    sets = [point.sets for points in axes for point in points]
    set_by_axes = {path for point in sets for path in leaves(_nested(point))}
    return "workload.transform.resample" in said | set_by_axes


def _seeds(given: Any, first: int) -> tuple[int, ...]:
    whole = isinstance(given, int) and not isinstance(given, bool)
    if whole and given > _MAX_CELLS:
        raise ConfigError(f"{given:,} seeds are more than {_MAX_CELLS:,} cells", path="seeds")
    if whole and given >= 1:
        return tuple(range(first, first + given))
    if isinstance(given, list) and given:
        for seed in given:
            if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
                raise ConfigError(f"{seed!r} is no seed, expected whole numbers >= 0", path="seeds")
        if len(set(given)) < len(given):
            raise ConfigError("a seed is given twice", path="seeds")
        return tuple(given)
    raise ConfigError(f"expected a count or a list of whole numbers, got {given!r}", path="seeds")


def _objective(given: Any) -> Objective:
    found = OBJECTIVES.get(given) if isinstance(given, str) else None
    if found is None:
        raise ConfigError(f"got {given!r}, expected {', '.join(OBJECTIVES)}", path="objective")
    return found


def _flag(given: Any, path: str) -> bool:
    if not isinstance(given, bool):
        raise ConfigError(f"expected true or false, got {given!r}", path=path)
    return given


def _seed_notes(arms: tuple[Arm, ...], *, says_resample: bool) -> Iterator[str]:
    """Say what a seed means, on traces and on generators."""
    traces = sum(map(_on_trace, arms))
    if traces and not says_resample:
        yield (
            "A seed is a resample of the trace (whole sessions, or 60 s windows where there are "
            "none, drawn with replacement), the same for all arms; the sweep set "
            "workload.transform.resample = true."
        )
    if traces and says_resample:
        yield (
            "The sweep file says itself what workload.transform.resample is; a trace that is not "
            "resampled gives every seed the same requests."
        )
    if traces < len(arms):
        yield "A seed is a draw of the generator's streams, the same for all arms."
