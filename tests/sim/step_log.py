"""The step logs of vLLM that are kept in the tree, and what a replay does differently from them."""

import gzip
import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from simkv.sim.cases import Manager, Record, read_case
from simkv.sim.replay import replay

GOLDEN = Path(__file__).parents[1] / "golden" / "vllm-v1"
KEPT = ("25_pressure_shared", "47_priority_late_first")
_ENDED: Record = {"step": "after the end"}
PHYSICAL = ("newblk", "freeq")  # numbers of blocks: the accounts have none


def kept_case(name: str) -> tuple[Record, list[Record]]:
    """Return the configuration and the workload of a case in the tree."""
    return read_case(GOLDEN / f"{name}.config.json", GOLDEN / f"{name}.workload.jsonl.gz")


def kept_steps(name: str) -> list[Record]:
    """Return what vLLM did in a case in the tree."""
    return read_steps(GOLDEN / f"{name}.log.jsonl.gz")


def read_steps(log: Path) -> list[Record]:
    """Return the steps of a log of vLLM."""
    with gzip.open(log, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [record for record in records if "step" in record]


def difference(
    config: Record,
    workload: Sequence[Record],
    steps: Sequence[Record],
    manager: Manager = "accounts",
) -> str:
    """Say where a replay first parts from a log; nothing if it never does.

    Every field that either has is compared, but physical block numbers only where both do.
    """
    for got, want in zip_longest(
        replay(config, workload, manager=manager), steps, fillvalue=_ENDED
    ):
        keys = got.keys() | want.keys()
        if got.keys().isdisjoint(PHYSICAL):
            keys -= set(PHYSICAL)
        for key in sorted(keys):
            if got.get(key) != want.get(key):
                return f"step {want['step']}, {key}: got {got.get(key)}, vLLM {want.get(key)}"
    return ""
