"""One run, from a configuration to tables."""

import gc
import math
from collections.abc import Callable, Sequence

import numpy as np

from simkv.config.build import build_cost_model, build_scheduler, build_served
from simkv.config.run import RunConfig
from simkv.cost.model import CostModel
from simkv.errors import TraceError
from simkv.kv.blocks import Blocks
from simkv.obs.invariants import check_tables
from simkv.obs.recorder import Recorder, Tables
from simkv.obs.summary import summarize
from simkv.obs.watch import Watcher
from simkv.sched.asynchronous import AsyncScheduler
from simkv.sched.leaps import LeapingScheduler
from simkv.sched.scheduler import Scheduler
from simkv.sim.ahead import AheadReplica
from simkv.sim.clock import Clock
from simkv.sim.cluster import Cluster
from simkv.sim.laws import Laws
from simkv.sim.leaping import LeapingReplica
from simkv.sim.replica import Replica
from simkv.workload.load import load
from simkv.workload.trace import Trace

# A clock of 64-bit floats tells microseconds apart up to here; beyond, steps take no time.
_LATEST_ARRIVAL_S = 1e10

# Enough to let arrivals at the stop happen in spite of rounding, too little to matter.
_JUST_AFTER_S = 1e-6

_REJECTED = {
    "exceeds-model-limit": "prompt and output together are longer than sched.max_model_len",
    "exceeds-pool": "they do not fit the KV pool even alone; raise its size",
}


def simulate(
    config: RunConfig,
    trace: Trace | None = None,
    *,
    progress: Callable[[float], None] | None = None,
    check: bool = False,
    watchers: Sequence[Watcher] = (),
    leaps: bool = True,
) -> Tables:
    """Simulate a run.

    Parameters
    ----------
    config
        What is run.
    trace
        Its workload where that is loaded already; None loads it.
    progress
        Called now and then with the share of requests that are done.
    check
        Check every law at every step, and the tables at the end. Changes nothing but the time
        that it takes.
    watchers
        Who looks on while it goes.
    leaps
        Take steps that are alike together where that is known to change nothing. Whoever looks on,
        or checks, sees single steps.

    Raises
    ------
    InputError
        If the workload, the model, the device or the profile cannot be used.
    InvariantError
        If a law is broken: a bug.
    """
    served = build_served(config)
    if trace is None:
        trace = load(config.workload, seed=config.seed, max_model_len=served.max_model_len)
    _check_arrivals(trace)
    env = Clock()
    recorder = Recorder(
        trace,
        num_replicas=config.cluster.num_replicas,
        warmup_s=config.measure.warmup_s,
        steps=config.measure.steps,
    )
    cluster = Cluster(env, trace, config.cluster.routing, recorder, progress)
    cost = build_cost_model(config, served)
    watchers = (Laws(config.cluster.num_replicas), *watchers) if check else watchers
    leaps = leaps and not watchers and _may_leap(config, cluster)
    for index in range(config.cluster.num_replicas):
        scheduler = build_scheduler(config, served, leaps=leaps)
        replica = _replica(cluster, index, scheduler, cost)
        replica.watchers = watchers
        cluster.replicas.append(replica)
    cluster.start()
    end_s = _run(cluster, None if config.measure.drain else _stop_s(trace))
    for replica in cluster.replicas:
        for request in (*replica.scheduler.running, *replica.scheduler.waiting):
            recorder.progress(replica.index, request)
    for watcher in watchers:
        watcher.ended(end_s)
    tables = recorder.close(end_s)
    if check:
        check_tables(tables)
    tables.summary = summarize(
        recorder,
        tables,
        ttft_s=config.objectives.ttft_s,
        tpot_s=config.objectives.tpot_s,
        warmup_s=config.measure.warmup_s,
        end_s=end_s,
    )
    tables.notes = (*trace.notes, *_notes(cluster))
    tables.warnings = [*cost.warnings(), *_warnings(tables, config.measure.warmup_s)]
    return tables


def _may_leap(config: RunConfig, cluster: Cluster) -> bool:
    """Whether taking steps together is known to change nothing.

    Not where a request's end may release another at the very moment at which another replica's
    step ends: which comes first is then a matter of who was called first. Nor where a run is cut
    off while requests run.
    """
    apart = config.cluster.num_replicas == 1 or not cluster.has_followers
    return config.measure.drain and apart


def _replica(cluster: Cluster, index: int, scheduler: Scheduler, cost: CostModel) -> Replica:
    """Return the replica that executes the plans of a scheduler."""
    means = (cost, cluster.recorder, cluster.finish, cluster.abort)
    if isinstance(scheduler, AsyncScheduler):
        return AheadReplica(cluster.env, index, scheduler, *means)
    if isinstance(scheduler, LeapingScheduler):
        wakes = cluster.has_followers
        return LeapingReplica(cluster.env, index, scheduler, *means, wakes=wakes)
    return Replica(cluster.env, index, scheduler, *means)


def _run(cluster: Cluster, stop_s: float | None) -> float:
    """Let time pass, to a stop or until all is done; return when that is."""
    # A run makes objects by the million and no cycles of them: looking for some takes a tenth of
    # its time.
    collects = gc.isenabled()
    gc.disable()
    try:
        cluster.env.run(until=stop_s)
        until_s = math.inf if stop_s is None else stop_s
        last_s = [replica.run_on(until_s) for replica in cluster.replicas]
    finally:
        if collects:
            gc.enable()
    return max(cluster.last_s, *last_s) if stop_s is None else stop_s


def _check_arrivals(trace: Trace) -> None:
    """Refuse a trace whose requests come at no known time, or too late for the clock."""
    unknown = np.isnan(trace.arrival_s) & (trace.after < 0)
    if unknown.any():
        raise TraceError(
            f"{unknown.sum():,} of {trace.num_requests:,} requests have no arrival time; choose a "
            "trace with arrivals, or draw arrivals for its lengths with workload.kind=synthetic",
            file=trace.name,
        )
    last_s = max(_stop_s(trace), float(np.nan_to_num(trace.think_s).max(initial=0.0)))
    if last_s > _LATEST_ARRIVAL_S:
        raise TraceError(
            f"the last request is due after {last_s:g} s, expected at most "
            f"{_LATEST_ARRIVAL_S:g} s, beyond which a step is lost in the rounding of the clock; "
            "raise the rate, shorten think times or shift the arrivals towards zero",
            file=trace.name,
        )


def _stop_s(trace: Trace) -> float:
    """Return a moment just after the last arrival that is known beforehand."""
    arrivals = trace.arrival_s[np.isfinite(trace.arrival_s)]
    return float(arrivals.max(initial=0.0)) + _JUST_AFTER_S


def _notes(cluster: Cluster) -> list[str]:
    """Return what the engine decided that a reader may want to know."""
    if isinstance(cluster.replicas[0].scheduler.kv, Blocks):
        return ["windows need to know which block is which: memory is kept block by block"]
    return []


def _warnings(tables: Tables, warmup_s: float) -> list[str]:
    """Return what a reader of the summary must not miss."""
    summary = tables.summary
    found = [
        f"{count:,} of {summary['num_requests']:,} requests were rejected: {_REJECTED[reason]}"
        for reason, count in summary["rejected"].items()
    ]
    if tables.requests.num_rows and not summary["num_requests"]:
        found.append(
            f"no request arrives after the warm-up of {warmup_s:g} s, so nothing is measured; "
            "lower measure.warmup_s"
        )
    if summary["overloaded"]:
        found.append(f"overloaded: {summary['overload_reason']}")
    return found
