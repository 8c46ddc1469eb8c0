"""A scheduler that leaps beside one that steps: same decisions, same memory, all laws on."""

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from simkv.kv.accounts import Accounts
from simkv.kv.contiguous import Reservations
from simkv.kv.invariants import check_memory
from simkv.kv.manager import Lender
from simkv.kv.sequence import Segments, cover
from simkv.sched.invariants import check_requests
from simkv.sched.leaps import LeapingScheduler
from simkv.sched.plan import StepPlan, StepResult
from simkv.sched.policy import VllmV1
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler
from tests.sched.test_machine import outcome_of

SMALL = st.integers(0, 9)
_MOST_LEAPS = 2000


class Pair:
    """One scheduler that leaps and one that steps, given the same requests."""

    def __init__(
        self,
        kv: type[Accounts] | type[Reservations],
        memory: dict[str, int],
        max_model_len: int,
        max_leap_steps: int = 4096,
        **policy: object,
    ) -> None:
        values = VllmV1(**policy)  # type: ignore[arg-type]
        self.fast = LeapingScheduler(
            values, kv(**memory), max_model_len=max_model_len, max_leap_steps=max_leap_steps
        )
        self.slow = Scheduler(values, kv(**memory), max_model_len=max_model_len)
        self.requests: list[tuple[Request, Request]] = []
        self.now_s = 0.0
        self.longest_leap = 0

    def add(
        self, prompt_tokens: int, output_tokens: int, segments: Segments, priority: int
    ) -> None:
        number, total = len(self.requests), prompt_tokens + output_tokens
        pair = [
            Request(
                id=number,
                segments=cover(segments, total, number),
                num_tokens=prompt_tokens,
                final_tokens=total - 1,
                arrival_s=self.now_s,
                prompt_tokens=prompt_tokens,
                output_tokens=output_tokens,
                priority=priority,
            )
            for _ in range(2)
        ]
        self.requests.append((pair[0], pair[1]))
        self.fast.add(pair[0])
        self.slow.add(pair[1])

    def leap(self, most: int, stride: int, *, look: bool = False) -> None:
        """Do a plan, but not more than ``most`` of its steps, so many together.

        ``look`` compares every request while the plan is open, for which all is written down.
        """
        plan = self.fast.plan(self.now_s)
        num_steps = min(most, plan.num_steps)
        self.longest_leap = max(self.longest_leap, plan.num_steps)
        wanted = self.slow.plan(self.now_s)
        self._compare(plan, wanted)
        if look:
            assert numbers(self.fast.entries_of(plan)) == numbers(wanted.entries)
            self.check()
        for step in range(1, num_steps):
            self.slow.commit(wanted, StepResult(end_s=self._next_s()))
            wanted = self.slow.plan(self.now_s)
            if step % stride == 0:
                assert len(self.fast.proceed(plan, stride)) == stride
                self._compare(plan, wanted)
        rest = 1 + (num_steps - 1) % stride
        end_s = self._next_s()
        fast = self.fast.commit(plan, StepResult(end_s=end_s, num_steps=rest))
        slow = self.slow.commit(wanted, StepResult(end_s=end_s))
        assert [one.id for one in fast] == [one.id for one in slow]
        self._compare_memory()

    def check(self) -> None:
        """Compare all requests and all memory, and check every law."""
        self.fast.refresh()
        self._compare_memory()
        for fast, slow in self.requests:
            assert outcome_of(fast) == outcome_of(slow)
            assert fast.capacity_tokens == slow.capacity_tokens
        assert contents_of(self.fast.kv) == contents_of(self.slow.kv)
        check_requests(self.fast, [fast for fast, _ in self.requests])
        check_memory(self.fast.kv, self.fast.running)

    def abort(self, index: int) -> None:
        live = [*self.fast.running, *self.fast.waiting]
        if live:
            number = live[index % len(live)].id
            self.fast.abort(self.requests[number][0])
            self.slow.abort(self.requests[number][1])

    def _next_s(self) -> float:
        self.now_s += 1
        return self.now_s

    def _compare(self, fast: StepPlan, slow: StepPlan) -> None:
        assert self._entries(fast) == numbers(slow.entries)
        for name in ("new", "resumed", "preempted"):
            assert [one.id for one in getattr(fast, name)] == [
                one.id for one in getattr(slow, name)
            ]
        assert (fast.num_tokens, fast.hit_tokens) == (slow.num_tokens, slow.hit_tokens)
        work, wanted = fast.work, slow.work
        assert sorted(work.prefills) == sorted(wanted.prefills)
        assert work.num_sampled == wanted.num_sampled
        assert work.num_decodes == wanted.num_decodes
        assert work.decode_context_tokens == wanted.decode_context_tokens
        assert work.max_decode_context_tokens == wanted.max_decode_context_tokens
        for name in ("running", "waiting"):
            assert [one.id for one in getattr(self.fast, name)] == [
                one.id for one in getattr(self.slow, name)
            ]
        self._compare_memory()

    def _entries(self, plan: StepPlan) -> list[tuple[int, int, int]]:
        """Return all entries of a plan, without writing down what the group puts off."""
        decodes = self.fast.decodes
        entries = {entry[0]: entry for entry in plan.entries}
        for request, offset in decodes.offsets.items():
            entries[request] = (request, 1, offset + decodes.step)
        return numbers([entries[one] for one in self.fast.running if one in entries])

    def _compare_memory(self) -> None:
        assert self.fast.kv.usage() == self.slow.kv.usage()
        assert self.fast.kv.num_free_blocks == self.slow.kv.num_free_blocks
        assert self.fast.kv.num_evicted == self.slow.kv.num_evicted


