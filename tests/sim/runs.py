"""Small runs for tests: linear step times, pools given in blocks."""

from typing import Any

from simkv.config.run import Cluster, Measure, RunConfig
from simkv.cost.choice import Linear
from simkv.kv.layout import HashChain, Layout, NoSharing, Paged
from simkv.sched.policy import VllmV1


def run_config(
    *,
    kv: Layout | None = None,
    num_blocks: int = 10_000,
    block_tokens: int = 16,
    sharing: bool = False,
    base_s: float = 0.01,
    prefill_token_s: float = 0.0,
    decode_s: float = 0.0,
    context_token_s: float = 0.0,
    num_replicas: int = 1,
    routing: Any = None,
    measure: Measure | None = None,
    **sched: Any,
) -> RunConfig:
    """Return a configuration whose every time can be worked out by hand."""
    layout = kv or Paged(
        block_tokens=block_tokens,
        num_blocks=num_blocks,
        sharing=HashChain() if sharing else NoSharing(),
    )
    cluster = (
        Cluster(num_replicas=num_replicas, routing=routing)
        if routing
        else Cluster(num_replicas=num_replicas)
    )
    return RunConfig(
        kv=layout,
        sched=VllmV1(**sched),
        cost=Linear(
            base_s=base_s,
            prefill_token_s=prefill_token_s,
            decode_s=decode_s,
            context_token_s=context_token_s,
        ),
        cluster=cluster,
        measure=measure or Measure(),
    )
