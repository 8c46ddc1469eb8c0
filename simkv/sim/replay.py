"""Drives the scheduler through a case of the vLLM step logs and writes such a log.

Requests are due at a step, or at a time under a linear step-time model, or after another request.
This is how the scheduler and both KV managers are compared with vLLM's, field by field; the clock
is the logs' own, not SimPy's.
"""

import heapq
from collections.abc import Iterator, Sequence

from simkv.errors import InputError
from simkv.kv.blocks import Blocks
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Request
from simkv.sim.cases import Case, Line, Manager, Record, build_case


def replay(
    config: Record, workload: Sequence[Record], *, manager: Manager = "accounts"
) -> Iterator[Record]:
    """Run a case and yield one record a step, in the form of the real logs.

    Parameters
    ----------
    config, workload
        The case, as ``cases.read_case`` returns it.
    manager
        Who keeps the memory: ``accounts``, or ``blocks``, which logs block ids and the order of
        the free queue too. A case with windows is always replayed by ``blocks``.

    Raises
    ------
    InputError
        Where the case cannot be run, at once or at the step that shows it.
    """
    return _Replay(build_case(config, workload, manager)).run()


class _Replay:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.kv = case.kv
        self.scheduler = case.scheduler
        self.due: list[tuple[float, int]] = []
        self.aborts: dict[int, list[Line]] = {}
        self.num_logged: dict[int, int] = {}
        arrival = "arrival_time" if case.cost else "arrival_step"
        for index, line in enumerate(case.lines):
            if "after" not in line.record:
                heapq.heappush(self.due, (line.record[arrival], index))
            if "abort_step" in line.record:
                self.aborts.setdefault(line.record["abort_step"], []).append(line)

    def run(self) -> Iterator[Record]:
        scheduler, timed = self.scheduler, self.case.cost is not None
        step, now_s = 0, 0.0
        while self.due or self._is_busy():
            if not self._is_busy():
                if timed:
                    now_s = max(now_s, self.due[0][0])
                else:
                    step = max(step, int(self.due[0][0]))
            record: Record = {"step": step, "add": self._add(now_s if timed else step)}
            if aborted := self._abort(step):
                record["abort"] = aborted
            plan, step_s = None, 0.0
            if not isinstance(scheduler, AsyncScheduler) or scheduler.wants_plan:
                plan = scheduler.plan(now_s)
                self._check_progress(plan)
                record |= self._planned(plan)
                if self.case.cost and plan.entries:
                    step_s = self.case.cost.step_time_s(plan.work)
            if timed:
                record |= {"t": round(now_s, 9), "dt": round(step_s, 9)}
            now_s += step_s
            record |= self._commit(plan, step, now_s)
            yield record
            step += 1

    def _is_busy(self) -> bool:
        """Whether anything is unfinished or in flight."""
        scheduler = self.scheduler
        if isinstance(scheduler, AsyncScheduler):
            return scheduler.wants_plan or scheduler.num_open_plans > 0
        return scheduler.num_unfinished > 0

    def _add(self, now: float) -> list[str]:
        added = []
        while self.due and self.due[0][0] <= now:
            due, index = heapq.heappop(self.due)
            added.append((index, due))
        for index, due in sorted(added):
            request = self.case.lines[index].request
            request.arrival_s = due
            self.scheduler.add(request)
        return [self.case.lines[index].name for index, _ in sorted(added)]

    def _abort(self, step: int) -> list[str]:
        names = []
        for line in self.aborts.get(step, ()):
            request = line.request
            if request in self.scheduler.running or request in self.scheduler.waiting:
                self.scheduler.abort(request)
                self.num_logged.pop(request.id, None)
                names.append(line.name)
        return names

    def _commit(self, plan: StepPlan | None, step: int, now_s: float) -> Record:
        """Take a result, if one is due; say what it changed."""
        scheduler, record = self.scheduler, Record()
        due = scheduler.due(plan) if isinstance(scheduler, AsyncScheduler) else plan
        if due is not None:
            finished = scheduler.commit(due, StepResult(end_s=now_s))
            for request in finished:
                self._release_followers(request, step, now_s)
                self.num_logged.pop(request.id, None)
            record["upd"] = step if due is plan else step - 1
            record["fin"] = [self._name(request) for request in finished]
        record |= {
            "stored": self.kv.num_stored,
            "removed": self.kv.num_evicted,
            "free_end": self.kv.num_free_blocks,
        }
        if isinstance(self.kv, Blocks):
            record["freeq"] = self.kv.pool.queue_digest()
        if plan is None:
            record["drain"] = True
        return record

    def _release_followers(self, request: Request, step: int, now_s: float) -> None:
        for follower in self.case.lines[request.id].followers:
            delay = follower.record.get("delay", 0)
            due = now_s + delay if self.case.cost else step + 1 + delay
            heapq.heappush(self.due, (due, follower.request.id))

    def _planned(self, plan: StepPlan) -> Record:
        hits = {request.id: computed for request, _, computed in plan.entries}
        admitted = [
            request for request, _, _ in plan.entries if request in {*plan.new, *plan.resumed}
        ]
        for request in plan.preempted:
            self.num_logged.pop(request.id, None)
        record = {
            "sched": [[self._name(r), n, computed] for r, n, computed in plan.entries],
            "new": [self._name(request) for request in plan.new],
            "resumed": [self._name(request) for request in plan.resumed],
            "preempted": [self._name(request) for request in plan.preempted],
            "hit": {self._name(request): hits[request.id] for request in admitted},
            "q": sum(request.num_tokens for request in plan.new) if self.case.caching else 0,
            "h": sum(hits[request.id] for request in plan.new),
            "pq": sum(request.num_tokens for request in plan.resumed) if self.case.caching else 0,
            "ph": sum(hits[request.id] for request in plan.resumed),
            "free": self.kv.num_free_blocks,
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
        }
        if isinstance(self.kv, Blocks):
            record["newblk"] = self._new_blocks(self.kv, plan)
        return record

    def _new_blocks(self, kv: Blocks, plan: StepPlan) -> Record:
        """Return the block ids that joined tables in this step, hits and null blocks included."""
        joined = {}
        for request, _, _ in plan.entries:
            known = self.num_logged.get(request.id, 0)
            new = [kv.block_table(request, group)[known:] for group in range(len(kv.groups))]
            self.num_logged[request.id] = known + len(new[0])
            if new[0]:
                joined[self._name(request)] = new if len(new) > 1 else new[0]
        return joined

    def _check_progress(self, plan: StepPlan) -> None:
        """Raise InputError where a request can never run: nothing would ever change again."""
        scheduler = self.scheduler
        in_flight = isinstance(scheduler, AsyncScheduler) and scheduler.num_open_plans > 1
        stuck = not (plan.entries or plan.preempted or scheduler.running or in_flight)
        if stuck and scheduler.waiting:
            raise InputError(
                f"request {self._name(scheduler.waiting.head())} can never run: it does not fit "
                "the empty pool or budget; raise num_gpu_blocks or max_num_batched_tokens"
            )

    def _name(self, request: Request) -> str:
        return self.case.lines[request.id].name
