import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from simkv.obs.stats import compare
from simkv.sweep import tables
from simkv.sweep.objective import GOODPUT, HIT_RATIO, P99_TTFT, WASTE
from simkv.sweep.rank import rank
from simkv.sweep.report import granularity_notes, page, percent, ranking_table, sentence, verdict

SEEDS = (0, 1, 2, 3, 4)


def table(
    arms: Mapping[str, Mapping[str, Any]], *, axes: Sequence[Sequence[str]] = (("axis",),)
) -> pa.Table:
    """Build a cell table: what is a list has a value a seed, the rest is the same at every seed."""
    rows = [
        {
            "cell": f"{arm}-{seed}",
            "arm": arm,
            "axis": arm,
            "seed": seed,
            "overloaded": False,
            **{key: value[at] if isinstance(value, list) else value for key, value in cols.items()},
        }
        for arm, cols in arms.items()
        for at, seed in enumerate(SEEDS)
    ]
    said = {"axes": axes, "step_time_knows_block_tokens": False}
    return pa.Table.from_pylist(rows).replace_schema_metadata({b"simkv.sweep": json.dumps(said)})


DRAW = [10.0, 20.0, 30.0, 40.0, 50.0]


def test_what_the_draw_hides_the_pairs_show() -> None:
    cells = table(
        {
            "slow": {"goodput_requests_per_s": DRAW},
            "fast": {"goodput_requests_per_s": [value + 1 for value in DRAW]},
        }
    )
    found = rank(cells, GOODPUT)
    assert [(row.place, row.arm.label) for row in found.rows] == [(1, "fast"), (2, "slow")]
    assert found.rows[1].versus_best is not None
    assert found.rows[1].versus_best.beats_ratio == 1
    assert "> 99.9 %" in verdict(found)


def test_the_probability_is_that_of_the_paired_test() -> None:
    better, worse = [5.0, 6.1, 7.2, 8.0, 9.4], [4.8, 6.0, 6.5, 8.1, 8.7]
    cells = table({"a": {"ttft_p99_s": worse}, "b": {"ttft_p99_s": better}})
    found = rank(cells, P99_TTFT)  # lower is better
    assert found.rows[0].arm.label == "a"
    versus = found.rows[1].versus_best
    assert versus is not None
    more_ratio = compare(better, worse).more_ratio
    assert more_ratio is not None
    assert versus.beats_ratio == pytest.approx(more_ratio)
    assert 0.9 < more_ratio < 0.999


def test_ties_share_a_place_and_the_next_place_counts_them() -> None:
    noise = [0.4, -0.5, 0.3, -0.4, 0.25]
    cells = table(
        {
            "third": {"goodput_requests_per_s": [value - 5 for value in DRAW]},
            "first": {"goodput_requests_per_s": DRAW},
            "also first": {
                "goodput_requests_per_s": [v - n for v, n in zip(DRAW, noise, strict=True)]
            },
        }
    )
    found = rank(cells, GOODPUT)
    assert [(row.place, row.arm.label) for row in found.rows] == [
        (1, "first"),
        (1, "also first"),
        (3, "third"),
    ]
    assert "tie for the first place" in verdict(found)
    assert found.rows[1].versus_best is not None
    assert "tie" in sentence("first", "also first", found.rows[1].versus_best)


def test_a_difference_too_small_to_matter_is_a_tie_however_sure() -> None:
    cells = table(
        {
            "a": {"goodput_requests_per_s": 100.05},
            "b": {"goodput_requests_per_s": 100.0},
            "c": {"goodput_requests_per_s": 99.0},
        }
    )
    assert [row.place for row in rank(cells, GOODPUT).rows] == [1, 1, 3]
    cells = table({"a": {"memory_waste_ratio": 0.0001}, "b": {"memory_waste_ratio": 0.0004}})
    assert [row.place for row in rank(cells, WASTE).rows] == [1, 1]


def test_an_overloaded_arm_comes_last_is_named_and_not_averaged() -> None:
    cells = table(
        {
            "drowned": {
                "goodput_requests_per_s": [value * 9 for value in DRAW],
                "overloaded": [False, True, False, False, False],
            },
            "calm": {"goodput_requests_per_s": DRAW},
        }
    )
    found = rank(cells, GOODPUT)
    assert [row.arm.label for row in found.rows] == ["calm", "drowned"]
    assert found.rows[1].place is None
    assert found.rows[1].status == "overloaded"
    assert "drowned was overloaded at 1 of 5 seeds" in " ".join(found.notes)
    assert ranking_table(found)["goodput_requests_per_s"].to_pylist() == [30.0, None]
    text = page("x", found, common=[], axes={}, seeds=SEEDS, notes=[], trace_notes=[], warnings=[])
    assert "**overloaded** at 1 of 5 seeds" in text
    assert "270" not in text  # its mean


