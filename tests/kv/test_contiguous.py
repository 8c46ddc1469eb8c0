"""Contiguous reservations, by hand and against a pool that is a list of slots."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simkv.kv.contiguous import Holes, Reservations
from simkv.kv.invariants import check_memory
from simkv.kv.sequence import Sequence
from simkv.kv.usage import Usage


def sequence(number: int, prompt_tokens: int, output_tokens: int = 1) -> Sequence:
    total = prompt_tokens + output_tokens
    return Sequence(id=number, segments=[], num_tokens=prompt_tokens, final_tokens=total - 1)


def admit(kv: Reservations, new: Sequence) -> bool:
    fits = kv.admit(new, new.num_tokens, hit_tokens=0, full_tokens=0, watermark_ratio=0)
    if fits:
        kv.advance(new.num_tokens)
        new.computed_tokens = new.num_tokens
    return fits


def test_three_requests_reserve_6144_slots_for_2432_tokens() -> None:
    kv = Reservations(num_slots=3 * 2048, reserve_tokens=2048)
    for number, tokens in enumerate((128, 2048, 256)):
        assert admit(kv, sequence(number, tokens))
    assert kv.usage() == Usage(tokens=2432, over_reserved=6144 - 2432, logical_tokens=2432)
    assert kv.num_free_blocks == 0


def test_seven_reservations_fit_15728_slots_and_the_rest_is_unreachable() -> None:
    kv = Reservations(num_slots=15_728, reserve_tokens=2048)
    fits = [admit(kv, sequence(number, 100)) for number in range(8)]
    assert fits == [True] * 7 + [False]
    assert kv.usage().unreachable == 15_728 - 7 * 2048 == 1392
    assert kv.usage().free == 0


def test_what_a_sequence_will_use_later_is_reserved_and_the_rest_over_reserved() -> None:
    kv = Reservations(num_slots=100, reserve_tokens=40)
    # 10 prompt and 6 output tokens: the last one is never computed, so 15 slots are used.
    assert admit(kv, sequence(0, 10, output_tokens=6))
    assert kv.usage() == Usage(tokens=10, reserved=5, over_reserved=25, free=60, logical_tokens=10)


def test_a_reservation_is_all_that_a_sequence_can_grow_into() -> None:
    kv = Reservations(num_slots=100, reserve_tokens=40)
    one = sequence(0, 10)
    assert admit(kv, one)
    assert kv.grow(one, 40)
    assert not kv.grow(one, 41)
    assert kv.can_ever_hold(40)
    assert not kv.can_ever_hold(41)
    assert not Reservations(num_slots=30, reserve_tokens=40).can_ever_hold(10)


def test_the_first_hole_is_taken_and_neighbours_merge() -> None:
    holes = Holes(100)
    assert [holes.find(30), list(holes)] == [0, [(0, 100)]]
    for start in (0, 30, 60):
        holes.take(start, 30)
    assert list(holes) == [(90, 100)]
    holes.give_back(0, 30)
    holes.give_back(60, 30)
    assert list(holes) == [(0, 30), (60, 100)]
    assert holes.find(31) == 60
    assert holes.find(41) is None
    holes.give_back(30, 30)
    assert list(holes) == [(0, 100)]


def test_a_pool_of_no_slots_has_no_hole() -> None:
    assert list(Holes(0)) == []
    assert Holes(0).find(1) is None


@given(
    num_slots=st.integers(1, 60),
    wishes=st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=60),
)
def test_holes_equal_a_list_of_slots(num_slots: int, wishes: list[tuple[bool, int]]) -> None:
    holes, slots = Holes(num_slots), [False] * num_slots
    held: list[tuple[int, int]] = []
    for take, number in wishes:
        if take:
            starts = (s for s in range(num_slots - number + 1) if not any(slots[s : s + number]))
            expected = next(starts, None)
            assert holes.find(number) == expected
            if expected is not None:
                holes.take(expected, number)
                held.append((expected, number))
                slots[expected : expected + number] = [True] * number
        elif held:
            start, length = held.pop(number % len(held))
            holes.give_back(start, length)
            slots[start : start + length] = [False] * length
        free = [slot for start, end in holes for slot in range(start, end)]
        assert free == [slot for slot, taken in enumerate(slots) if not taken]


class ReservationMachine(RuleBasedStateMachine):
    """Reservations beside a list that says for each slot who has it."""

    @initialize(num_slots=st.integers(1, 100), reserve_tokens=st.integers(1, 30))
    def build(self, num_slots: int, reserve_tokens: int) -> None:
        self.kv = Reservations(num_slots=num_slots, reserve_tokens=reserve_tokens)
        self.slots: list[Sequence | None] = [None] * num_slots
        self.running: list[Sequence] = []
        self.arrived = 0

    @rule(prompt_tokens=st.integers(1, 30), output_tokens=st.integers(1, 30))
    def admit(self, prompt_tokens: int, output_tokens: int) -> None:
        size = self.kv.reserve_tokens
        prompt_tokens = min(prompt_tokens, size)
        new = sequence(self.arrived, prompt_tokens, min(output_tokens, size - prompt_tokens + 1))
        self.arrived += 1
        starts = range(len(self.slots) - size + 1)
        start = next((s for s in starts if not any(self.slots[s : s + size])), None)
        assert admit(self.kv, new) == (start is not None)
        if start is not None:
            assert new.table == start
            self.slots[start : start + size] = [new] * size
            self.running.append(new)

    @rule(index=st.integers(0, 9))
    def decode(self, index: int) -> None:
        if self.running:
            one = self.running[index % len(self.running)]
            if one.computed_tokens < one.final_tokens:
                assert one.computed_tokens + 1 < one.capacity_tokens
                one.computed_tokens += 1
                self.kv.advance(1)

    @rule(index=st.integers(0, 9))
    def release(self, index: int) -> None:
        if self.running:
            one = self.running.pop(index % len(self.running))
            self.kv.release(one)
            self.slots = [None if owner is one else owner for owner in self.slots]

    @invariant()
    def agree(self) -> None:
        size, slots = self.kv.reserve_tokens, self.slots
        reachable: set[int] = set()
        for start in range(len(slots) - size + 1):
            if not any(slots[start : start + size]):
                reachable.update(range(start, start + size))
        free = {slot for slot, owner in enumerate(slots) if owner is None}
        computed = sum(one.computed_tokens for one in self.running)
        later = sum(one.final_tokens - one.computed_tokens for one in self.running)
        assert self.kv.usage() == Usage(
            tokens=computed,
            reserved=later,
            over_reserved=len(slots) - len(free) - computed - later,
            unreachable=len(free - reachable),
            free=len(reachable),
            logical_tokens=computed,
        )
        check_memory(self.kv, self.running)


TestReservationMachine = ReservationMachine.TestCase
