"""A simulation that costs nothing, for tests of what is around simulations.

Waste, hits and goodput follow from the block size by hand; the seed adds a draw that all arms
share. The environment can make it slow or deadly: processes inherit that.
"""

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from simkv.config.run import RunConfig
from simkv.errors import InputError
from simkv.kv.layout import HashChain, Paged
from simkv.rng import stream
from simkv.workload.trace import Trace, make_trace

GRANULARITY_TOKENS = 8


@dataclass(frozen=True, slots=True)
class FakeTables:
    requests: pa.Table
    memory: pa.Table
    summary: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def load(config: RunConfig) -> Trace:
    if "FAKE_LOADS" in os.environ:
        with Path(os.environ["FAKE_LOADS"]).open("a") as file:
            file.write(f"{config.seed}\n")
    lengths = stream(config.seed, "fake").integers(50, 150, size=20)
    return make_trace(
        prompt_tokens=lengths, output_tokens=lengths, granularity_tokens=GRANULARITY_TOKENS
    )


def simulate(config: RunConfig, trace: Trace | None = None) -> FakeTables:
    time.sleep(float(os.environ.get("FAKE_SLEEP_S", "0")))
    assert trace is not None
    block_tokens = config.kv.block_tokens if isinstance(config.kv, Paged) else 512
    if str(block_tokens) == os.environ.get("FAKE_DEADLY_BLOCK"):
        os.kill(os.getpid(), signal.SIGKILL)
    if str(block_tokens) == os.environ.get("FAKE_BUGGY_BLOCK"):
        raise ZeroDivisionError("a bug")
    if block_tokens == 999:
        raise InputError("kv.num_blocks cannot hold one request")
    draw = float(trace.prompt_tokens.mean())
    shares = isinstance(config.kv, Paged) and isinstance(config.kv.sharing, HashChain)
    waste = (block_tokens - 1) / 2 / draw
    hits = 0.5 - block_tokens / 1000 if shares else 0.0
    summary = {
        "num_requests": trace.num_requests,
        "rejected": {"exceeds-pool": 1} if block_tokens == 64 else {},
        "overloaded": block_tokens == 128,
        "overload_reason": "queue grew" if block_tokens == 128 else None,
        "ttft_s": {"mean": 0.1, "p99": 1.0 - hits + draw / 1000},
        "output_tokens_per_s": draw * (1 + hits),
        "goodput_requests_per_s": draw / 10 + hits - waste,
        "hit_ratio": hits,
        "memory": {"pool_slots": 1000, "waste_ratio": waste},
    }
    table = pa.table({"request": list(range(trace.num_requests))})
    warnings = [f"block size {block_tokens} is large"] if block_tokens > 100 else []
    return FakeTables(requests=table, memory=table, summary=summary, warnings=warnings)
