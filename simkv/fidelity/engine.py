"""The real vLLM 0.32 engine on one CPU core: its plans replayed, its latencies predicted.

Reads ``vllm-v1/e2e-cpu`` under the folder that SIMKV_DATA names: the steps and requests of two
calibration runs (``cal_``), of one to predict, and of that one's repetition.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from simkv.config.run import RunConfig
from simkv.cost.choice import Linear
from simkv.fidelity.outcome import outcome, simulated
from simkv.fit.steps import SEVEN_TERMS, SIX_TERMS, Recipe, Steps, fit, left_out
from simkv.kv.layout import Paged
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.scheduler import Scheduler
from simkv.sim.cases import Case, build_case, read_case
from simkv.sim.simulate import simulate
from simkv.workload.radix import compress
from simkv.workload.trace import make_trace

FOLDER = ("vllm-v1", "e2e-cpu")
SERVED = "cal_serve"
MICRO = "cal_micro"
PREDICTED = "val_rate"
REPETITION = "val_rate_rep"

RECIPES = {
    "six terms, weighted by measured time": Recipe(terms=SIX_TERMS, weight_by_measured=True),
    "six terms": Recipe(terms=SIX_TERMS),
    "seven terms, weighted by measured time": Recipe(terms=SEVEN_TERMS, weight_by_measured=True),
    "seven terms": Recipe(terms=SEVEN_TERMS),
}
"""Candidates; the seventh term is a constant for steps with both prefills and decodes."""

BASELINE = "six terms, weighted by measured time"

MANAGERS: tuple[Literal["accounts", "blocks"], ...] = ("accounts", "blocks")

COMPARED = ("prefill_reqs", "prefill_tokens", "prefill_ctx", "prefill_qk", "decode_reqs",
            "decode_ctx", "running", "waiting", "admitted", "preempted", "free")  # fmt: skip
"""Columns of a step log that the plans must equal."""

# Blocks that the served calibration run is cut into; each is predicted without having been seen.
_NUM_BLOCKS = 10

_KEYS = ("block_size", "num_gpu_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len",
         "enable_prefix_caching", "async_scheduling")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One served run: its settings, its workload lines, its requests and its steps, as logged."""

    config: dict[str, Any]
    lines: list[dict[str, Any]]
    requests: pd.DataFrame
    steps: pd.DataFrame

    def case(self, manager: Literal["accounts", "blocks"] = "accounts") -> Case:
        """Build its scheduler and requests."""
        timed = {"base": 0.0, "prefill": 0.0, "decode": 0.0, "ctx": 0.0}
        return build_case({**self.config, "cost": timed}, self.lines, manager)

    def measured(self) -> pd.DataFrame:
        """Return the metrics of its requests."""
        return self.requests[["ttft", "tpot", "e2e"]].set_axis(
            ["ttft_s", "tpot_s", "e2e_s"], axis="columns"
        )


def read_run(data: Path, name: str) -> Run:
    """Read a served run."""
    folder = data.joinpath(*FOLDER)
    meta, lines = read_case(folder / f"{name}.meta.json", folder / f"{name}.workload.jsonl.gz")
    return Run(
        config={key: meta[key] for key in _KEYS},
        lines=lines,
        requests=pd.read_csv(folder / f"{name}.requests.csv"),
        steps=read_steps(data, name),
    )


def read_steps(data: Path, name: str) -> pd.DataFrame:
    """Read the steps of a run."""
    return pd.read_csv(data.joinpath(*FOLDER, f"{name}.steps.csv"))


def repetition(data: Path) -> pd.DataFrame:
    """Return the metrics of the predicted run's repetition."""
    table = pd.read_csv(data.joinpath(*FOLDER, f"{REPETITION}.requests.csv"))
    return outcome(
        *(table[name].to_numpy() for name in ("arrival", "t_first", "t_finish", "output_len"))
    )


def replay(run: Run, manager: Literal["accounts", "blocks"] = "accounts") -> pd.DataFrame:
    """Plan every step at the engine's own times; return what was planned, in the log's columns.

    A request is released when the engine had been given it at the start of the step.
    """
    case = run.case(manager)
    added_s = run.requests.t_add.to_numpy()
    order = np.argsort(added_s, kind="stable").tolist()
    planned, due = [], 0
    for start_s, end_s in zip(run.steps.t0.tolist(), run.steps.t1.tolist(), strict=True):
        while due < len(order) and added_s[order[due]] <= start_s:
            case.scheduler.add(case.lines[order[due]].request)
            due += 1
        plan = case.scheduler.plan(start_s)
        planned.append(_columns(plan, case.scheduler))
        case.scheduler.commit(plan, StepResult(end_s=end_s))
    return pd.DataFrame(planned, columns=COMPARED)


def num_equal(run: Run, planned: pd.DataFrame) -> int:
    """Return how many steps have every column as in the log."""
    logged = run.steps[list(COMPARED)].to_numpy()
    return int((logged == planned.to_numpy()).all(axis=1).sum())


