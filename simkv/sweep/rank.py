"""Orders arms by an objective, says how sure the order is, and calls ties ties.

Two arms tie when the interval of their paired difference holds zero, or when the difference is too
small to matter (``Objective.threshold``). Places go to groups: the best arm and all that tie with
it, then the best of the rest and all that tie with that one, and so on. Every comparison stands
for itself: of twenty of them at 95 %, one is expected to be off.

An arm that was overloaded at any seed has no steady state to average; it comes last and is named.
Seeds that all give every arm the same result are one draw told several times: there is no interval.

Where step times do not depend on the block size but the objective on step times, block sizes are
not ranked by the objective: among arms that differ in the block size only, more prefix hits are
better, then less waste. The objective then orders the other choices, each at its best block size;
where they tie on it, hits and waste decide between them as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from simkv.obs.stats import Comparison, Estimate, compare, estimate
from simkv.sweep.objective import HIT_RATIO, OBJECTIVES, WASTE, Objective
from simkv.sweep.tables import About, about

BLOCK_AXIS = "kv.block_tokens"
MEMORY = (HIT_RATIO, WASTE)
_BLOCK_COLUMNS = {BLOCK_AXIS, "kv.num_blocks", "kv.num_slots"}

Status = Literal["ranked", "overloaded", "incomplete"]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One arm's values over seeds.

    Parameters
    ----------
    label, columns
        What it is called, and its values on the axes.
    cells
        Ids of its cells, in order of seeds.
    values
        Objective name to ``[num_seeds] float64``; an objective that a cell lacks is left out.
    """

    label: str
    columns: Mapping[str, Any]
    cells: tuple[str, ...]
    num_seeds: int
    num_overloaded: int
    values: Mapping[str, Floats]

    def mean(self, objective: Objective) -> float:
        """Return the mean over seeds."""
        return float(self.values[objective.name].mean())

    def estimate(self, objective: Objective) -> Estimate | None:
        """Return the mean with its interval, None for an arm that has no such value."""
        if self.num_overloaded or objective.name not in self.values:
            return None
        return estimate(self.values[objective.name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """How the better of two arms compares with the other, on what decided between them.

    Parameters
    ----------
    comparison
        Better minus other.
    is_tie
        Whether the difference is unsure or too small to matter.
    beats_ratio
        How sure it is that the better one is better; None for one seed.
    """

    objective: Objective
    comparison: Comparison
    is_tie: bool
    beats_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """An arm at its place; ``place`` is None for arms that are not ranked."""

    arm: Arm
    status: Status
    place: int | None
    versus_best: Versus | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All arms, best first, those that are not ranked last.

    Parameters
    ----------
    num_seeds, num_draws
        Seeds of an arm, and how many of them count: one where all gave the same results.
    by_memory
        Columns that differ between arms which are ordered by hits and waste instead of the
        objective: those of the block size, where step times do not know it; else empty.
    notes
        Sentences for people.
    """

    objective: Objective
    rows: tuple[Ranked, ...]
    num_seeds: int
    num_draws: int
    by_memory: frozenset[str]
    notes: tuple[str, ...]

    @property
    def ranked(self) -> tuple[Ranked, ...]:
        """The arms that have a place."""
        return tuple(row for row in self.rows if row.place is not None)


def rank(cells: pa.Table, objective: Objective) -> Ranking:
    """Rank the arms of a cell table.

    Parameters
    ----------
    cells
        As ``tables.cell_table`` makes it.
    objective
        What to be good at.
    """
    said = about(cells)
    arms = _arms(cells, said)
    num_seeds = max((arm.num_seeds for arm in arms), default=0)
    is_one_draw = num_seeds > 1 and all(map(_is_constant, arms))
    if is_one_draw:
        arms = [_first_draw(arm) for arm in arms]
    ready = [arm for arm in arms if _status(arm, objective, num_seeds) == "ranked"]
    blocks = _block_columns(said, arms)
    is_blind = objective.needs_step_time and not said.step_time_knows_block_tokens
    by_memory = blocks if is_blind else frozenset()
    groups = _by_memory(ready, objective, by_memory) if by_memory else _groups(ready, objective)
    rows = [
        Ranked(
            arm=arm,
            status="ranked",
            place=place,
            versus_best=(
                None if arm is groups[0][0] else decisive(groups[0][0], arm, objective, by_memory)
            ),
        )
        for place, group in _places(groups)
        for arm in group
    ]
    rows += [
        Ranked(arm=arm, status=status, place=None, versus_best=None)
        for wanted in ("overloaded", "incomplete")
        for arm in arms
        if (status := _status(arm, objective, num_seeds)) == wanted
    ]
    return Ranking(
        objective=objective,
        rows=tuple(rows),
        num_seeds=num_seeds,
        num_draws=1 if is_one_draw else num_seeds,
        by_memory=by_memory,
        notes=(
            *_notes(rows, objective, said, blocks),
            *(_draw_notes(num_seeds) if is_one_draw and ready else ()),
        ),
    )


def _arms(cells: pa.Table, said: About) -> list[Arm]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in cells.to_pylist():
        found.setdefault(row["arm"], []).append(row)
    arms = []
    for label, rows in found.items():
        rows = sorted(rows, key=lambda row: row["seed"])
        values = {
            name: np.array([row[objective.column] for row in rows], dtype=np.float64)
            for name, objective in OBJECTIVES.items()
            if all(_is_number(row.get(objective.column)) for row in rows)
        }
        arms.append(
            Arm(
                label=label,
                columns={column: rows[0][column] for column in said.columns},
                cells=tuple(row["cell"] for row in rows),
                num_seeds=len(rows),
                num_overloaded=sum(bool(row["overloaded"]) for row in rows),
                values=values,
            )
        )
    return arms


def _is_constant(arm: Arm) -> bool:
    return all(np.ptp(values) == 0 for values in arm.values.values())


def _first_draw(arm: Arm) -> Arm:
    return replace(arm, values={name: values[:1] for name, values in arm.values.items()})


def _is_number(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))


def _status(arm: Arm, objective: Objective, num_seeds: int) -> Status:
    if arm.num_overloaded:
        return "overloaded"
    complete = arm.num_seeds == num_seeds and objective.name in arm.values
    return "ranked" if complete else "incomplete"


def _sorted(arms: Sequence[Arm], objective: Objective) -> list[Arm]:
    """Sort best first; arms with equal means keep the order of the sweep file."""
    sign = -1 if objective.higher_is_better else 1
    return sorted(arms, key=lambda arm: sign * arm.mean(objective))


def _groups(arms: Sequence[Arm], objective: Objective) -> list[list[Arm]]:
    """Return groups of arms that tie with the best of their group, best group first."""
    groups: list[list[Arm]] = []
    for arm in _sorted(arms, objective):
        if groups and versus(groups[-1][0], arm, objective).is_tie:
            groups[-1].append(arm)
        else:
            groups.append([arm])
    return groups


def versus(better: Arm, other: Arm, objective: Objective) -> Versus:
    """Compare two arms that both have the objective, at the same seeds."""
    a, b = better.values[objective.name], other.values[objective.name]
    comparison = compare(a, b)
    interval = comparison.difference.interval
    threshold = objective.threshold(float(a.mean()))
    is_small = abs(comparison.difference.mean) <= threshold
    more = comparison.more_ratio
    return Versus(
        objective=objective,
        comparison=comparison,
        is_tie=is_small or (interval is not None and interval.holds(0)),
        beats_ratio=more if more is None or objective.higher_is_better else 1 - more,
    )


def decisive(better: Arm, other: Arm, objective: Objective, by_memory: frozenset[str]) -> Versus:
    """Compare two arms on what decides between them: the objective, or hits and then waste."""
    on_objective = versus(better, other, objective)
    same = _class(better, by_memory) == _class(other, by_memory)
    if not by_memory or not (same or on_objective.is_tie):
        return on_objective
    found = [versus(better, other, by) for by in MEMORY if have([better, other], by)]
    return next((each for each in found if not each.is_tie), (on_objective, *found)[-1])


def _block_columns(said: About, arms: Sequence[Arm]) -> frozenset[str]:
    """Return the columns that vary with the block size and nothing else; none if it is fixed."""
    for axis in said.axes:
        if BLOCK_AXIS in axis and set(axis) <= _BLOCK_COLUMNS:
            sizes = {arm.columns[BLOCK_AXIS] for arm in arms}
            return frozenset(axis) if len(sizes) > 1 else frozenset()
    return frozenset()


def have(arms: Sequence[Arm], objective: Objective) -> bool:
    """Say whether all arms have a value of an objective."""
    return all(objective.name in arm.values for arm in arms)


def _class(arm: Arm, blocks: frozenset[str]) -> tuple[tuple[str, Any], ...]:
    return tuple(item for item in arm.columns.items() if item[0] not in blocks)


def _by_memory(
    arms: Sequence[Arm], objective: Objective, blocks: frozenset[str]
) -> list[list[Arm]]:
    """Return groups with block sizes ordered by hits, then waste; the rest by the objective."""
    classes: dict[tuple[tuple[str, Any], ...], list[Arm]] = {}
    for arm in arms:
        classes.setdefault(_class(arm, blocks), []).append(arm)
    heads = {_memory_groups(members)[0][0].label: members for members in classes.values()}
    by_label = {arm.label: arm for arm in arms}
    return [
        tied
        for group in _groups([by_label[label] for label in heads], objective)
        # Choices that tie on the objective are one lot: hits and waste tell all their arms apart.
        for tied in _memory_groups([arm for head in group for arm in heads[head.label]])
    ]


def _memory_groups(arms: Sequence[Arm]) -> list[list[Arm]]:
    """Return groups by hits, and within a tie by waste; what not all arms have is passed over."""
    groups = [list(arms)]
    for by in MEMORY:
        if have(arms, by):
            groups = [tied for group in groups for tied in _groups(group, by)]
    return groups


def _places(groups: Sequence[Sequence[Arm]]) -> list[tuple[int, Sequence[Arm]]]:
    """Give groups their places as in sport: after two firsts comes a third."""
    places, place = [], 1
    for group in groups:
        places.append((place, group))
        place += len(group)
    return places


def _draw_notes(num_seeds: int) -> list[str]:
    return [
        f"All {num_seeds} seeds gave the same results, so they count as one draw and there are no "
        "intervals: the workload has nothing to draw from (a trace needs several sessions, or "
        "minutes of arrivals)."
    ]


def _notes(
    rows: Sequence[Ranked], objective: Objective, said: About, blocks: frozenset[str]
) -> list[str]:
    notes = []
    if BLOCK_AXIS in said.columns and not said.step_time_knows_block_tokens:
        notes.append(
            "No profile here varies the block size, so step time does not depend on it: block "
            "sizes are ranked on memory and hits."
        )
        if objective.needs_step_time and blocks:
            notes.append(
                f"Among arms that differ in the block size only, more prefix hits go first, then "
                f"less waste; {objective.name} orders the other choices, each at its best block "
                "size, and where it ties hits and waste decide."
            )
        elif objective.needs_step_time:
            notes.append(
                f"The block size moves together with other settings here, so {objective.name} "
                "orders the arms all the same: read differences between block sizes with care."
            )
    notes += [
        f"{row.arm.label} was overloaded at {row.arm.num_overloaded} of {row.arm.num_seeds} "
        "seeds: its queue grows without bound, so it is not averaged."
        for row in rows
        if row.status == "overloaded"
    ]
    notes += [
        f"{row.arm.label} has no {objective.column} at every seed, so it is not ranked."
        for row in rows
        if row.status == "incomplete"
    ]
    if rows and all(row.status == "overloaded" for row in rows):
        notes.append(
            "Every arm was overloaded, so nothing is ranked; lower the load, for example "
            "workload.transform.rate_scale = 0.5."
        )
    return notes
