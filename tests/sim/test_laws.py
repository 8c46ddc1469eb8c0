"""Laws at every step: a run that breaks one stops there."""

import pytest

from simkv.errors import InvariantError
from simkv.kv.accounts import Accounts
from simkv.sched.request import Request
from simkv.sched.scheduler import Scheduler
from simkv.sim.laws import Laws
from simkv.sim.simulate import simulate
from simkv.workload.trace import make_trace
from tests.sim.runs import run_config

TRACE = make_trace(arrival_s=[0.0, 0.004], prompt_tokens=[40, 50], output_tokens=[5, 4])


def run(**options: bool) -> None:
    simulate(run_config(num_blocks=20), TRACE, **options)


def test_a_leak_of_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Accounts, "release", lambda self, sequence: None)
    run()  # nobody looks
    with pytest.raises(InvariantError, match=r"request 0 is finished and holds 48 slots"):
        run(check=True)


def test_a_request_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    add = Scheduler.add

    def forget(self: Scheduler, request: Request) -> None:
        if request.id != 1:
            add(self, request)

    monkeypatch.setattr(Scheduler, "add", forget)
    with pytest.raises(InvariantError, match=r"request 1 is waiting, yet 0 times in the queue"):
        run(check=True)


def test_a_wrong_clock_is_found() -> None:
    laws = Laws(1)
    laws.ended(2.0)
    with pytest.raises(InvariantError, match=r"time runs backwards, from 2.0 to 1.0 s"):
        laws.ended(1.0)
    with pytest.raises(InvariantError, match=r"time runs backwards, from 2.0 to nan s"):
        laws.ended(float("nan"))


def test_a_request_that_arrives_twice_is_found() -> None:
    laws = Laws(1)
    request = Request(
        id=3, segments=(), num_tokens=1, final_tokens=1, arrival_s=1.0, prompt_tokens=1,
        output_tokens=1,
    )  # fmt: skip
    laws.arrived(0, 1.0, request)
    with pytest.raises(InvariantError, match=r"request 3 arrives at 1.0 s, again"):
        laws.arrived(0, 1.0, request)
