"""Accounts by runs against the block-by-block reference, and by hand."""

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simkv.kv.accounts import Accounts
from simkv.kv.sequence import Segments, Sequence
from simkv.kv.usage import Usage
from simkv.rng import stream
from tests.kv.lockstep import Lockstep, walk

BLOCK_TOKENS = (1, 2, 3, 4, 7, 16, 48)
INDEX = st.integers(0, 7)
OUTPUT = st.integers(1, 40)


def prompts(
    block_tokens: int, contents: list[Segments], *, prefix_caching: bool = True
) -> Accounts:
    """Return a large pool in which each content is computed to its end."""
    kv = Accounts(block_tokens=block_tokens, num_blocks=1001, prefix_caching=prefix_caching)
    for number, content in enumerate(contents):
        total = sum(tokens for _, tokens in content)
        one = Sequence(id=number, segments=content, num_tokens=total, final_tokens=total)
        hit = kv.match(one)
        assert kv.admit(one, total, hit_tokens=hit, full_tokens=0, watermark_ratio=0)
        one.computed_tokens = total
        kv.advance(total)
    return kv


@pytest.mark.parametrize(
    ("block_tokens", "num_tokens", "num_blocks", "tail"), [(4, 10, 3, 2), (16, 17, 2, 15)]
)
def test_a_sequence_alone(block_tokens: int, num_tokens: int, num_blocks: int, tail: int) -> None:
    kv = prompts(block_tokens, [[(1, num_tokens)]])
    assert 1000 - kv.num_free_blocks == num_blocks
    assert kv.usage() == Usage(
        tokens=num_tokens,
        tail=tail,
        free=(1000 - num_blocks) * block_tokens,
        logical_tokens=num_tokens,
    )


def test_four_requests_that_share_1024_tokens_take_1280_slots_instead_of_4352() -> None:
    contents = [[(1, 1024), (2 + number, 64)] for number in range(4)]
    usage = prompts(16, contents).usage()
    assert (usage.tokens, usage.tail, usage.logical_tokens) == (1280, 0, 4352)
    assert usage.blocks_saved == 3 * 64
    alone = prompts(16, contents, prefix_caching=False).usage()
    assert (alone.tokens, alone.tail, alone.blocks_saved) == (4352, 0, 0)


def test_a_shared_prefix_that_ends_inside_a_block_is_shared_in_whole_blocks() -> None:
    # 50 = 3 blocks of 16 and 2 tokens: each computes those 2 again in a block of its own.
    contents = [[(1, 50), (2 + number, 10)] for number in range(4)]
    usage = prompts(16, contents).usage()
    assert (usage.tokens, usage.tail) == (48 + 4 * 12, 4 * 4)


def test_the_watermark_and_the_full_prompt_check_refuse_without_a_trace() -> None:
    kv = Accounts(block_tokens=4, num_blocks=11, prefix_caching=True)
    one = Sequence(id=0, segments=[(1, 41)], num_tokens=41, final_tokens=41)
    before = kv.usage()
    assert not kv.admit(one, 4, hit_tokens=0, full_tokens=41, watermark_ratio=0)
    assert not kv.admit(one, 37, hit_tokens=0, full_tokens=0, watermark_ratio=0.1)  # int(1.1) = 1
    assert kv.usage() == before
    assert kv.admit(one, 36, hit_tokens=0, full_tokens=0, watermark_ratio=0.1)
    assert not kv.grow(one, 41)
    assert kv.grow(one, 40)