def numbers(entries: list[tuple[Request, int, int]]) -> list[tuple[int, int, int]]:
    return [(request.id, new, before) for request, new, before in entries]


def contents_of(kv: Lender) -> object:
    """Return the free queue in its order, and the copies of every block in theirs."""
    if not isinstance(kv, Accounts) or kv.cache is None:
        return None
    queue = [
        (run.lane.segment, block)
        for run in kv.cache.idle_runs()
        for block in reversed(range(run.lo, run.hi))
    ]
    copies: dict[tuple[int, int], list[int]] = {}
    for run in kv.cache.runs():
        for block in range(run.lo, run.hi):
            copies.setdefault((run.lane.segment, block), []).append(run.refs)
    return kv.num_stored, queue, copies


class LeapMachine(RuleBasedStateMachine):
    """Arrivals, leaps that are cut anywhere, and aborts, until all have ended."""

    @initialize(
        layout=st.sampled_from((Accounts, Accounts, Accounts, Reservations)),
        block_tokens=st.sampled_from((1, 2, 3, 4, 7, 16)),
        num_blocks=st.integers(5, 40),
        prefix_caching=st.sampled_from((True, True, True, False)),
        budget=st.sampled_from((300, 300, 64, 20, 8, 3, 1)),
        max_num_seqs=st.sampled_from((64, 3, 1)),
        policy=st.sampled_from(("fcfs", "priority")),
        threshold=st.sampled_from((0, 0, 2, 10)),
        adaptive=st.booleans(),
        reserve=st.booleans(),
        watermark=st.sampled_from((0.0, 0.0, 0.1, 0.3)),
        chunks=st.sampled_from((True, True, False)),
        max_leap_steps=st.sampled_from((4096, 4096, 5)),
    )
    def build(
        self,
        layout: type,
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
        max_leap_steps: int,
    ) -> None:
        self.size = block_tokens
        # Without chunks every prompt has to fit an empty budget.
        self.limit = 10_000 if chunks else budget + 1
        slots = (num_blocks - 1) * block_tokens
        memory = {
            "block_tokens": block_tokens,
            "num_blocks": num_blocks,
            "prefix_caching": prefix_caching,
        }
        if layout is Reservations:
            self.limit = min(self.limit, 2 + slots // 2)
            memory = {"num_slots": slots, "reserve_tokens": self.limit}
        self.pair = Pair(
            layout,
            memory,
            self.limit,
            max_leap_steps,
            max_num_batched_tokens=budget,
            max_num_seqs=max_num_seqs,
            policy=policy,
            chunked_prefill=chunks,
            long_prefill_token_threshold=threshold,
            long_prefill_adaptive=adaptive,
            reserve_full_prompt=reserve,
            watermark_ratio=watermark,
        )
        self.contents: list[Segments] = []

    @rule(
        base=SMALL,
        keep=st.just(-1) | st.integers(0, 200),
        num_blocks=st.integers(0, 6),
        more=st.integers(-1, 1),
        output_tokens=st.integers(1, 60),
        named=st.booleans(),
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
        named: bool,
        priority: int,
        copies: int,
    ) -> None:
        """Share a part of earlier content, named outputs included, and go on with something new."""
        prompt: Segments = []
        if self.contents:
            earlier = self.contents[-1 - base % len(self.contents)]
            keep %= sum(tokens for _, tokens in earlier) + 1
            prompt = cover(earlier, keep, 0)
        fresh = max(num_blocks * self.size + more, 0 if prompt else 1)
        number = 2 * len(self.contents)
        if fresh:
            prompt = [*prompt, (number, fresh)]
        prompt_tokens = sum(tokens for _, tokens in prompt)
        content = [*prompt, (number + 1, output_tokens)] if named else prompt
        tokens = prompt_tokens + output_tokens - 1
        if self.pair.fast.kv.grows:
            tokens = min(tokens, self.limit - 1)
        fits = self.pair.slow.kv.can_ever_hold(tokens)
        if fits and prompt_tokens < self.limit:
            for _ in range(copies):
                self.pair.add(prompt_tokens, output_tokens, content, priority)
            self.contents.append(content)

    @rule(
        most=st.integers(1, 40),
        stride=st.sampled_from((1, 3, 100)),
        look=st.sampled_from((False, False, False, True)),
    )
    def leap(self, most: int, stride: int, look: bool) -> None:
        self.pair.leap(most, stride, look=look)

    @rule()
    def check(self) -> None:
        self.pair.check()

    @rule()
    def leap_far(self) -> None:
        self.pair.leap(5000, 5000)

    @rule(index=SMALL)
    def abort(self, index: int) -> None:
        self.pair.abort(index)

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        pair = self.pair
        # Some shortages never end, as in vLLM: equal priorities take each other's memory in turn.
        for _ in range(_MOST_LEAPS):
            if not pair.slow.num_unfinished:
                break
            pair.leap(5000, 5000)
        assert pair.fast.num_unfinished == pair.slow.num_unfinished
        pair.check()
        if any(one.num_preemptions for one, _ in pair.requests):
            event("preempted")
        if any(one.hit_tokens for one, _ in pair.requests):
            event("hit")
        if pair.fast.kv.num_evicted:
            event("evicted")
        if pair.longest_leap > 1:
            event("leapt")


class LongLeapMachine(LeapMachine):
    """The same, searched for longer by `make test-long`."""


TestMachine = LeapMachine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=25)
TestMachineLong = pytest.mark.slow(LongLeapMachine.TestCase)
TestMachineLong.settings = settings(settings.get_profile("long"), stateful_step_count=40)
