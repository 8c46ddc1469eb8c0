"""Everything that is predicted and compared, computed once: tables, and what figures draw."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simkv.config.build import build_cost_model, build_served
from simkv.cost.choice import Linear
from simkv.fidelity import cards, engine
from simkv.fidelity.cards import CARDS, RTX_4090, Card, Predicted
from simkv.fidelity.outcome import (
    LABELS,
    METRICS,
    absolute_error_percent,
    error_percent,
    statistics,
)
from simkv.fidelity.stamps import step_errors

# The publisher's simulator with its own default pool instead of the measured one: its errors in
# percent (README of LLMServingSim's bench/examples, commit 5daddb2).
WRONG_BLOCKS = 3400
PUBLISHED_DAMAGE = {"ttft_s": -20.7, "tpot_s": 12.9, "e2e_s": -12.5}


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Tables of numbers; ``curves`` holds metrics a request by (run, who)."""

    replays: pd.DataFrame
    recipes: pd.DataFrame
    chosen: str
    cost: Linear
    engine: pd.DataFrame
    cards: dict[str, pd.DataFrame]
    peaks: pd.DataFrame
    damage: pd.DataFrame
    steps: pd.DataFrame
    curves: dict[str, dict[str, pd.DataFrame]]

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return every table by the name of its file."""
        return {
            "replay": self.replays,
            "step_models": self.recipes,
            "cpu_engine": self.engine,
            **{f"{name.lower().replace(' ', '_')}": table for name, table in self.cards.items()},
            "peaks": self.peaks,
            "wrong_blocks": self.damage,
            "single_steps": self.steps,
        }


def write(results: Results, folder: Path) -> list[Path]:
    """Write every table and the metrics of every request as CSV; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, table in results.tables().items():
        files.append(folder / f"{name}.csv")
        keyed = not isinstance(table.index, pd.RangeIndex)
        table.to_csv(files[-1], index=keyed, float_format="%.6g")
    files.append(folder / "requests.csv")
    by_run = {run: pd.concat(by_whom) for run, by_whom in results.curves.items()}
    every = pd.concat(by_run, names=["run", "by", "request"])
    every.to_csv(files[-1], float_format="%.6g")
    return files


def compute(data: Path) -> Results:
    """Run every comparison; ``data`` is the folder that SIMKV_DATA names."""
    served, predicted = engine.read_run(data, engine.SERVED), engine.read_run(data, "val_rate")
    micro = engine.read_steps(data, engine.MICRO)
    recipes = engine.cross_validate(served.steps, micro)
    chosen = engine.choose(recipes)
    cost = engine.calibrate(engine.RECIPES[chosen], served, micro)
    baseline = engine.calibrate(engine.RECIPES[engine.BASELINE], served, micro)
    measured, repeated = predicted.measured(), engine.repetition(data)
    by_model = {chosen: engine.predict(predicted, cost),
                engine.BASELINE: engine.predict(predicted, baseline)}  # fmt: skip
    curves = {
        "vLLM 0.32 on a CPU core": {
            "measured": measured,
            "measured again": repeated,
            "simkv": by_model[chosen],
        }
    }
    tables, runs = {}, {}
    for card in CARDS:
        runs[card.title] = cards.predict(card, data, card.config(data))
        tables[card.title] = _card_table(card, data, runs[card.title])
        curves[card.title] = {
            "measured": card.measured(data),
            "simkv": runs[card.title].metrics,
            "LLMServingSim": card.peer(data),
        }
    return Results(
        replays=_replays({engine.SERVED: served, engine.PREDICTED: predicted}),
        recipes=recipes,
        chosen=chosen,
        cost=cost,
        engine=_engine_table(measured, repeated, by_model),
        cards=tables,
        peaks=_peaks(data, runs),
        damage=_damage(data),
        steps=_single_steps(data, runs),
        curves=curves,
    )


def _replays(runs: dict[str, engine.Run]) -> pd.DataFrame:
    rows = [
        {
            "run": name,
            "manager": manager,
            "steps": len(run.steps),
            "equal": engine.num_equal(run, engine.replay(run, manager)),
        }
        for name, run in runs.items()
        for manager in engine.MANAGERS
    ]
    return pd.DataFrame(rows)


def _engine_table(
    measured: pd.DataFrame, repeated: pd.DataFrame, by_model: dict[str, pd.DataFrame]
) -> pd.DataFrame:
    """Return error of the mean against both runs' average, and mean absolute error a request."""
    average = (measured.mean() + repeated.mean()) / 2
    rows = [
        {
            "predicted by": name,
            **{f"{metric} mean": 100 * (found[metric].mean() / average[metric] - 1)
               for metric in METRICS},
            **{f"{metric} a request": absolute_error_percent(found, measured)[metric]
               for metric in METRICS},
        }
        for name, found in {**by_model, "its repetition": repeated}.items()
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("predicted by")


def _card_table(card: Card, data: Path, run: Predicted) -> pd.DataFrame:
    """Return the 15 statistics measured, and the errors of every prediction in percent."""
    measured = statistics(card.measured(data))
    variants = {
        "simkv": run,
        "simkv, synchronous": cards.predict(card, data, card.config(data, async_scheduling=False)),
        "simkv, no prefix cache": cards.predict(
            card, data, card.config(data, prefix_caching=False)
        ),
    }
    errors = {n: error_percent(statistics(v.metrics), measured) for n, v in variants.items()}
    errors["LLMServingSim"] = error_percent(statistics(card.peer(data)), measured)
    return pd.DataFrame({"measured_ms": 1e3 * measured, **errors})


def _peaks(data: Path, runs: dict[str, Predicted]) -> pd.DataFrame:
    rows = []
    for card in CARDS:
        load, run = card.load(data), runs[card.title]
        rows.append(
            {
                "card": card.title,
                "running, measured": int(load.running.max()),
                "running": run.peak_running,
                "waiting, measured": int(load.waiting.max()),
                "waiting": run.peak_waiting,
                "preemptions": run.num_preemptions,
            }
        )
    return pd.DataFrame(rows).set_index("card")


def _damage(data: Path) -> pd.DataFrame:
    """Return the errors of the mean with a pool of the wrong size, ours and the publisher's."""
    config = RTX_4090.config(data, num_blocks=WRONG_BLOCKS)
    found = cards.predict(RTX_4090, data, config).metrics.mean()
    errors = error_percent(found, RTX_4090.measured(data).mean())
    return pd.DataFrame(
        {"simkv": errors, "LLMServingSim, published": pd.Series(PUBLISHED_DAMAGE)}
    ).rename(index=LABELS)


def _single_steps(data: Path, runs: dict[str, Predicted]) -> pd.DataFrame:
    found = {}
    for card in CARDS:
        config = card.config(data)
        cost = build_cost_model(config, build_served(config))
        hits = runs[card.title].hit_tokens
        found[card.title] = step_errors(cost, card.requests(data), hits)
    return pd.concat(found, names=["card", "kind"])
