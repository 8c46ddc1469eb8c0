"""A scheduler on accounts beside some on blocks: the same plans, all laws on.

The others have the physical manager, the same with a window that is never left, and the slow
reference. All may plan one step ahead.
"""

from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from simkv.kv.accounts import Accounts
from simkv.kv.blocks import Blocks
from simkv.kv.groups import FullAttention, WindowAttention
from simkv.kv.manager import KVManager
from simkv.kv.sequence import Segments, cover
from simkv.sched.plan import StepPlan
from simkv.sched.request import Request
from tests.kv.reference import BlockPool
from tests.kv.window_reference import WindowPool
from tests.sched.driver import Driver

SMALL = st.integers(0, 9)


def plan_of(plan: StepPlan) -> dict[str, object]:
    return {
        "entries": [(request.id, new, before) for request, new, before in plan.entries],
        "new": [request.id for request in plan.new],
        "resumed": [request.id for request in plan.resumed],
        "preempted": [request.id for request in plan.preempted],
        "hit_tokens": plan.hit_tokens,
        "work": asdict(plan.work),
        "copied": 0 if plan.ops is None else plan.ops.copied_tokens,
    }


def outcome_of(request: Request) -> tuple[object, ...]:
    return (
        request.status,
        request.num_tokens,
        request.computed_tokens,
        request.first_scheduled_s,
        request.first_token_s,
        request.finish_s,
        request.hit_tokens,
        request.num_preemptions,
        request.recomputed_tokens,
    )


def wide_window(**pool: Any) -> KVManager:
    window = WindowAttention(window_tokens=100_000, step_tokens=300)
    return Blocks(**pool, groups=(window,))


POOLS: tuple[Callable[..., KVManager], ...] = (Accounts, Blocks, wide_window, BlockPool)


