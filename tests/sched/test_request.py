from itertools import product

import pytest

from simkv.errors import InvariantError
from simkv.sched.request import Request, Status

LEGAL = {
    ("WAITING", "RUNNING"),
    ("WAITING", "ABORTED"),
    ("RUNNING", "PREEMPTED"),
    ("RUNNING", "FINISHED"),
    ("RUNNING", "ABORTED"),
    ("PREEMPTED", "RUNNING"),
    ("PREEMPTED", "FINISHED"),  # by a token that was under way
    ("PREEMPTED", "ABORTED"),
}


def request(**kw: int) -> Request:
    return Request(
        id=kw.get("id", 0),
        segments=[],
        num_tokens=1,
        final_tokens=1,
        arrival_s=kw.get("arrival_s", 0),
        prompt_tokens=1,
        output_tokens=1,
        priority=kw.get("priority", 0),
        tie=kw.get("tie"),
    )


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_a_request_makes_legal_moves_only(before: Status, after: Status) -> None:
    one = request()
    one.status = before
    if (before.name, after.name) in LEGAL:
        one.move(after)
        assert one.status is after
        return
    with pytest.raises(InvariantError, match=f"request 0 cannot go from {before} to {after}"):
        one.move(after)
    assert one.status is before


def test_order_is_priority_then_arrival_then_tie_or_id() -> None:
    urgent = request(id=9, priority=-1, arrival_s=9)
    early = request(id=8, arrival_s=1)
    first = request(id=7, arrival_s=2, tie=0)
    second = request(id=1, arrival_s=2)
    assert sorted([second, first, early, urgent], key=lambda one: one.order) == [
        urgent,
        early,
        first,
        second,
    ]


def test_requests_are_equal_only_to_themselves() -> None:
    assert request() != request()
    assert len({request(), request()}) == 2
