"""Drives the scheduler through a workload of the vLLM step logs and writes such a log.

The form of configurations, workloads and logs is that of vLLM V1 step logs as they are kept in
``SIMKV_DATA/vllm-v1``: requests are due at a step, or at a time under a linear step-time model, or
after another request. This is how the scheduler is compared with vLLM's, field by field.
"""

import gzip
import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simkv.cost.choice import Linear
from simkv.cost.linear import LinearCost
from simkv.errors import InputError
from simkv.kv.accounts import Accounts
from simkv.kv.sequence import cover
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler
from simkv.workload.radix import compress

Record = dict[str, Any]


def read_case(config: Path, workload: Path) -> tuple[Record, list[Record]]:
    """Return a case's configuration and its workload lines."""
    opener = gzip.open if workload.suffix == ".gz" else open
    with opener(workload, "rt", encoding="utf-8") as lines:
        return json.loads(config.read_text()), [json.loads(line) for line in lines]


def replay(config: Record, workload: Sequence[Record]) -> Iterator[Record]:
    """Run a case and yield one record a step, in the form of the real logs."""
    for key in ("async_scheduling", "sliding_window", "hybrid_sliding_window"):
        if config.get(key):
            raise InputError(f"{key}={config[key]} cannot be replayed yet; only its neutral value")
    return _Replay(config, workload).run()


@dataclass(slots=True)
class _Case:
    """One workload line on its way: its request, and who waits for its end."""

    line: Record
    request: Request
    followers: list["_Case"] = field(default_factory=list)


class _Replay:
    def __init__(self, config: Record, workload: Sequence[Record]) -> None:
        policy = VllmV1(
            max_num_batched_tokens=config.get("max_num_batched_tokens", 2048),
            max_num_seqs=config.get("max_num_seqs", 64),
            max_model_len=config.get("max_model_len", 8192),
            policy=config.get("policy", "fcfs"),
            chunked_prefill=config.get("enable_chunked_prefill", True),
            long_prefill_token_threshold=config.get("long_prefill_token_threshold", 0),
            long_prefill_adaptive=config.get("long_prefill_token_threshold_adaptive", False),
            reserve_full_prompt=config.get("scheduler_reserve_full_isl", True),
            watermark_ratio=config.get("watermark", 0.0),
        )
        self.kv = Accounts(
            block_tokens=config.get("block_size", 16),
            num_blocks=config.get("num_gpu_blocks", 256),
            prefix_caching=config.get("enable_prefix_caching", True),
        )
        self.scheduler = Scheduler(policy, self.kv, max_model_len=config.get("max_model_len", 8192))
        self.cost = _linear(config["cost"]) if config.get("cost") else None
        self.cases = _requests(workload)
        self.due: list[tuple[float, int]] = []
        for index, case in enumerate(self.cases):
            if "after" not in case.line:
                due = case.line["arrival_time" if self.cost else "arrival_step"]
                heapq.heappush(self.due, (due, index))
        self.aborts: dict[int, list[_Case]] = {}
        for case in self.cases:
            if "abort_step" in case.line:
                self.aborts.setdefault(case.line["abort_step"], []).append(case)

    def run(self) -> Iterator[Record]:
        step, now_s = 0, 0.0
        while self.due or self.scheduler.num_unfinished:
            if not self.scheduler.num_unfinished:
                if self.cost:
                    now_s = max(now_s, self.due[0][0])
                else:
                    step = max(step, int(self.due[0][0]))
            record: Record = {"step": step, "add": self._add(now_s if self.cost else step)}
            aborted = self._abort(step)
            if aborted:
                record["abort"] = aborted
            plan = self.scheduler.plan(now_s)
            record |= self._planned(plan)
            step_s = self.cost.step_time_s(plan.work) if self.cost and plan.entries else 0.0
            if self.cost:
                record |= {"t": round(now_s, 9), "dt": round(step_s, 9)}
            now_s += step_s
            finished = self.scheduler.commit(plan, StepResult(end_s=now_s))
            for request in finished:
                for follower in self.cases[request.id].followers:
                    delay = follower.line.get("delay", 0)
                    due = now_s + delay if self.cost else step + 1 + delay
                    heapq.heappush(self.due, (due, follower.request.id))
            record |= {
                "upd": step,
                "fin": [self._name(request) for request in finished],
                "stored": self.kv.num_stored,
                "removed": self.kv.num_evicted,
                "free_end": self.kv.num_free_blocks,
            }
            yield record
            step += 1

    def _add(self, now: float) -> list[str]:
        added = []
        while self.due and self.due[0][0] <= now:
            due, index = heapq.heappop(self.due)
            added.append((index, due))
        for index, due in sorted(added):
            request = self.cases[index].request
            request.arrival_s = due
            self.scheduler.add(request)
        return [self.cases[index].line["id"] for index, _ in sorted(added)]

    def _abort(self, step: int) -> list[str]:
        names = []
        for case in self.aborts.get(step, ()):
            live = case.request in self.scheduler.waiting or case.request in self.scheduler.running
            if live and case.request.status not in (Status.FINISHED, Status.ABORTED):
                self.scheduler.abort(case.request)
                names.append(case.line["id"])
        return names

    def _planned(self, plan: StepPlan) -> Record:
        hits = {request.id: computed for request, _, computed in plan.entries}
        admitted = [*plan.new, *plan.resumed]
        order = [request for request, _, _ in plan.entries if request in admitted]
        return {
            "sched": [[self._name(r), n, computed] for r, n, computed in plan.entries],
            "new": [self._name(request) for request in plan.new],
            "resumed": [self._name(request) for request in plan.resumed],
            "preempted": [self._name(request) for request in plan.preempted],
            "hit": {self._name(request): hits[request.id] for request in order},
            "q": sum(request.num_tokens for request in plan.new) if self.caching else 0,
            "h": sum(hits[request.id] for request in plan.new),
            "pq": sum(request.num_tokens for request in plan.resumed) if self.caching else 0,
            "ph": sum(hits[request.id] for request in plan.resumed),
            "free": self.kv.num_free_blocks,
            "running": len(self.scheduler.running),
            "waiting": len(self.scheduler.waiting),
        }

    @property
    def caching(self) -> bool:
        return self.kv.cache is not None

    def _name(self, request: Request) -> str:
        return str(self.cases[request.id].line["id"])


