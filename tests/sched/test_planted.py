"""Errors planted in the rules, one at a time: some step log of vLLM finds each.

Each names the rule that it breaks and a case that finds it: one of the two that are kept in the
tree where that does, else a published one. Errors in blocks are looked for in block ids too.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks, BlockTable
from simkv.kv.groups import Find, FullAttention, WindowAttention
from simkv.kv.pool import Key, Pool
from simkv.kv.prefix import Holding, PrefixCache
from simkv.kv.sequence import Sequence
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.request import Request, Status
from simkv.sched.scheduler import Scheduler
from simkv.sched.waiting import ArrivalQueue
from simkv.sim import cases
from simkv.sim.cases import Manager, Record, read_case
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


def registers_after_the_step(
    original: Original, self: Blocks, sequence: Sequence, num_tokens: int
) -> None:
    original(self, sequence, min(num_tokens, sequence.computed_tokens))


def finds_the_newest_copy(original: Original, self: Pool, key: Key) -> int | None:
    copies = dict(self.copies()).get(key)
    return copies[-1] if copies else None


def blocks_without_content_go_to_the_end(original: Original, self: Pool, blocks: list[int]) -> None:
    original(self, blocks)
    for block in blocks:
        if self.is_free(block) and self.key(block) is None:
            self._free.move_to_end(block)


def blocks_without_content_turn_around(original: Original, self: Pool, blocks: list[int]) -> None:
    blank = [block for block in blocks if self.key(block) is None]
    original(self, [block for block in blocks if block not in blank])
    original(self, blank[::-1])


def ignores_salts(
    original: Original, tokens: list[Any], cuts: list[Any], salts: list[str]
) -> list[Any]:
    return list(original(tokens, cuts, ["" for _ in salts]))


def window_is_one_token_longer(
    original: Original, self: WindowAttention, num_tokens: int, block_tokens: int
) -> int:
    return int(original(self, num_tokens - 1, block_tokens))


def window_hits_only_whole_prefixes(
    original: Original, self: WindowAttention, *rest: Any
) -> list[int]:
    return FullAttention().lookup(*rest)


def window_hits_the_leftmost_run(
    original: Original, self: WindowAttention, find: Find, keys: list[Key], limit: int, size: int
) -> list[int]:
    wanted = max(1, -(-(self.window_tokens - 1) // size))
    for end in range(wanted, limit + 1):
        found = original(self, find, keys, end, size)
        if len(found) == end:
            return list(found)
    return list(original(self, find, keys, limit, size))


def slides_before_the_step_is_known(
    original: Original, self: Blocks, sequence: Sequence, tables: list[BlockTable]
) -> None:
    in_flight, sequence.in_flight_tokens = sequence.in_flight_tokens, 0
    original(self, sequence, tables)
    sequence.in_flight_tokens = in_flight


def a_stale_token_takes_a_placeholder(
    original: Original, self: AsyncScheduler, plan: StepPlan, result: StepResult
) -> list[Request]:
    for request, _, _ in plan.entries:
        request.num_placeholders -= request.status is Status.PREEMPTED
    finished: list[Request] = original(self, plan, result)
    return finished


def runs_past_the_end(original: Original, self: AsyncScheduler, plan: StepPlan) -> None:
    final = {request: request.final_tokens for request in self.running}
    for request in final:
        request.final_tokens += 1
    original(self, plan)
    for request, tokens in final.items():
        request.final_tokens = tokens


def forgets_the_longest_request(original: Original, self: AsyncScheduler, plan: StepPlan) -> None:
    limit, self.max_model_len = self.max_model_len, 10**9
    original(self, plan)
    self.max_model_len = limit


def drops_the_token_of_a_preempted_request(
    original: Original, self: AsyncScheduler, plan: StepPlan, result: StepResult
) -> list[Request]:
    stale = [request for request, _, _ in plan.entries if request.status is Status.PREEMPTED]
    plan.entries = [entry for entry in plan.entries if entry[0] not in stale]
    finished: list[Request] = original(self, plan, result)
    return finished


FCFS, PRIORITY = KEPT
ACCOUNTS: list[tuple[Any, str, Callable[..., Any], str]] = [
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


BLOCKS: list[tuple[Any, str, Callable[..., Any], str]] = [
    (Blocks, "register", registers_after_the_step, FCFS),
    (Pool, "find", finds_the_newest_copy, "20_sliding_window"),
    (cases, "compress", ignores_salts, "24_prefix_tree_salt"),
    (Pool, "drop", blocks_without_content_go_to_the_end, FCFS),
    (Pool, "drop", blocks_without_content_turn_around, "03_pressure_nocache"),
    (WindowAttention, "num_skipped", window_is_one_token_longer, "20_sliding_window"),
    (WindowAttention, "lookup", window_hits_only_whole_prefixes, "20_sliding_window"),
    (WindowAttention, "lookup", window_hits_the_leftmost_run, "21_hybrid"),
    (Blocks, "_slide", slides_before_the_step_is_known, "35_async_hybrid_bs8"),
    (AsyncScheduler, "commit", a_stale_token_takes_a_placeholder, "19_async"),
    (AsyncScheduler, "_plan_running", runs_past_the_end, "19_async"),
    (AsyncScheduler, "_plan_running", forgets_the_longest_request, "42_async_max_model_len"),
    (AsyncScheduler, "commit", drops_the_token_of_a_preempted_request, "19_async"),
]
ERRORS = [
    *((*error, "accounts") for error in ACCOUNTS),
    *((*error, "blocks") for error in BLOCKS),
]


def parts(config: Record, workload: list[Record], steps: list[Record], manager: Manager) -> bool:
    """Whether a replay does anything else than the log, or breaks down."""
    try:
        return difference(config, workload, steps, manager) != ""
    except (InvariantError, KeyError, IndexError):
        return True


@pytest.mark.parametrize(
    ("owner", "method", "error", "case", "manager"),
    ERRORS,
    ids=[error.__name__ for _, _, error, _, _ in ERRORS],
)
def test_a_step_log_finds_the_error(
    owner: Any,
    method: str,
    error: Callable[..., Any],
    case: str,
    manager: Manager,
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
    assert not parts(config, workload, steps, manager)
    original = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda self, *args, **kw: error(original, self, *args, **kw))
    assert parts(config, workload, steps, manager)
