"""Scheduling policies as frozen values: what a configuration says."""

from dataclasses import dataclass
from typing import Literal

from simkv.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmV1:
    """Continuous batching as vLLM V1 does it; field names follow vLLM's flags.

    Parameters
    ----------
    max_num_batched_tokens
        Token budget of a step.
    max_num_seqs
        Most requests that run at once.
    max_model_len
        Most tokens of a request, prompt and output together; None takes the model's limit.
    policy
        Order of waiting requests: first come first served, or by priority.
    chunked_prefill
        Whether a prompt may be split over several steps.
    long_prefill_token_threshold
        Most tokens of one prompt in a step while other requests want to run; 0 is off.
    long_prefill_adaptive
        Raise that threshold to an equal share of the budget.
    reserve_full_prompt
        Admit a request only if its whole prompt would fit now (``scheduler_reserve_full_isl``).
    watermark_ratio
        Share of the pool kept free when a request is admitted to a non-empty batch.
    async_scheduling
        Plan each step while the one before it is under way, not knowing its tokens yet.
    """

    kind: Literal["vllm-v1"] = "vllm-v1"
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_model_len: int | None = None
    policy: Literal["fcfs", "priority"] = "fcfs"
    chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_adaptive: bool = False
    reserve_full_prompt: bool = True
    watermark_ratio: float = 0.0
    async_scheduling: bool = False

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        for name, least in (("max_num_batched_tokens", 1), ("max_num_seqs", 1),
                            ("long_prefill_token_threshold", 0)):  # fmt: skip
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"got {value}, expected {least} or more", path=f"sched.{name}")
        if self.max_model_len is not None and self.max_model_len < 2:
            raise ConfigError(
                f"got {self.max_model_len}, expected 2 or more (one prompt and one output token)",
                path="sched.max_model_len",
            )
        if not 0 <= self.watermark_ratio < 1:
            raise ConfigError(
                f"got {self.watermark_ratio}, expected a ratio from 0 to below 1",
                path="sched.watermark_ratio",
            )
        limit = self.max_model_len
        if not self.chunked_prefill and limit is not None and self.max_num_batched_tokens < limit:
            raise ConfigError(
                f"without chunked prefill the budget of {self.max_num_batched_tokens} tokens must "
                f"hold the longest prompt, max_model_len={limit}; raise the one or lower the other",
                path="sched.max_num_batched_tokens",
            )
