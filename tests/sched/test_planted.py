"""Errors planted in the rules, one at a time: some step log of vLLM finds each.

Most show in the two cases that are kept in the tree; the rest name the published case that they
need.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.prefix import Holding, PrefixCache
from simkv.kv.sequence import Sequence
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler
from simkv.sched.waiting import ArrivalQueue
from simkv.sim.cases import Record, read_case
from tests.sim.step_log import KEPT, difference, kept_case, kept_steps, read_steps

ENDINGS = ("config.json", "workload.jsonl.gz", "log.jsonl.gz")
Original = Callable[..., Any]
"""The method in whose place an error stands; the error gets it as its first argument."""


def victim_is_the_first(original: Original, self: Scheduler) -> Request:
    return self.running[0]


def victim_is_the_last_of_equals(original: Original, self: Scheduler) -> Request:
    if self.policy.policy == "fcfs":
        return self.running[-1]
    return max(reversed(self.running), key=lambda one: (one.priority, one.arrival_s))


def admits_after_a_preemption(original: Original, self: Scheduler, plan: StepPlan) -> None:
    original(self, plan)
    if plan.preempted:
        self._plan_waiting(plan, 0.0)


def preempts_to_the_back(original: Original, self: ArrivalQueue, request: Request) -> None:
    deque.append(self, request)


def keeps_the_tokens_of_dropped_entries(
    original: Original, self: Scheduler, plan: StepPlan, position: int, *rest: Any
) -> int:
    budget = self._budget
    position = original(self, plan, position, *rest)
    self._budget = budget
    return position


def keeps_the_position(
    original: Original, self: Scheduler, plan: StepPlan, position: int, *rest: Any
) -> int:
    original(self, plan, position, *rest)
    return position


def loses_what_a_preempted_request_sampled(
    original: Original, self: Scheduler, plan: StepPlan, victim: Request
) -> None:
    original(self, plan, victim)
    victim.num_tokens = victim.prompt_tokens


def samples_after_every_chunk(
    original: Original, self: Scheduler, plan: StepPlan, result: StepResult
) -> list[Request]:
    for request, new, before in plan.entries:
        request.num_tokens = min(request.num_tokens, before + new)
    finished: list[Request] = original(self, plan, result)
    return finished


def no_check_of_the_full_prompt(
    original: Original, self: Accounts, sequence: Sequence, target: int, **rest: Any
) -> bool:
    return bool(original(self, sequence, target, **{**rest, "full_tokens": 0}))


def always_checks_the_full_prompt(
    original: Original, self: Accounts, sequence: Sequence, target: int, **rest: Any
) -> bool:
    return bool(original(self, sequence, target, **{**rest, "full_tokens": sequence.num_tokens}))


def no_watermark(
    original: Original, self: Accounts, sequence: Sequence, target: int, **rest: Any
) -> bool:
    return bool(original(self, sequence, target, **{**rest, "watermark_ratio": 0.0}))


def hits_whole_prompts(original: Original, self: Accounts, sequence: Sequence) -> int:
    cache, size = self.cache, self.block_tokens
    if cache is None:
        return 0
    content = self._table(sequence).content
    return min(sequence.num_tokens - 1, cache.match(content, sequence.num_tokens // size) * size)


def hits_cost_nothing(original: Original, self: PrefixCache, *rest: Any) -> int:
    return 0


def frees_from_the_front(original: Original, self: PrefixCache, held: Holding) -> None:
    original(self, list(reversed(held)))


def threshold_when_alone(original: Original, self: Scheduler) -> int:
    return self.policy.long_prefill_token_threshold


def threshold_never_adapts(original: Original, self: Scheduler) -> int:
    return self.policy.long_prefill_token_threshold if original(self) else 0


FCFS, PRIORITY = KEPT
ERRORS: list[tuple[type, str, Callable[..., Any], str]] = [
    (Scheduler, "_victim", victim_is_the_first, FCFS),
    (Scheduler, "_victim", victim_is_the_last_of_equals, "12_priority"),
    (Scheduler, "_plan_running", admits_after_a_preemption, "12_priority"),
    (ArrivalQueue, "put_back", preempts_to_the_back, FCFS),
    (Scheduler, "_grow", keeps_the_tokens_of_dropped_entries, PRIORITY),
    (Scheduler, "_grow", keeps_the_position, PRIORITY),
    (Scheduler, "_preempt", loses_what_a_preempted_request_sampled, PRIORITY),
    (Scheduler, "commit", samples_after_every_chunk, FCFS),
    (Accounts, "admit", no_check_of_the_full_prompt, FCFS),
    (Accounts, "admit", always_checks_the_full_prompt, "16_no_reserve_isl"),
    (Accounts, "admit", no_watermark, "15_watermark"),
    (Accounts, "match", hits_whole_prompts, "10_full_hit"),
    (PrefixCache, "count_idle", hits_cost_nothing, FCFS),
    (PrefixCache, "release", frees_from_the_front, FCFS),
    (Scheduler, "_long_prefill_threshold", threshold_when_alone, "13_long_prefill_threshold"),
    (Scheduler, "_long_prefill_threshold", threshold_never_adapts, "14_long_prefill_adaptive"),
]


def parts(config: Record, workload: list[Record], steps: list[Record]) -> bool:
    """Whether a replay does anything else than the log, or breaks down."""
    try:
        return difference(config, workload, steps) != ""
    except InvariantError:
        return True


@pytest.mark.parametrize(
    ("owner", "method", "error", "case"), ERRORS, ids=[error.__name__ for _, _, error, _ in ERRORS]
)
def test_a_step_log_finds_the_error(
    owner: type,
    method: str,
    error: Callable[..., Any],
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    shared: Callable[..., Path],
) -> None:
    if case in KEPT:
        config, workload = kept_case(case)
        steps = kept_steps(case)
    else:
        files = [shared("vllm-v1", "cases", f"{case}.{end}") for end in ENDINGS]
        config, workload = read_case(files[0], files[1])
        steps = read_steps(files[2])
    assert not parts(config, workload, steps)
    original = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda self, *args, **kw: error(original, self, *args, **kw))
    assert parts(config, workload, steps)
