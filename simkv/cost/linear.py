"""Step time as a sum of products: for closed forms, timed step logs, fits to an engine's steps."""

from simkv.cost.choice import Linear
from simkv.sched.work import StepWork


class LinearCost:
    """The cost model of a :class:`~simkv.cost.choice.Linear` choice."""

    def __init__(self, choice: Linear) -> None:
        self._choice = choice

    def step_time_s(self, work: StepWork) -> float:
        """Return the sum of what the step counts, each priced."""
        choice = self._choice
        num_new, num_attended, num_pairs = 0, work.decode_context_tokens, 0.0
        for new, cached in work.prefills:
            num_new += new
            num_attended += cached + new
            num_pairs += new * (cached + 0.5 * (new + 1))
        step_s = (
            choice.base_s
            + choice.prefill_token_s * num_new
            + choice.decode_s * work.num_decodes
            + choice.context_token_s * num_attended
        )
        if work.prefills:
            step_s += choice.prefill_s * len(work.prefills) + choice.pair_s * num_pairs
            if work.num_decodes:
                step_s += choice.mixed_s
        return step_s

    def step_times_s(self, work: StepWork, num_steps: int) -> list[float]:
        """Return the times of steps on end in which every sequence decodes."""
        choice, first, batch = self._choice, work.decode_context_tokens, work.num_decodes
        fixed_s = choice.base_s + choice.prefill_token_s * 0 + choice.decode_s * batch
        price_s = choice.context_token_s
        return [fixed_s + price_s * (first + step * batch) for step in range(num_steps)]

    def note(self, work: StepWork, num_steps: int) -> None:
        """Count nothing: a formula has no measured range."""

    def warnings(self) -> list[str]:
        """Return nothing: a formula has no measured range."""
        return []
