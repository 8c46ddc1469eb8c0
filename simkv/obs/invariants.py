"""Laws of a run's tables (1, 3 and 4 of docs/invariants.md); they raise ``InvariantError``.

They see what a user sees, whatever the run was made by.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from simkv.errors import InvariantError
from simkv.obs.metrics import ACCOUNTS, Floats, column
from simkv.obs.parts import PARTS, WAITS
from simkv.obs.recorder import Tables
from simkv.obs.schema import STATUSES

# Sums of times are rounded: this share of the last moment is below what counts (1 ns in 1,000 s).
_ROUNDING = 1e-12
# Integrals over time are sums of very many products.
_INTEGRAL = 1e-9


def check_tables(tables: Tables) -> None:
    """Check every law that a run's tables can show."""
    check_ends(tables.requests)
    check_times(tables.requests)
    check_parts(tables.requests)
    check_accounts(tables.memory)
    check_queues(tables.requests, tables.memory)
    if tables.steps is not None:
        check_steps(tables.steps)


def check_ends(requests: pa.Table) -> None:
    """Check that each request has its row and one end (law 3)."""
    status, reason = requests["status"].to_numpy(), requests["reason"].to_numpy()
    _demand(column(requests, "request") == np.arange(len(status)), "is in the wrong row")
    _demand((status == "rejected") == (reason != ""), "is rejected without a reason, or not")
    _demand(np.isin(status, STATUSES), "ended in no known way")
    _demand((status == "finished") == _has(requests, "finish_s"), "has an end too many or too few")
    taken = status != "rejected"
    _demand(taken | ~_has(requests, "first_scheduled_s"), "was rejected and scheduled")
    placed = column(requests, "replica") >= 0
    came = taken & _has(requests, "arrival_s")
    _demand(placed == came, "has a replica and did not come, or the reverse")


def check_times(requests: pa.Table) -> None:
    """Check the order of each request's moments, and that a token has one (law 4)."""
    arrival, scheduled, token, finish = (
        column(requests, name)
        for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    )
    # A comparison with a moment that did not come, NaN, is false.
    _demand(~(scheduled < arrival), "was scheduled before it arrived")
    # With a step time of zero, which a formula may give, moments are equal.
    _demand(~(token < scheduled), "had a token before its prefill")
    _demand(~(finish < token) & ~(finish < scheduled), "ended before its first token")
    ended, wants = np.isfinite(finish), column(requests, "output_tokens") > 0
    _demand(~ended | np.isfinite(scheduled), "ended and was never scheduled")
    _demand(~ended | (np.isfinite(token) == wants), "has a first token too many or too few")
    hit, prompt = column(requests, "hit_tokens"), column(requests, "prompt_tokens")
    _demand((hit >= 0) & (~ended | (hit < prompt)), "found more than its prompt in the cache")


def check_parts(requests: pa.Table) -> None:
    """Check that no part is negative, and that they add up to what they are parts of (law 4)."""
    parts = {name: column(requests, name) for name in PARTS}
    for name, seconds in parts.items():
        _demand(~(seconds < 0), f"has a negative {name}")
    arrival, finish = column(requests, "arrival_s"), column(requests, "finish_s")
    scheduled = column(requests, "first_scheduled_s")
    last_s = np.nanmax(np.concatenate([arrival, finish, [0.0]]))
    slack_s = _ROUNDING * max(1.0, float(last_s))
    waited = sum_of(parts[name] for name in WAITS)
    _demand(
        ~(abs(waited - (scheduled - arrival)) > slack_s), "waited longer or shorter than it did"
    )
    whole = sum_of(parts.values())
    _demand(~(abs(whole - (finish - arrival)) > slack_s), "has parts that are not its latency")
    _demand(np.isfinite(whole) == np.isfinite(finish), "has parts too many or too few")


def check_accounts(memory: pa.Table) -> None:
    """Check that bins follow each other and that accounts add up to one pool in each (law 1)."""
    accounts = np.array([column(memory, name) for name in ACCOUNTS])
    if accounts.min(initial=0.0) < 0:
        raise InvariantError(f"an account is negative: {accounts.min()} slots")
    pools = accounts.sum(axis=0)
    if len(pools) and np.ptp(pools) > _INTEGRAL * pools.max():
        raise InvariantError(f"the accounts add up to {pools.min()} slots and to {pools.max()}")
    for replica in pc.unique(memory["replica"]).to_pylist():
        one = memory.filter(pc.equal(memory["replica"], replica))
        start_s, end_s = column(one, "start_s"), column(one, "end_s")
        if start_s[0] != 0 or (start_s[1:] != end_s[:-1]).any() or (start_s >= end_s).any():
            raise InvariantError(f"the bins of replica {replica} do not follow each other")


def check_queues(requests: pa.Table, memory: pa.Table) -> None:
    """Check that time in the queue is the same by request and by replica (Little's law)."""
    if not np.isin(requests["status"].to_numpy(), ("finished", "rejected")).all():
        return  # what did not finish is not in the sums
    widths = column(memory, "end_s") - column(memory, "start_s")
    for name, parts in (
        ("num_waiting", (*WAITS, "preempted_s")),
        ("num_running", ("prefill_s", "decode_s", "recompute_s")),
    ):
        by_replica_s = float((column(memory, name) * widths).sum())
        by_request_s = float(sum(np.nansum(column(requests, part)) for part in parts))
        if abs(by_replica_s - by_request_s) > _INTEGRAL * max(1.0, by_request_s):
            raise InvariantError(
                f"{name} is {by_replica_s} s over the replicas, {by_request_s} s over the requests"
            )


def check_steps(steps: pa.Table) -> None:
    """Check that the steps of a replica come one after another (law 4)."""
    replica, start_s = column(steps, "replica"), column(steps, "start_s")
    step_s = column(steps, "step_s")
    if not (step_s >= 0).all():
        raise InvariantError(f"a step takes {step_s.min()} s")
    for index in np.unique(replica):
        starts, ends = start_s[replica == index], (start_s + step_s)[replica == index]
        if (starts[1:] < ends[:-1]).any():
            raise InvariantError(f"replica {index:.0f} does two steps at once")


def sum_of(columns: Iterable[Floats]) -> Floats:
    """Return the sum of columns, NaN where one is."""
    total: Floats = np.sum(list(columns), axis=0)
    return total


def _has(requests: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.isfinite(column(requests, name))


def _demand(holds: npt.NDArray[np.bool_], what: str) -> None:
    """Raise for the first request of which something does not hold."""
    if not holds.all():
        raise InvariantError(f"request {int(np.argmin(holds))} {what}")