def _linear(cost: Record) -> LinearCost:
    return LinearCost(
        Linear(
            base_s=cost["base"],
            prefill_token_s=cost["prefill"],
            decode_s=cost["decode"],
            context_token_s=cost["ctx"],
        )
    )


def _requests(workload: Sequence[Record]) -> list[_Case]:
    """Build the requests; equal token numbers under equal salts are equal content."""
    tokens = []
    for line in workload:
        runs = [*line["segments"], [line["output_start"], line["output_len"]]]
        tokens.append(np.concatenate([np.arange(start, start + n) for start, n in runs]))
    prompts = [sum(n for _, n in line["segments"]) for line in workload]
    content = compress(
        tokens,
        [[prompt] for prompt in prompts],
        [line.get("cache_salt") or "" for line in workload],
    )
    names = sorted(str(line["id"]) for line in workload)
    cases = []
    for index, (line, prompt, segments) in enumerate(zip(workload, prompts, content, strict=True)):
        total = prompt + line["output_len"]
        request = Request(
            id=index,
            segments=cover(segments, total, index),
            num_tokens=prompt,
            final_tokens=total - 1,
            arrival_s=0.0,
            prompt_tokens=prompt,
            output_tokens=line["output_len"],
            priority=line.get("priority", 0),
            tie=names.index(str(line["id"])),
        )
        cases.append(_Case(line, request))
    by_name = {case.line["id"]: case for case in cases}
    for case in cases:
        if "after" in case.line:
            by_name[case.line["after"]].followers.append(case)
    return cases
