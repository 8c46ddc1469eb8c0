"""A ranking as a table, and a sweep as one page for people. Equal sweeps give equal bytes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from simkv.obs.stats import Estimate, method_note
from simkv.sweep.objective import (
    HIT_RATIO,
    OBJECTIVES,
    RELATIVE_THRESHOLD_RATIO,
    WASTE,
    Objective,
)
from simkv.sweep.rank import BLOCK_AXIS, Ranked, Ranking, Versus

_MAX_NOTES = 12
_MAX_WARNINGS = 20
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")


def ranking_table(ranking: Ranking) -> pa.Table:
    """Return one row an arm in order: place, axes, means with intervals, comparison with the best.

    Means of arms that are not ranked are empty. Differences are the best arm minus this one, in
    the unit of the column that ``decided_by`` names.
    """
    return pa.Table.from_pylist(
        [_row(row) for row in ranking.rows], schema=_schema(ranking.rows)
    ).replace_schema_metadata({b"simkv.objective": ranking.objective.name})


def _row(row: Ranked) -> dict[str, Any]:
    found: dict[str, Any] = {
        "place": row.place,
        "arm": row.arm.label,
        **row.arm.columns,
        "status": row.status,
        "num_seeds": row.arm.num_seeds,
    }
    for objective in OBJECTIVES.values():
        value = row.arm.estimate(objective)
        interval = None if value is None else value.interval
        found |= {
            objective.column: None if value is None else value.mean,
            f"{objective.column}_low": None if interval is None else interval.low,
            f"{objective.column}_high": None if interval is None else interval.high,
        }
    versus = row.versus_best
    if versus is not None:
        difference = versus.comparison.difference
        found |= {
            "decided_by": versus.objective.name,
            "best_minus_this": difference.mean,
            "best_minus_this_low": difference.interval and difference.interval.low,
            "best_minus_this_high": difference.interval and difference.interval.high,
            "best_beats_this_ratio": versus.beats_ratio,
            "ties_with_best": versus.is_tie,
        }
    return found


def _schema(rows: Sequence[Ranked]) -> pa.Schema:
    columns = rows[0].arm.columns if rows else {}
    ends = ("", "_low", "_high")
    numbers = [f"{objective.column}{end}" for objective in OBJECTIVES.values() for end in ends]
    return pa.schema(
        [
            ("place", pa.int64()),
            ("arm", pa.string()),
            *((name, pa.infer_type([row.arm.columns[name] for row in rows])) for name in columns),
            ("status", pa.string()),
            ("num_seeds", pa.int64()),
            *((name, pa.float64()) for name in numbers),
            ("decided_by", pa.string()),
            ("best_minus_this", pa.float64()),
            ("best_minus_this_low", pa.float64()),
            ("best_minus_this_high", pa.float64()),
            ("best_beats_this_ratio", pa.float64()),
            ("ties_with_best", pa.bool_()),
        ]
    )


def page(
    name: str,
    ranking: Ranking,
    *,
    common: Iterable[str],
    axes: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
    notes: Iterable[str],
    trace_notes: Iterable[str],
    warnings: Iterable[tuple[str, str]],
) -> str:
    """Return the one-page summary as Markdown.

    Parameters
    ----------
    name, ranking
        The sweep and its ranking.
    common
        What all arms have in common, as lines.
    axes
        Values of each column that was varied.
    seeds
        Seeds of every arm.
    notes
        Sentences that belong to the sweep as a whole.
    trace_notes
        What the reader of the trace had to decide; equal ones are told once.
    warnings
        Pairs of arm and sentence; equal sentences are told once, with how many arms they concern.
    """
    objective = ranking.objective
    better = "higher" if objective.higher_is_better else "lower"
    parts = [
        f"# Sweep {name}",
        "",
        f"{len(ranking.rows)} arms, {len(seeds)} seeds ({', '.join(map(str, seeds))}), ranked by "
        f"{objective.name}: {objective.meaning} ({better} is better).",
        "",
        *(f"- {line}" for line in common),
        *(f"- varied: `{column}` = {', '.join(map(str, of))}" for column, of in axes.items()),
        "",
        *_table(ranking),
        "",
        verdict(ranking),
        "",
        "## How to read it",
        "",
        f"- {method_note(ranking.num_draws)} Each comparison stands for itself.",
        "- Arms share a place when the best of the place does not differ from them: the interval "
        f"of the difference holds zero, or the difference is too small to matter ({_small()}).",
        "- Differences of hits and waste are in percentage points.",
        *(f"- {note}" for note in [*ranking.notes, *notes]),
    ]
    if traced := list(dict.fromkeys(trace_notes)):
        parts += ["", "## Workload", "", *(f"- {note}" for note in traced[:_MAX_NOTES])]
        if more := len(traced) - _MAX_NOTES:
            parts += [f"- and {more} more notes; see cells/*/summary.json."] if more > 0 else []
    told = list(_told(warnings))
    if told:
        parts += ["", "## Warnings", "", *told]
    return "\n".join(parts) + "\n"


def verdict(ranking: Ranking) -> str:
    """Say in a sentence who won, by how much and how surely."""
    ranked = ranking.ranked
    if not ranked:
        return "Nothing is ranked."
    best = ranked[0].arm.label
    tied = [row.arm.label for row in ranked[1:] if row.place == 1]
    start = f"**{best}** comes first"
    if tied:
        start = f"**{best}** and {_and(tied)} tie for the first place"
    beaten = next((row for row in ranked if row.place != 1), None)
    if beaten is None or beaten.versus_best is None:
        return f"{start}."
    return f"{start}; {sentence(best, beaten.arm.label, beaten.versus_best)}."


def sentence(better: str, other: str, versus: Versus) -> str:
    """Say how one arm compares with another: "A beats B with 97 %", or that they tie."""
    objective = versus.objective
    difference = versus.comparison.difference
    by = f"by {_signed(objective, difference)} {objective.title}"
    if versus.is_tie:
        return f"{better} and {other} tie ({by})"
    if versus.beats_ratio is None:
        return f"{better} is ahead of {other} {by}, on a single draw"
    return f"{better} beats {other} with {percent(versus.beats_ratio)} {by}"


def percent(ratio: float) -> str:
    """Return a probability for people: never 100 %, which no finite number of seeds can show."""
    return "> 99.9 %" if ratio > 0.999 else f"{100 * ratio:.3g} %"


def _table(ranking: Ranking) -> list[str]:
    objective = ranking.objective
    beside = [other for other in (HIT_RATIO, WASTE) if other is not objective]
    head = ["place", "arm", objective.title, *(other.title for other in beside), "against the best"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    best = ranking.ranked[0].arm.label if ranking.ranked else ""
    for row in ranking.rows:
        cells = [
            str(row.place) if row.place else "-",
            row.arm.label,
            *(shown(other, row.arm.estimate(other)) for other in (objective, *beside)),
            _against(best, row),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _against(best: str, row: Ranked) -> str:
    if row.status == "overloaded":
        return f"**overloaded** at {row.arm.num_overloaded} of {row.arm.num_seeds} seeds"
    if row.status == "incomplete":
        return "not ranked"
    if row.versus_best is None:
        return "the best"
    versus = row.versus_best
    difference = _signed(versus.objective, versus.comparison.difference, flip=True)
    by = f"{difference} {versus.objective.title}"
    if versus.is_tie:
        return f"tie ({by})"
    sure = "" if versus.beats_ratio is None else f", worse with {percent(versus.beats_ratio)}"
    return f"{by}{sure}"


def shown(objective: Objective, value: Estimate | None) -> str:
    """Return a mean and half the width of its interval, in the objective's unit for people."""
    if value is None:
        return "-"
    mean = f"{value.mean * objective.scale:.4g}"
    if value.interval is None:
        return mean
    half = (value.interval.high - value.interval.low) / 2
    return f"{mean} ± {half * objective.scale:.2g}"


