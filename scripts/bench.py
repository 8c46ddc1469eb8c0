"""Measures how fast simkv simulates, and in how much memory; run by ``make bench``.

Reads nothing but what a fresh checkout has, and the published traces where SIMKV_DATA names them.
Writes a table to stdout. Every case runs in a process of its own.
"""

import os
import platform
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simkv import load_config, simulate

SYNTHETIC = (
    "workload.kind=synthetic",
    "workload.num_requests=100000",
    "workload.arrivals.rate_per_s=40",
    "cluster.num_replicas=4",
)


def cases() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each case and what it sets over the default configuration."""
    yield "shipped sample, 1 replica", []
    yield "100,000 synthetic requests, 4 replicas", list(SYNTHETIC)
    root = os.environ.get("SIMKV_DATA")
    if not root:
        return
    traces = Path(root) / "data" / "traces"
    for replicas in (1, 4, 16):
        azure = traces / "azure-2023" / "AzureLLMInferenceTrace_conv.csv"
        yield f"Azure conversation hour, {replicas} replicas", sets_for(azure, replicas)
    mooncake = traces / "mooncake" / "conversation_trace.jsonl"
    yield "Mooncake conversation, 8 replicas", sets_for(mooncake, 8)


def sets_for(trace: Path, replicas: int) -> list[str]:
    """Set a trace and a number of replicas."""
    return [f"workload.path={trace}", f"cluster.num_replicas={replicas}"]


def measure(sets: list[str]) -> tuple[int, int, float, float]:
    """Run one case; return requests, steps, seconds and peak memory in bytes."""
    config = load_config(sets=sets)
    start_s = time.perf_counter()
    summary = simulate(config).summary
    elapsed_s = time.perf_counter() - start_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return summary["num_requests"], summary["num_steps"], elapsed_s, peak_bytes


def main() -> None:
    """Run every case and print the table."""
    table = Table("case", title=f"{platform.machine()}, Python {platform.python_version()}")
    for heading in ("requests", "steps", "time (s)", "requests/s", "steps/s", "peak (MB)"):
        table.add_column(heading, justify="right")
    for name, sets in cases():
        with ProcessPoolExecutor(max_workers=1) as pool:
            requests, steps, elapsed_s, peak_bytes = pool.submit(measure, sets).result()
        table.add_row(
            name,
            f"{requests:,}",
            f"{steps:,}",
            f"{elapsed_s:.1f}",
            f"{requests / elapsed_s:,.0f}",
            f"{steps / elapsed_s:,.0f}",
            f"{peak_bytes / 1e6:,.0f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