def test_when_every_arm_is_overloaded_nothing_is_ranked() -> None:
    found = rank(table({"a": {"overloaded": True, "goodput_requests_per_s": 1.0}}), GOODPUT)
    assert not found.ranked
    assert "rate_scale" in " ".join(found.notes)
    assert verdict(found) == "Nothing is ranked."


def test_an_arm_without_all_its_values_is_not_ranked() -> None:
    cells = table({"a": {"hit_ratio": 0.5}, "b": {"hit_ratio": [0.9, None, 0.9, 0.9, 0.9]}})
    found = rank(cells, HIT_RATIO)
    assert [(row.arm.label, row.status) for row in found.rows] == [
        ("a", "ranked"),
        ("b", "incomplete"),
    ]


def test_one_seed_orders_without_certainty() -> None:
    cells = table({"a": {"hit_ratio": 0.5}, "b": {"hit_ratio": 0.6}})
    found = rank(cells.filter(pa.compute.equal(cells["seed"], 0)), HIT_RATIO)
    assert [(row.place, row.arm.label) for row in found.rows] == [(1, "b"), (2, "a")]
    assert found.rows[1].versus_best is not None
    assert found.rows[1].versus_best.beats_ratio is None
    assert "on a single draw" in verdict(found)


def test_seeds_that_change_nothing_are_one_draw_and_give_no_certainty() -> None:
    found = rank(table({"a": {"hit_ratio": 0.5}, "b": {"hit_ratio": 0.6}}), HIT_RATIO)
    assert (found.num_seeds, found.num_draws) == (5, 1)
    assert [row.arm.label for row in found.rows] == ["b", "a"]
    versus = found.rows[1].versus_best
    assert versus is not None
    assert versus.comparison.difference.interval is None
    assert versus.beats_ratio is None
    assert "count as one draw" in found.notes[-1]
    text = page("x", found, common=[], axes={}, seeds=SEEDS, notes=[], trace_notes=[], warnings=[])
    assert "±" not in text
    assert "worse with" not in text


def test_one_arm_that_varies_makes_the_seeds_count() -> None:
    hits = [0.6, 0.6, 0.6, 0.6, 0.61]
    found = rank(table({"a": {"hit_ratio": 0.5}, "b": {"hit_ratio": hits}}), HIT_RATIO)
    assert found.num_draws == 5
    assert found.rows[1].versus_best is not None
    assert found.rows[1].versus_best.beats_ratio is not None


def test_no_difference_has_no_sign() -> None:
    found = rank(table({arm: {"goodput_requests_per_s": DRAW} for arm in "ab"}), GOODPUT)
    text = page("x", found, common=[], axes={}, seeds=SEEDS, notes=[], trace_notes=[], warnings=[])
    assert "tie (0 [0, 0] goodput (requests/s))" in text


def test_notes_that_are_too_many_are_counted() -> None:
    found = rank(blocks_table(), GOODPUT)
    notes = [f"drawn with seed {seed}" for seed in range(20)]
    text = page(
        "x", found, common=[], axes={}, seeds=SEEDS, notes=[], trace_notes=notes, warnings=[]
    )
    assert text.count("drawn with seed") == 12
    assert "and 8 more notes" in text


BLOCKS = {
    # Goodput is wrong about block sizes on purpose: step time does not know them.
    "none 16": (16, "none", 1.0, 0.0, 0.05),
    "none 64": (64, "none", 9.0, 0.0, 0.20),
    "hash 16": (16, "hash-chain", 5.0, 0.5, 0.05),
    "hash 64": (64, "hash-chain", 4.0, 0.5, 0.20),
    "hash 128": (128, "hash-chain", 6.0, 0.4, 0.01),
}


def blocks_table() -> pa.Table:
    return table(
        {
            arm: {
                "kv.block_tokens": size,
                "kv.sharing.kind": sharing,
                "goodput_requests_per_s": goodput,
                "hit_ratio": hits,
                "memory_waste_ratio": waste,
            }
            for arm, (size, sharing, goodput, hits, waste) in BLOCKS.items()
        },
        axes=(("kv.block_tokens",), ("kv.sharing.kind",)),
    )


