"""Takes down what happens in a run, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from simkv.obs.course import Course
from simkv.obs.parts import Parts, Timekeeper
from simkv.obs.schema import MEMORY, REASONS, REQUESTS, SERIES, STATUSES, STEPS
from simkv.obs.series import Floats
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler
from simkv.sched.work import StepWork
from simkv.workload.trace import Trace

_ROWS_AT_ONCE = 4096


@dataclass(slots=True)
class Tables:
    """Everything a run leaves.

    Parameters
    ----------
    requests, memory, steps
        Tables of ``simkv.obs.schema``; steps only where asked for.
    summary
        The metrics of docs/metrics.md, nested by name.
    notes
        What the trace's reader had to decide, as sentences.
    warnings
        What a reader of the results must not miss.
    """

    requests: pa.Table
    memory: pa.Table
    steps: pa.Table | None
    summary: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: list[str] = field(default_factory=list)


class Recorder:
    """Columns of one run, filled as it goes.

    Parameters
    ----------
    trace
        The requests; the table has one row for each, in the same order.
    num_replicas
        Replicas that are recorded.
    warmup_s
        Time before which memory does not count in the means.
    steps
        Whether steps are recorded too.
    """

    def __init__(self, trace: Trace, *, num_replicas: int, warmup_s: float, steps: bool) -> None:
        rows = trace.num_requests
        self.trace = trace
        self.replica = np.full(rows, -1, dtype=np.int32)
        self.times = {
            name: np.full(rows, np.nan)
            for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
        }
        self.hit_tokens = np.zeros(rows, dtype=np.int64)
        self.num_preemptions = np.zeros(rows, dtype=np.int32)
        self.recomputed_tokens = np.zeros(rows, dtype=np.int64)
        self.status = np.full(rows, STATUSES.index("unfinished"), dtype=np.int8)
        self.reason = np.zeros(rows, dtype=np.int8)
        self._courses = [Course(from_s=warmup_s) for _ in range(num_replicas)]
        self.parts = Parts(rows)
        self._timekeepers = [Timekeeper(self.parts) for _ in range(num_replicas)]
        self.num_steps = 0
        self.busy_s = [0.0] * num_replicas
        self._progress: list[tuple[Any, ...]] = []
        self._steps: list[tuple[float, ...]] | None = [] if steps else None

    def course(self, replica: int) -> Course:
        """Return what takes down the queues and memory of a replica."""
        return self._courses[replica]

    def means(self) -> Floats:
        """Return time-weighted means, summed over replicas, in order of ``SERIES``."""
        total: Floats = np.sum([course.means() for course in self._courses], axis=0)
        return total

    def rejection(self, row: int, now_s: float, reason: str) -> None:
        """Note that a request arrived which can never run."""
        self.times["arrival_s"][row] = now_s
        self.status[row] = STATUSES.index("rejected")
        self.reason[row] = REASONS.index(reason)

    def abortion(self, row: int) -> None:
        """Note that a request's client gave up, or gave up the session before the request."""
        self.status[row] = STATUSES.index("aborted")

    def queued(self, replica: int, request: Request) -> None:
        """Note that a request entered a replica's queue."""
        self._timekeepers[replica].arrive(request)

    def planned(self, replica: int, now_s: float, plan: StepPlan) -> None:
        """Note who moved between queue and batch, and what holds the rest."""
        self._timekeepers[replica].plan(now_s, plan)

    def step(
        self,
        replica: int,
        now_s: float,
        step_s: float,
        plan: StepPlan,
        scheduler: Scheduler,
    ) -> None:
        """Note a step that begins now."""
        self._courses[replica].note(now_s, scheduler)
        self.num_steps += 1
        self.busy_s[replica] += step_s
        if self._steps is not None:
            work = plan.work
            self._steps.append(
                (
                    replica,
                    now_s,
                    step_s,
                    len(work.prefills),
                    sum(new for new, _ in work.prefills),
                    work.num_decodes,
                    work.decode_context_tokens,
                    len(plan.new) + len(plan.resumed),
                    len(plan.preempted),
                    len(scheduler.running),
                    len(scheduler.waiting),
                    scheduler.kv.num_free_blocks,
                )
            )

    def steps(
        self,
        replica: int,
        times_s: Sequence[float],
        work: StepWork,
        more_blocks: Sequence[int],
        counters: tuple[int, ...],
        scheduler: Scheduler,
    ) -> None:
        """Note steps on end, in which every sequence decodes, that have begun.

        Parameters
        ----------
        times_s
            Their starts, and the end of the last.
        work
            What the last of them does.
        more_blocks
            Blocks that were taken in each.
        counters
            The memory manager's counters before them.
        """
        num_steps = len(more_blocks)
        self._courses[replica].note_steps(
            times_s[:num_steps],
            more_blocks,
            step_tokens=work.num_decodes,
            counters=counters,
            scheduler=scheduler,
        )
        self.num_steps += num_steps
        self.busy_s[replica] += times_s[-1] - times_s[0]
        if self._steps is None:
            return
        num_free = scheduler.kv.num_free_blocks + sum(more_blocks)
        queues = (len(scheduler.running), len(scheduler.waiting))
        num_decodes, context = work.num_decodes, work.decode_context_tokens
        for step, taken in enumerate(more_blocks):
            num_free -= taken
            start_s, end_s = times_s[step : step + 2]
            at = context - (num_steps - 1 - step) * num_decodes
            decodes = (0, 0, num_decodes, at, 0, 0)
            self._steps.append((replica, start_s, end_s - start_s, *decodes, *queues, num_free))

    def state(self, replica: int, now_s: float, scheduler: Scheduler) -> None:
        """Note what memory and queues are from now on."""
        self._courses[replica].note(now_s, scheduler)

    def progress(self, replica: int, request: Request) -> None:
        """Note what has happened to a request that finished, or is cut off by the run's end."""
        self._timekeepers[replica].finish(request)
        self._progress.append(
            (
                request.id,
                replica,
                request.arrival_s,
                request.first_scheduled_s,
                request.first_token_s if request.output_tokens else None,
                request.finish_s,
                request.hit_tokens,
                request.num_preemptions,
                request.recomputed_tokens,
            )
        )
        if len(self._progress) >= _ROWS_AT_ONCE:
            self._write_progress()

    def _write_progress(self) -> None:
        """Write the noted requests into the columns."""
        if not self._progress:
            return
        rows, replicas, *times, hits, preemptions, recomputed = zip(*self._progress, strict=True)
        at = np.array(rows)
        self.replica[at] = replicas
        for name, column in zip(self.times, times, strict=True):
            self.times[name][at] = np.array(column, dtype=np.float64)
        ended = at[~np.isnan(self.times["finish_s"][at])]
        self.status[ended] = STATUSES.index("finished")
        self.hit_tokens[at] = hits
        self.num_preemptions[at] = preemptions
        self.recomputed_tokens[at] = recomputed
        self._progress.clear()

    def close(self, now_s: float) -> Tables:
        """End every open interval and return the tables."""
        self._write_progress()
        for course in self._courses:
            course.close(now_s)
        return Tables(self._requests(), self._memory(), self._step_table())

    def _requests(self) -> pa.Table:
        trace, times = self.trace, self.times
        parts = self.parts.columns(
            scheduled_s=times["first_scheduled_s"],
            first_token_s=times["first_token_s"],
            finish_s=times["finish_s"],
            preempted=self.num_preemptions,
        )
        columns: dict[str, Any] = {
            "request": np.arange(trace.num_requests),
            "session": trace.session,
            "turn": trace.turn,
            "tenant": trace.tenant,
            "priority": trace.priority,
            "replica": self.replica,
            "prompt_tokens": trace.prompt_tokens,
            "output_tokens": trace.output_tokens,
            **{name: _known(column) for name, column in times.items()},
            "hit_tokens": self.hit_tokens,
            "num_preemptions": self.num_preemptions,
            "recomputed_tokens": self.recomputed_tokens,
            **{name: _known(column) for name, column in parts.items()},
            "status": pa.DictionaryArray.from_arrays(self.status, list(STATUSES)),
            "reason": pa.DictionaryArray.from_arrays(self.reason, list(REASONS)),
        }
        return pa.table(columns, schema=REQUESTS)

    def _memory(self) -> pa.Table:
        parts = []
        for replica, course in enumerate(self._courses):
            edges, means = course.bins()
            columns = {
                "replica": np.full(len(means), replica, dtype=np.int32),
                "start_s": edges[:-1],
                "end_s": edges[1:],
                **{name: means[:, index] for index, name in enumerate(SERIES)},
            }
            parts.append(pa.table(columns, schema=MEMORY))
        return pa.concat_tables(parts)

    def _step_table(self) -> pa.Table | None:
        if self._steps is None:
            return None
        columns = list(zip(*self._steps, strict=True)) or [()] * len(STEPS)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, STEPS, strict=True)
        ]
        return pa.table(arrays, schema=STEPS)


def _known(seconds: Floats) -> pa.Array:
    """Return a column in which NaN, which means "did not happen", is null."""
    return pa.array(seconds, mask=np.isnan(seconds))