def _columns(plan: StepPlan, scheduler: Scheduler) -> tuple[int, ...]:
    chunks = plan.work.prefills
    return (
        len(chunks),
        sum(new for new, _ in chunks),
        sum(new + cached for new, cached in chunks),
        sum(new * cached + new * (new + 1) // 2 for new, cached in chunks),
        plan.work.num_decodes,
        plan.work.decode_context_tokens,
        len(scheduler.running),
        len(scheduler.waiting),
        len(plan.new) + len(plan.resumed),
        len(plan.preempted),
        scheduler.kv.num_free_blocks,
    )


def fit_columns(steps: pd.DataFrame) -> Steps:
    """Return a step log as the fit takes it."""
    columns = {
        "step_s": steps.t1 - steps.t0,
        "prefill_tokens": steps.prefill_tokens,
        "pairs": steps.prefill_qk,
        "prefills": steps.prefill_reqs,
        "decodes": steps.decode_reqs,
        "context_tokens": steps.prefill_ctx + steps.decode_ctx,
    }
    return Steps(**{name: values.to_numpy(np.float64) for name, values in columns.items()})


def cross_validate(served: pd.DataFrame, micro: pd.DataFrame) -> pd.DataFrame:
    """Return, for each recipe, how its fits predict steps that they have not seen, in percent.

    The error of the total time of steps with a prefill, of steps without, of all, and the mean
    absolute error of a step.
    """
    log, other = fit_columns(served), fit_columns(micro)
    prefilling = log.prefills > 0
    rows = {}
    for name, recipe in RECIPES.items():
        predicted = left_out(recipe, log, other, num_blocks=_NUM_BLOCKS)
        totals = [
            predicted[kept].sum() / log.step_s[kept].sum() - 1.0
            for kept in (prefilling, ~prefilling, np.ones_like(prefilling))
        ]
        single = np.abs(predicted / log.step_s - 1.0).mean()
        rows[name] = [100.0 * error for error in (*totals, single)]
    columns = ["with_prefill", "without_prefill", "all_steps", "single_step"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def choose(errors: pd.DataFrame) -> str:
    """Return the recipe whose worse kind of step, with a prefill or without, is predicted best."""
    worse = errors[["with_prefill", "without_prefill"]].abs().max(axis=1)
    return str(worse.idxmin())


def calibrate(recipe: Recipe, run: Run, micro: pd.DataFrame) -> Linear:
    """Fit step times on both calibration runs, and the time between steps on the served one.

    The engine takes in requests between steps: that is a time a step, a request and a prompt
    token. Nothing waits in the queue here, so what is taken in is prefilled in the next step, and
    its time is added to that step's.
    """
    cost = fit(recipe, fit_columns(run.steps), fit_columns(micro))
    step_s, request_s, token_s = between_steps(run)
    return replace(
        cost,
        base_s=_rounded(cost.base_s + step_s),
        prefill_s=_rounded(cost.prefill_s + request_s),
        prefill_token_s=_rounded(cost.prefill_token_s + token_s),
    )


def between_steps(run: Run) -> tuple[float, float, float]:
    """Return the time between two steps: a step, a request taken in, a token of its prompt."""
    start_s, end_s = run.steps.t0.to_numpy(), run.steps.t1.to_numpy()
    step = np.searchsorted(start_s, run.requests.t_add.to_numpy())
    requests = np.bincount(step, minlength=len(start_s))
    tokens = np.bincount(step, run.requests.prompt_len.to_numpy(), len(start_s))
    first_s = np.full(len(start_s), np.inf)
    np.minimum.at(first_s, step, run.requests.arrival.to_numpy())
    # After an idle time the engine wakes with the first arrival.
    before_s = np.concatenate([[0.0], end_s[:-1]])
    idle = (requests > 0) & (first_s > before_s)
    gap_s = start_s - np.where(idle, first_s, before_s)
    columns = np.column_stack([np.ones_like(gap_s), requests, tokens])
    found = np.linalg.lstsq(columns, gap_s, rcond=None)[0]
    per_step, per_request, per_token = (_rounded(value) for value in found.tolist())
    return per_step, per_request, per_token


def predict(run: Run, cost: Linear) -> pd.DataFrame:
    """Simulate a run from its arrivals alone; return the metrics of its requests."""
    config = RunConfig(
        kv=Paged(block_tokens=run.config["block_size"], num_blocks=run.config["num_gpu_blocks"]),
        sched=VllmV1(
            max_num_batched_tokens=run.config["max_num_batched_tokens"],
            max_num_seqs=run.config["max_num_seqs"],
            max_model_len=run.config["max_model_len"],
        ),
        cost=cost,
    )
    prompts = [sum(n for _, n in line["segments"]) for line in run.lines]
    tokens = [
        np.concatenate([np.arange(first, first + n) for first, n in line["segments"]]
                       + [np.arange(line["output_len"]) + line["output_start"]])
        for line in run.lines
    ]  # fmt: skip
    trace = make_trace(
        prompt_tokens=prompts,
        output_tokens=[line["output_len"] for line in run.lines],
        arrival_s=[line["arrival_time"] for line in run.lines],
        segments=compress(tokens, [[prompt] for prompt in prompts]),
        granularity_tokens=1,
    )
    return simulated(simulate(config, trace).requests)


def _rounded(seconds: float) -> float:
    return float(f"{max(0.0, seconds):.4g}")
