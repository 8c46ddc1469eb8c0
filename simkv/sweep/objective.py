"""What a sweep can be ranked by: which column, which way is better, what is too small to matter."""

from dataclasses import dataclass

RELATIVE_THRESHOLD_RATIO = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One thing to be good at.

    Parameters
    ----------
    name
        What it is called in sweep files and on the command line.
    column
        Column of the cell table.
    title
        What people read, unit included.
    meaning
        What it counts, in a few words.
    higher_is_better
        Direction.
    needs_step_time
        Whether it depends on how long steps take, and so on what the cost model knows.
    absolute_threshold
        Differences below this, or below ``RELATIVE_THRESHOLD_RATIO`` of the better arm, are ties
        however sure they are.
    scale
        What a value is multiplied by for people (100 for percentages).
    """

    name: str
    column: str
    title: str
    meaning: str
    higher_is_better: bool
    needs_step_time: bool
    absolute_threshold: float = 0.0
    scale: float = 1.0

    def threshold(self, value: float) -> float:
        """Return the smallest difference to ``value`` that matters in practice."""
        return max(self.absolute_threshold, RELATIVE_THRESHOLD_RATIO * abs(value))


GOODPUT = Objective(
    name="goodput",
    column="goodput_requests_per_s",
    title="goodput (requests/s)",
    meaning="requests per second that meet both objectives",
    higher_is_better=True,
    needs_step_time=True,
)
THROUGHPUT = Objective(
    name="throughput",
    column="output_tokens_per_s",
    title="throughput (tokens/s)",
    meaning="output tokens per second",
    higher_is_better=True,
    needs_step_time=True,
)
P99_TTFT = Objective(
    name="p99-ttft",
    column="ttft_p99_s",
    title="P99 TTFT (s)",
    meaning="time from arrival to first token that 99 % of requests stay below",
    higher_is_better=False,
    needs_step_time=True,
)
WASTE = Objective(
    name="waste",
    column="memory_waste_ratio",
    title="waste (%)",
    meaning="slots in use that hold no token, of all slots in use",
    higher_is_better=False,
    needs_step_time=False,
    absolute_threshold=0.0005,
    scale=100,
)
HIT_RATIO = Objective(
    name="hit-ratio",
    column="hit_ratio",
    title="hits (%)",
    meaning="prompt tokens found in the prefix cache, of all prompt tokens",
    higher_is_better=True,
    needs_step_time=False,
    absolute_threshold=0.0005,
    scale=100,
)

OBJECTIVES = {
    objective.name: objective for objective in (GOODPUT, THROUGHPUT, P99_TTFT, WASTE, HIT_RATIO)
}
