"""What the queues and the memory of one replica are doing, from step to step.

Steps are noted as they come, many at once where a plan held for many, in few numbers each; the
counters of all are worked out together when there are enough of them. One step or many, the
integrals are the same to the last bit.
"""

from collections.abc import Sequence

import numpy as np

from simkv.kv.manager import KVManager
from simkv.obs.schema import SERIES
from simkv.obs.series import Floats, Series
from simkv.sched.scheduler import Scheduler

_MOST_ROWS = 4096

_ROUNDING_SLOTS = 1e-6


class Course:
    """The course of one replica: lengths of its queues, and the counters of its memory.

    Parameters
    ----------
    from_s
        Means count from here on (the end of the warm-up).
    """

    def __init__(self, *, from_s: float) -> None:
        self._from_s = from_s
        self._kv: KVManager | None = None
        self._series: Series | None = None
        self._times: list[float] = []  # of every row
        self._more_blocks: list[int] = []  # of every row: taken since the row before
        self._heads: list[int] = []  # rows that belong together: their number, what they share

    def note(self, now_s: float, scheduler: Scheduler) -> None:
        """Note what holds from now on."""
        times, kv = self._times, scheduler.kv
        if not times:
            self._kv = kv
        times.append(now_s)
        self._more_blocks.append(0)
        self._heads += (1, len(scheduler.running), len(scheduler.waiting), 0, *kv.counters())
        if len(times) > _MOST_ROWS:
            self._flush()

    def note_steps(
        self,
        starts_s: Sequence[float],
        more_blocks: Sequence[int],
        *,
        step_tokens: int,
        counters: tuple[int, ...],
        scheduler: Scheduler,
    ) -> None:
        """Note steps on end that do nothing but compute.

        Parameters
        ----------
        starts_s
            Their starts.
        more_blocks
            Blocks that are taken in each.
        step_tokens
            Tokens that are computed in each.
        counters
            The manager's counters before them.
        """
        self._times.extend(starts_s)
        self._more_blocks.extend(more_blocks)
        head = (len(starts_s), len(scheduler.running), len(scheduler.waiting), step_tokens)
        self._heads.extend(head + counters)
        if len(self._times) > _MOST_ROWS:
            self._flush()

    def close(self, now_s: float) -> None:
        """End the last interval."""
        self._flush()
        if self._series is not None:
            self._series.close(now_s)

    def means(self) -> Floats:
        """Return the time-weighted means from the end of the warm-up on, in order of ``SERIES``."""
        if self._series is None or self._series.end_s <= self._from_s:
            return np.zeros(len(SERIES))
        means: Floats = self._accounts(self._series.means()[None, :])[0]
        return means

    def bins(self) -> tuple[Floats, Floats]:
        """Return bins' edges ``[num_bins + 1]`` and means ``[num_bins, len(SERIES)]``."""
        if self._series is None:
            return np.zeros(1), np.zeros((0, len(SERIES)))
        edges, means = self._series.bins()
        return edges, self._accounts(means)

    def _accounts(self, means: Floats) -> Floats:
        """Turn means of queues and counters into means of queues and accounts."""
        assert self._kv is not None
        accounts = np.empty((len(means), len(SERIES)))
        columns = (means[:, 0], means[:, 1], *self._kv.usage_of(tuple(means[:, 2:].T)))
        for index, column in enumerate(columns):
            accounts[:, index] = np.asarray(column)
        # Differences of integrals are rounded: what is nothing may come out just below it.
        accounts[(accounts < 0) & (accounts > -_ROUNDING_SLOTS)] = 0.0
        return accounts

    def _flush(self) -> None:
        """Work out all rows and integrate them."""
        if self._kv is None or not self._times:
            return
        width = 4 + len(self._kv.counters())
        if self._series is None:
            self._series = Series(width - 2, from_s=self._from_s)
        heads = np.fromiter(self._heads, np.int64, len(self._heads)).reshape(-1, width)
        num_rows = heads[:, 0]
        first = np.cumsum(num_rows) - num_rows
        shared = np.repeat(heads, num_rows, axis=0)
        number = np.arange(1, 1 + len(shared)) - np.repeat(first, num_rows)
        taken = np.fromiter(self._more_blocks, np.int64, len(shared))
        total = np.cumsum(taken)
        more_blocks = total - np.repeat((total - taken)[first], num_rows)
        values = np.empty((len(shared), width - 2))
        values[:, :2] = shared[:, 1:3]
        counters = self._kv.grown(tuple(shared[:, 4:].T), number * shared[:, 3], more_blocks)
        for index, column in enumerate(counters):
            values[:, 2 + index] = column
        self._series.extend(np.array(self._times), values)
        self._times.clear()
        self._more_blocks.clear()
        self._heads.clear()