def _signed(objective: Objective, value: Estimate, *, flip: bool = False) -> str:
    scale = -objective.scale if flip else objective.scale
    mean = _with_sign(scale * value.mean)
    if value.interval is None:
        return mean
    low, high = sorted(scale * end for end in (value.interval.low, value.interval.high))
    return f"{mean} [{_with_sign(low)}, {_with_sign(high)}]"


def _with_sign(value: float) -> str:
    return f"{value:+.3g}" if value else "0"


def _small() -> str:
    points = HIT_RATIO.absolute_threshold * HIT_RATIO.scale
    relative = f"{100 * RELATIVE_THRESHOLD_RATIO:g} % of the value"
    return f"{relative}; for hits and waste {points:g} points"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _told(warnings: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Tell each kind of warning once, by its largest numbers: kinds differ in more than numbers."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for arm, text in dict.fromkeys(warnings):
        kinds.setdefault(_NUMBER.sub("#", text), []).append((arm, text))
    for told, alike in enumerate(kinds.values()):
        if told == _MAX_WARNINGS:
            yield f"- and {len(kinds) - told} more kinds of warning; see cells/*/summary.json."
            return
        arms = len(dict.fromkeys(arm for arm, _ in alike))
        concerned = f"{arms} arm{'s' if arms > 1 else ''}"
        arm, most = max(alike, key=lambda pair: _numbers(pair[1]))
        if len({text for _, text in alike}) > 1:
            concerned += f"; the largest numbers, of {arm}"
        yield f"- {most} ({concerned})"


def _numbers(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def granularity_notes(
    granularity_tokens: Iterable[int], columns: Mapping[str, Sequence[Any]]
) -> list[str]:
    """Warn of block sizes that the trace's content cannot tell apart.

    Parameters
    ----------
    granularity_tokens
        Of the traces of the cells; 0 is a trace without content.
    columns
        Values of each column that was varied.
    """
    coarsest = max(granularity_tokens, default=1)
    sizes = sorted(size for size in columns.get(BLOCK_AXIS, ()) if isinstance(size, int))
    below = [size for size in sizes if size < coarsest]
    if not below:
        return []
    lie = "lies" if len(below) == 1 else "lie"
    return [
        f"The content of the trace is known in pieces of {coarsest} tokens: block size"
        f"{'' if len(below) == 1 else 's'} {_and([str(size) for size in below])} {lie} below that, "
        f"so prefix hits cannot tell them apart, nor from {coarsest}."
    ]
