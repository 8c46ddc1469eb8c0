"""What every routing policy owes its caller, and what each one does by hand."""

from copy import deepcopy
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.route.policy import LeastOutstanding, ReplicaView, RoundRobin, Router, Routing

COUNT = st.integers(0, 1000)
VIEWS = st.lists(
    st.builds(
        ReplicaView,
        num_waiting=COUNT,
        num_running=COUNT,
        outstanding_tokens=COUNT,
        free_ratio=st.floats(0, 1),
    ),
    min_size=1,
    max_size=16,
)


def view(outstanding_tokens: int) -> ReplicaView:
    return ReplicaView(
        num_waiting=0, num_running=0, outstanding_tokens=outstanding_tokens, free_ratio=1.0
    )


@pytest.mark.parametrize("policy", [kind() for kind in get_args(Routing)], ids=lambda p: p.kind)
@given(views=VIEWS, num_routed=COUNT)
def test_every_policy_names_a_replica_changes_nothing_and_repeats(
    policy: Router, views: list[ReplicaView], num_routed: int
) -> None:
    before = deepcopy(views)
    choice = policy.choose(views, num_routed)
    assert 0 <= choice < len(views)
    assert views == before
    assert policy.choose(deepcopy(views), num_routed) == choice


def test_round_robin_takes_replicas_in_turn() -> None:
    policy, views = RoundRobin(), [view(9), view(0), view(5)]
    assert [policy.choose(views, routed) for routed in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(
    ("outstanding", "choice"), [([7, 3, 9], 1), ([4, 4, 4], 0), ([5, 2, 2], 1), ([8], 0)]
)
def test_least_outstanding_takes_the_first_of_the_shortest(
    outstanding: list[int], choice: int
) -> None:
    assert LeastOutstanding().choose([view(tokens) for tokens in outstanding], 3) == choice
