"""The tables that a run leaves, whoever made them: simulator or engine.

Units are in the names of the columns; docs/metrics.md defines what is computed from them.
"""

import pyarrow as pa

from simkv.kv.usage import COUNTS
from simkv.obs.parts import PARTS

SCHEMA_VERSION = 2

STATUSES = ("finished", "rejected", "unfinished", "aborted")
"""What can have become of a request when a run ends."""

REASONS = ("", "exceeds-model-limit", "exceeds-pool")
"""Why a request was rejected; empty for the others."""

REQUESTS = pa.schema(
    [
        ("request", pa.int64()),
        ("session", pa.int64()),
        ("turn", pa.int64()),
        ("tenant", pa.int64()),
        ("priority", pa.int64()),
        ("replica", pa.int32()),
        ("prompt_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("arrival_s", pa.float64()),
        ("first_scheduled_s", pa.float64()),
        ("first_token_s", pa.float64()),
        ("finish_s", pa.float64()),
        ("hit_tokens", pa.int64()),
        ("num_preemptions", pa.int32()),
        ("recomputed_tokens", pa.int64()),
        *((name, pa.float64()) for name in PARTS),
        ("status", pa.dictionary(pa.int8(), pa.string())),
        ("reason", pa.dictionary(pa.int8(), pa.string())),
    ]
)

SERIES = ("num_running", "num_waiting", *COUNTS)
"""What is averaged over time, a replica: two lengths of queues and the memory accounts in slots."""

MEMORY = pa.schema(
    [
        ("replica", pa.int32()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        *((name, pa.float64()) for name in SERIES),
    ]
)

STEPS = pa.schema(
    [
        ("replica", pa.int32()),
        ("start_s", pa.float64()),
        ("step_s", pa.float64()),
        ("num_prefills", pa.int32()),
        ("prefill_tokens", pa.int64()),
        ("num_decodes", pa.int32()),
        ("decode_context_tokens", pa.int64()),
        ("num_admitted", pa.int32()),
        ("num_preempted", pa.int32()),
        ("num_running", pa.int32()),
        ("num_waiting", pa.int32()),
        ("num_free_blocks", pa.int64()),
    ]
)
