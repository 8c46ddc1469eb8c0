"""Law 6: the same configuration and seed give the same bytes, whatever Python's hashes are."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Shared prefixes, sessions, preemptions and four replicas: whatever has an order that could slip.
RUN = """
import hashlib
from simkv import load_config, simulate

config = load_config(mapping={
    "seed": 7,
    "workload": {
        "kind": "synthetic",
        "num_requests": 300,
        "arrivals": {"kind": "poisson", "rate_per_s": 40.0},
        "prompt": {"kind": "lognormal", "mean_tokens": 60.0, "sigma": 1.0, "max_tokens": 200},
        "output": {"kind": "fixed", "tokens": 40},
        "prefixes": {},
        "sessions": {},
    },
    "kv": {"kind": "paged", "block_tokens": 7, "num_blocks": 120},
    "sched": {"max_model_len": 800, "max_num_batched_tokens": 256},
    "cost": {"kind": "linear", "base_s": 0.01, "prefill_token_s": 1e-4, "decode_s": 1e-4},
    "cluster": {"num_replicas": 4, "routing": {"kind": "least-outstanding-tokens"}},
    "measure": {"steps": True},
})
tables = simulate(config)
digest = hashlib.sha256()
for table in (tables.requests, tables.memory, tables.steps):
    for batch in table.to_batches():
        digest.update(batch.serialize())
digest.update(repr(tables.summary).encode())
preemptions, hits = tables.summary["num_preemptions"], tables.summary["hit_tokens"]
print(digest.hexdigest(), preemptions, hits, tables.summary["num_finished"])
"""


def run_under(hash_seed: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", RUN]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_two_hash_seeds_give_the_same_bytes() -> None:
    first, second = run_under("0"), run_under("4242")
    assert first == second
    _, preemptions, hits, finished = first
    # It would prove nothing on a run in which nothing happens.
    assert int(preemptions) > 0
    assert int(hits) > 0
    assert int(finished) > 0