class PagedMachine(RuleBasedStateMachine):
    """Any sequence of arrivals, admissions, growth, decoding, preemptions and ends."""

    pools: Lockstep

    @initialize(
        block_tokens=st.sampled_from(BLOCK_TOKENS),
        num_blocks=st.integers(2, 40),
        prefix_caching=st.sampled_from([True, True, True, False]),
        prompt_blocks=st.integers(1, 9),
    )
    def build(
        self, block_tokens: int, num_blocks: int, prefix_caching: bool, prompt_blocks: int
    ) -> None:
        self.pools = Lockstep(
            block_tokens=block_tokens, num_blocks=num_blocks, prefix_caching=prefix_caching
        )
        self.arrive_new(prompt_blocks, 0, 20)

    def _tokens(self, num_blocks: int, more: int) -> int:
        # Lengths at and beside the ends of blocks, at any block size.
        return max(0, num_blocks * self.pools.fast.block_tokens + more)

    @rule(num_blocks=st.integers(1, 9), more=st.integers(-1, 1), output_tokens=OUTPUT)
    def arrive_new(self, num_blocks: int, more: int, output_tokens: int) -> None:
        self.pools.arrive(0, 0, self._tokens(num_blocks, more), output_tokens)

    @rule(
        base=INDEX,
        keep=st.integers(0, 500),
        num_blocks=st.integers(0, 4),
        more=st.integers(0, 1),
        output_tokens=OUTPUT,
    )
    def arrive_sharing(
        self, base: int, keep: int, num_blocks: int, more: int, output_tokens: int
    ) -> None:
        self.pools.arrive(base, keep, self._tokens(num_blocks, more), output_tokens)

    @rule(base=INDEX, num_blocks=st.integers(1, 9), output_tokens=OUTPUT)
    def arrive_sharing_whole_blocks(self, base: int, num_blocks: int, output_tokens: int) -> None:
        self.pools.arrive(base, self._tokens(num_blocks, 0), 0, output_tokens)

    @rule(base=INDEX, chunks=st.lists(st.integers(0, 40), min_size=1, max_size=4))
    def run_twins_in_chunks(self, base: int, chunks: list[int]) -> None:
        """Two requests of the same content compute it side by side."""
        pools = self.pools
        for _ in range(2):
            pools.arrive(base, -1, 0, 1)
            pools.admit(-1, chunks[0])
        for chunk in chunks:
            for index in range(min(2, len(pools.running))):
                pools.grow(-1 - index, chunk)

    @rule(index=INDEX, full=st.booleans(), watermark_ratio=st.sampled_from([0.0, 0.0, 0.1, 0.3]))
    def admit_whole(self, index: int, full: bool, watermark_ratio: float) -> None:
        if self.pools.waiting:
            self.pools.admit(index, -1, full=full, watermark_ratio=watermark_ratio)

    @rule(index=INDEX, num_tokens=st.integers(0, 60), full=st.booleans())
    def admit_chunk(self, index: int, num_tokens: int, full: bool) -> None:
        if self.pools.waiting:
            self.pools.admit(index, num_tokens, full=full)

    @rule(index=INDEX, num_tokens=st.integers(0, 60), always_ask=st.booleans())
    def grow(self, index: int, num_tokens: int, always_ask: bool) -> None:
        if self.pools.running:
            self.pools.grow(index, num_tokens, always_ask=always_ask)

    @rule(index=INDEX, num_steps=st.integers(1, 20))
    def decode(self, index: int, num_steps: int) -> None:
        if self.pools.running:
            self.pools.decode(index, num_steps)

    @rule(index=INDEX, output_tokens=OUTPUT, follow=st.booleans())
    def fork(self, index: int, output_tokens: int, follow: bool) -> None:
        if self.pools.running:
            self.pools.fork(index, output_tokens, follow)

    @rule(index=INDEX)
    def preempt(self, index: int) -> None:
        if self.pools.running:
            self.pools.preempt(index)

    @rule(index=INDEX)
    def drop(self, index: int) -> None:
        if self.pools.running:
            self.pools.drop(index)

    @invariant()
    def agree(self) -> None:
        self.pools.check()

    def teardown(self) -> None:
        if hasattr(self, "pools"):
            for situation, count in self.pools.seen.items():
                if count:
                    event(situation)


class LongPagedMachine(PagedMachine):
    """The same, searched for longer by `make test-long`."""


TestMachine = PagedMachine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=50)
TestMachineLong = pytest.mark.slow(LongPagedMachine.TestCase)
TestMachineLong.settings = settings(settings.get_profile("long"), stateful_step_count=80)


@pytest.mark.parametrize("seed", range(20))
def test_long_random_walks_agree(seed: int) -> None:
    walk(stream(seed, "walk"), 200)
