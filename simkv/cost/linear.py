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

    def warnings(self) -> list[str]:
        """Return nothing: a formula has no measured range."""
        return []