def test_block_sizes_are_ranked_on_hits_then_waste_where_step_time_is_blind() -> None:
    found = rank(blocks_table(), GOODPUT)
    assert [(row.place, row.arm.label) for row in found.rows] == [
        (1, "hash 16"),  # as many hits as 64, less waste; beats "none 16" on goodput
        (2, "hash 64"),
        (3, "hash 128"),
        (4, "none 16"),
        (5, "none 64"),
    ]
    deciding = [row.versus_best.objective.name for row in found.rows if row.versus_best]
    assert deciding == ["waste", "hit-ratio", "goodput", "goodput"]
    assert "step time does not depend on it" in found.notes[0]


def test_choices_that_tie_on_the_objective_are_told_apart_by_memory_too() -> None:
    cells = table(
        {
            arm: {
                "kv.block_tokens": size,
                "kv.sharing.kind": sharing,
                "goodput_requests_per_s": DRAW,
                "hit_ratio": hits,
                "memory_waste_ratio": waste,
            }
            for arm, (size, sharing, _, hits, waste) in BLOCKS.items()
        },
        axes=(("kv.block_tokens",), ("kv.sharing.kind",)),
    )
    found = rank(cells, GOODPUT)
    assert [row.arm.label for row in found.rows] == [
        "hash 16",
        "hash 64",
        "hash 128",
        "none 16",
        "none 64",
    ]
    deciding = [row.versus_best.objective.name for row in found.rows if row.versus_best]
    assert deciding == ["waste", "hit-ratio", "hit-ratio", "hit-ratio"]


def test_warnings_that_differ_in_numbers_only_are_told_once() -> None:
    found = rank(blocks_table(), GOODPUT)
    warnings = [("a", "asked up to 3,042 (1 times)"), ("b", "asked up to 18,190 (10 times)")]
    text = page(
        "x", found, common=[], axes={}, seeds=SEEDS, notes=[], trace_notes=[], warnings=warnings
    )
    told = [line for line in text.splitlines() if "asked up to" in line]
    assert told == ["- asked up to 18,190 (10 times) (2 arms; the largest numbers, of b)"]


def test_memory_objectives_rank_all_arms_directly() -> None:
    found = rank(blocks_table(), WASTE)
    assert found.rows[0].arm.label == "hash 128"
    assert "step time does not depend on it" in found.notes[0]
    assert not found.by_memory


def test_pages_and_tables_are_the_same_bytes_every_time() -> None:
    found = rank(blocks_table(), GOODPUT)
    again = rank(blocks_table(), GOODPUT)
    assert tables.csv_bytes(ranking_table(found)) == tables.csv_bytes(ranking_table(again))
    warnings = [("a", "it is hot"), ("b", "it is hot"), ("a", "it is hot")]
    texts = [
        page(
            "x",
            of,
            common=["`model.name` = x"],
            axes={"k": [1, 2]},
            seeds=SEEDS,
            notes=["mind"],
            trace_notes=["words", "words"],
            warnings=warnings,
        )
        for of in (found, again)
    ]
    assert texts[0] == texts[1]
    assert "it is hot (2 arms)" in texts[0]
    assert texts[0].count("- words\n") == 1


def test_no_finite_number_of_seeds_is_certain() -> None:
    assert percent(1.0) == "> 99.9 %"
    assert percent(0.974) == "97.4 %"


def test_block_sizes_below_the_granularity_are_named() -> None:
    told = granularity_notes([512], {"kv.block_tokens": [16, 512, 1024, 64]})
    assert len(told) == 1
    assert "pieces of 512 tokens: block sizes 16 and 64 lie below" in told[0]
    assert granularity_notes([1, 0], {"kv.block_tokens": [1, 16]}) == []
    assert "block size 16 lies below" in granularity_notes([512], {"kv.block_tokens": [16]})[0]


def test_metrics_get_flat_names_with_the_unit_last() -> None:
    nested = {
        "ttft_s": {"p99": 1.0},
        "memory": {"tail_ratio": 0.1},
        "rejected": {"exceeds-pool": 2},
        "makespan_s": 3.0,
    }
    assert dict(tables.flat(nested)) == {
        "ttft_p99_s": 1.0,
        "memory_tail_ratio": 0.1,
        "rejected_exceeds-pool": 2,
        "makespan_s": 3.0,
    }


def test_an_objective_says_what_is_too_small() -> None:
    assert GOODPUT.threshold(-200) == pytest.approx(0.2)
    assert replace(WASTE, absolute_threshold=0.5).threshold(1.0) == 0.5
