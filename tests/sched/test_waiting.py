from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.sched.request import Request
from simkv.sched.waiting import ArrivalQueue, PriorityQueue, WaitingQueue


def request(number: int, *, priority: int = 0, arrival_s: float = 0) -> Request:
    return Request(
        id=number,
        segments=[],
        num_tokens=1,
        final_tokens=1,
        arrival_s=arrival_s,
        prompt_tokens=1,
        output_tokens=1,
        priority=priority,
    )


def test_first_come_first_served_and_preempted_ones_in_front() -> None:
    queue = ArrivalQueue()
    one, two, three, four = (request(number) for number in range(4))
    queue.add(one)
    queue.add(two)
    queue.put_back(three)
    queue.put_back(four)  # preempted later in the same step: before the other
    assert list(queue) == [four, three, one, two]
    assert queue.head() is four
    assert [queue.pop() for _ in range(4)] == [four, three, one, two]
    assert not queue


def test_by_priority_preempted_ones_keep_their_place() -> None:
    queue = PriorityQueue()
    low, late, early = request(0, priority=5), request(1, arrival_s=3), request(2, arrival_s=1)
    for one in (low, late):
        queue.add(one)
    queue.put_back(early)
    assert list(queue) == [early, late, low]
    assert queue.head() is early


@pytest.mark.parametrize("make", [ArrivalQueue, PriorityQueue])
@given(priorities=st.lists(st.integers(0, 3), min_size=1, max_size=20), gone=st.integers(0, 19))
def test_a_request_in_the_middle_can_be_removed(
    make: Callable[[], WaitingQueue], priorities: list[int], gone: int
) -> None:
    queue = make()
    requests = [request(n, priority=priority) for n, priority in enumerate(priorities)]
    for one in requests:
        queue.add(one)
    removed = requests[gone % len(requests)]
    queue.remove(removed)
    assert removed not in list(queue)
    expected = [one for one in requests if one is not removed]
    if make is PriorityQueue:
        expected.sort(key=lambda one: (one.priority, one.id))
    assert len(queue) == len(expected)
    assert list(queue) == expected
    assert [queue.pop() for _ in expected] == expected