class SchedulerMachine(RuleBasedStateMachine):
    """Arrivals, steps and aborts in any order, then steps until all have ended."""

    choice = 0

    def pools(self, step_tokens: int) -> Items[Callable[..., Any]]:
        """Return what to compare, given the most tokens of a request under way."""
        return POOLS

    @initialize(
        block_tokens=st.sampled_from((1, 2, 3, 4, 7, 16)),
        num_blocks=st.integers(5, 24),
        prefix_caching=st.sampled_from((True, True, True, False)),
        budget=st.sampled_from((300, 64, 20, 8, 3, 1)),
        max_num_seqs=st.sampled_from((64, 3, 1)),
        policy=st.sampled_from(("fcfs", "priority")),
        threshold=st.sampled_from((0, 0, 2, 10)),
        adaptive=st.booleans(),
        reserve=st.booleans(),
        watermark=st.sampled_from((0.0, 0.0, 0.1, 0.3)),
        chunks=st.sampled_from((True, True, False)),
        ahead=st.booleans(),
        choice=SMALL,
    )
    def build(
        self,
        block_tokens: int,
        num_blocks: int,
        prefix_caching: bool,
        budget: int,
        max_num_seqs: int,
        policy: str,
        threshold: int,
        adaptive: bool,
        reserve: bool,
        watermark: float,
        chunks: bool,
        ahead: bool,
        choice: int,
    ) -> None:
        self.choice = choice
        self.ahead = ahead
        self.size = block_tokens
        # Without chunks every prompt has to fit an empty budget.
        self.limit = 10_000 if chunks else budget + 1
        self.runs = [
            Driver(
                kv=pool(
                    block_tokens=block_tokens,
                    num_blocks=num_blocks,
                    prefix_caching=prefix_caching,
                ),
                max_model_len=self.limit,
                max_num_batched_tokens=budget,
                max_num_seqs=max_num_seqs,
                policy=policy,
                chunked_prefill=chunks,
                long_prefill_token_threshold=threshold,
                long_prefill_adaptive=adaptive,
                reserve_full_prompt=reserve,
                watermark_ratio=watermark,
                async_scheduling=ahead,
            )
            for pool in self.pools(budget * (1 + ahead))
        ]
        self.contents: list[Segments] = []

    @rule(
        base=SMALL,
        keep=st.just(-1) | st.integers(0, 200),
        num_blocks=st.integers(0, 6),
        more=st.integers(-1, 1),
        output_tokens=st.integers(1, 40),
        priority=st.integers(0, 2),
        copies=st.sampled_from((1, 1, 2, 3)),
    )
    def arrive(
        self,
        base: int,
        keep: int,
        num_blocks: int,
        more: int,
        output_tokens: int,
        priority: int,
        copies: int,
    ) -> None:
        """Share a part of earlier content, outputs included, and go on with something new."""
        prompt: Segments = []
        if self.contents:
            earlier = self.contents[-1 - base % len(self.contents)]
            keep %= sum(tokens for _, tokens in earlier) + 1
            prompt = cover(earlier, keep, 0)
        fresh = max(num_blocks * self.size + more, 0 if prompt else 1)
        if fresh:
            prompt = [*prompt, (1 + len(self.contents), fresh)]
        prompt_tokens = sum(tokens for _, tokens in prompt)
        for _ in range(copies):
            self._add(prompt, prompt_tokens, output_tokens, priority)

    def _add(self, prompt: Segments, prompt_tokens: int, output_tokens: int, priority: int) -> None:
        first = self.runs[0]
        fits = first.kv.can_ever_hold(min(prompt_tokens + output_tokens - 1, self.limit - 1))
        if not fits or prompt_tokens >= self.limit:
            return
        for run in self.runs:
            # No two arrive at once: equals by priority may preempt each other for ever.
            arrival_s = run.now_s - 1 + 1e-6 * len(run.requests)
            run.add(
                prompt_tokens,
                output_tokens,
                segments=prompt,
                arrival_s=arrival_s,
                priority=priority,
            )
        self.contents.append(first.requests[-1].segments)

    @rule(num_steps=st.integers(1, 12))
    def step(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self._step()

    def _step(self) -> None:
        first, *others = (plan_of(run.step()) for run in self.runs)
        assert all(other == first for other in others)
        first, *others = (
            {"usage": run.kv.usage(), "counts": (run.kv.num_stored, run.kv.num_evicted)}
            for run in self.runs
        )
        assert all(other == first for other in others)

    @rule(index=SMALL, output_tokens=st.integers(2, 40))
    def fork(self, index: int, output_tokens: int) -> None:
        running = self.runs[0].scheduler.running
        if self.ahead or not running:
            return
        index %= len(running)
        known = running[index].computed_tokens
        final = known + output_tokens - 1
        if final >= self.limit or not self.runs[0].kv.can_ever_hold(final):
            return
        children = [run.fork(run.scheduler.running[index], output_tokens) for run in self.runs]
        assert len({child is None for child in children}) == 1
        if children[0] is not None:
            self.contents.append(children[0].segments)
            event("forked")

    @rule(index=SMALL)
    def abort(self, index: int) -> None:
        for run in self.runs:
            live = [*run.scheduler.running, *run.scheduler.waiting]
            if live:
                run.scheduler.abort(live[index % len(live)])

    def _check_livelock(self) -> None:
        """Check that what does not end is the one thing that vLLM's rules let go on for ever.

        See ``tests/sched/test_progress.py``: among equals the first is the victim, so two of them
        can take each other's memory again and again.
        """
        scheduler = self.runs[0].scheduler
        assert scheduler.policy.policy == "priority"
        live = [*scheduler.running, *scheduler.waiting]
        ties = Counter((one.priority, one.arrival_s) for one in live)
        most_important = min((one.priority, one.arrival_s) for one in live)
        assert ties[most_important] > 1
        known = [one.num_tokens for one in live]
        for _ in range(200):
            self._step()
        assert [one.num_tokens for one in live] == known
        event("equals preempt each other for ever")

    def teardown(self) -> None:
        if not hasattr(self, "runs"):
            return
        work = sum(one.final_tokens + one.output_tokens for one in self.runs[0].requests)
        for _ in range(1 + 50 * work):  # far above any preemption storm
            if not self.runs[0].scheduler.num_unfinished:
                break
            self._step()
        if self.runs[0].scheduler.num_unfinished:
            self._check_livelock()
        else:
            for run in self.runs:
                run.drain(0)
        first, *others = ([outcome_of(one) for one in run.requests] for run in self.runs)
        assert all(other == first for other in others)
        if any(one.num_preemptions for one in self.runs[0].requests):
            event("preempted")
        if any(one.hit_tokens for one in self.runs[0].requests):
            event("hit")
        if self.runs[0].kv.num_evicted:
            event("evicted")


class WindowMachine(SchedulerMachine):
    """The same for windows and hybrid groups, against the slow reference to the block id."""

    WINDOWS: tuple[tuple[int | None, ...], ...] = ((1,), (7,), (40,), (None, 12), (None, 40))

    def pools(self, step_tokens: int) -> Items[Callable[..., Any]]:
        windows = self.WINDOWS[self.choice % len(self.WINDOWS)]
        groups = [
            FullAttention()
            if window is None
            else WindowAttention(window_tokens=window, step_tokens=step_tokens)
            for window in windows
        ]
        return (
            partial(Blocks, groups=groups),
            partial(WindowPool, windows=windows, step_tokens=step_tokens),
        )

    def _step(self) -> None:
        fast, slow = (run.step() for run in self.runs)
        assert plan_of(fast) == plan_of(slow)
        real, reference = (run.kv for run in self.runs)
        assert isinstance(real, Blocks)
        assert isinstance(reference, WindowPool)
        assert list(real.pool.free_blocks()) == reference.free
        assert (real.num_stored, real.num_evicted) == (
            reference.num_stored,
            reference.num_evicted,
        )


class LongWindowMachine(WindowMachine):
    """The same, searched for longer by `make test-long`."""


class LongSchedulerMachine(SchedulerMachine):
    """The same, searched for longer by `make test-long`."""


TestMachine = SchedulerMachine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25)
TestMachineLong = pytest.mark.slow(LongSchedulerMachine.TestCase)
TestMachineLong.settings = settings(settings.get_profile("long"), stateful_step_count=40)
TestWindows = WindowMachine.TestCase
TestWindows.settings = settings(max_examples=60, stateful_step_count=25)
TestWindowsLong = pytest.mark.slow(LongWindowMachine.TestCase)
TestWindowsLong.settings = settings(settings.get_profile("long"), stateful_step_count=40)
