"""What the queues and the memory of one replica are doing, from step to step.

Steps are noted as they come, many at once where a plan held for many, in few numbers each; the
accounts of all are worked out together when there are enough of them. One step or many, the
integrals are the same to the last bit.
"""

from array import array
from collections.abc import Sequence

import numpy as np

from simkv.kv.manager import KVManager
from simkv.obs.schema import SERIES
from simkv.obs.series import Series
from simkv.sched.scheduler import Scheduler

_MOST_ROWS = 4096


class Course:
    """The course of one replica: lengths of its queues, and the accounts of its slots.

    Parameters
    ----------
    from_s
        Means count from here on (the end of the warm-up).
    """

    def __init__(self, *, from_s: float) -> None:
        self.series = Series(len(SERIES), from_s=from_s)
        self._kv: KVManager | None = None
        self._times = array("d")  # of every row
        self._more_blocks = array("q")  # of every row: blocks taken since the row before
        self._heads = array("q")  # rows that belong together: their number, and what they share

    def note(self, now_s: float, scheduler: Scheduler) -> None:
        """Note what holds from now on."""
        kv = self._kv = scheduler.kv
        self._times.append(now_s)
        self._more_blocks.append(0)
        self._heads.extend((1, len(scheduler.running), len(scheduler.waiting), 0, *kv.counters()))
        if len(self._times) > _MOST_ROWS:
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
        self.series.close(now_s)

    def _flush(self) -> None:
        """Work out all rows and hand them on."""
        if self._kv is None or not self._times:
            return
        width = 4 + len(self._kv.counters())
        heads = np.array(self._heads, dtype=np.int64).reshape(-1, width)
        num_rows = heads[:, 0]
        first = np.cumsum(num_rows) - num_rows
        shared = np.repeat(heads, num_rows, axis=0)
        number = 1 + np.arange(len(self._times)) - np.repeat(first, num_rows)
        taken = np.array(self._more_blocks, dtype=np.int64)
        total = np.cumsum(taken)
        before = (total - taken)[first]
        usage = self._kv.usage_at(
            tuple(shared[:, 4:].T), number * shared[:, 3], total - np.repeat(before, num_rows)
        )
        values = np.empty((len(self._times), len(SERIES)))
        for index, column in enumerate((shared[:, 1], shared[:, 2], *usage)):
            values[:, index] = np.asarray(column)
        self.series.extend(np.array(self._times), values)
        for buffer in (self._times, self._more_blocks, self._heads):
            del buffer[:]
