"""The sequences of a batch that decode: each takes one more token in every step, all together.

So one counter of steps stands for all their lengths. A sequence is kept with its **offset**, its
computed tokens less the steps at the time that it joined: what it has computed later is its offset
and the steps, and nothing is written down in between. The ends lie in a heap by the step at which
they fall, and how many sequences need a block in a step is read from a histogram over
(length mod block). What a sequence asks for, and who gets it, is the scheduler's business.
"""

from bisect import bisect_right
from heapq import heappop, heappush
from itertools import accumulate
from sys import maxsize

from simkv.sched.request import Request


class Decodes:
    """The decoding sequences of one replica.

    Parameters
    ----------
    block_tokens
        Slots in a block.
    grows
        Whether they take blocks on the way at all.

    Attributes
    ----------
    step
        Steps done.
    ahead
        1 while the sequences have the memory of a step that is not done, else 0.
    offsets
        The sequences, each with its offset.
    sum_offsets
        Sum of all offsets.
    last_place
        No sequence has stood further back in the batch.
    ends
        A heap of ``(step, place, request)``: after which step each ends.
    phases
        How many need a block in the steps that are so many after a multiple of a block.
    """

    def __init__(self, block_tokens: int, *, grows: bool = True) -> None:
        self.block_tokens = block_tokens
        self.step = 0
        self.ahead = 0
        self.offsets: dict[Request, int] = {}
        self.sum_offsets = 0
        self.last_place = -1
        self.ends: list[tuple[int, int, Request]] = []
        self.phases = [0] * block_tokens
        self._weight = int(grows)
        self._longest: int | None = None

    def join(self, request: Request, place: int, last_tokens: int) -> None:
        """Take in a request that has computed all but its last known token.

        Parameters
        ----------
        place
            Where it stands in the batch: ends in one step come in the order of places.
        last_tokens
            Known tokens with which it ends.
        """
        offset = request.computed_tokens - self.step
        self.offsets[request] = offset
        self.sum_offsets += offset
        longest = self._longest
        if longest is not None and offset > longest:
            self._longest = offset
        if place > self.last_place:
            self.last_place = place
        self.phases[-offset % self.block_tokens] += self._weight
        heappush(self.ends, (last_tokens - 1 - offset, place, request))

    def write_down(self, request: Request) -> None:
        """Write down how far a request is; it stays."""
        known = self.offsets[request] + self.step + 1
        request.num_tokens = known
        request.computed_tokens = known - 1 + self.ahead

    def pop_ended(self) -> list[tuple[int, Request]]:
        """Let those go that have come to their end; return them with their places, in order."""
        ends, step, ended = self.ends, self.step, []
        while ends and ends[0][0] <= step:
            _, place, request = heappop(ends)
            offset = self.offsets.pop(request)
            request.computed_tokens = offset + step
            request.num_tokens = offset + step + 1
            self.sum_offsets -= offset
            if offset == self._longest:
                self._longest = None
            self.phases[-offset % self.block_tokens] -= self._weight
            ended.append((place, request))
        return ended

    def next_end(self) -> int:
        """Return after which step the next one ends; never, where there is none."""
        return self.ends[0][0] if self.ends else maxsize

    def clear(self) -> None:
        """Let all go, after each has been written down."""
        self.ahead = 0
        self.offsets.clear()
        self.sum_offsets = 0
        self.last_place = -1
        self._longest = None
        self.ends.clear()
        self.phases = [0] * self.block_tokens

    def longest(self) -> int:
        """Return the largest offset."""
        if self._longest is None:
            self._longest = max(self.offsets.values())
        return self._longest

    def blocks_needed(self, first_step: int, num_steps: int) -> list[int]:
        """Return how many blocks all need together in each of some steps from a step on."""
        phases, size = self.phases, self.block_tokens
        start = first_step % size
        needed = phases[start : start + num_steps]
        if len(needed) == num_steps:
            return needed
        cycle = phases[start:] + phases[:start]
        return (cycle * (num_steps // size + 1))[:num_steps]

    def steps_covered(self, num_blocks: int, first_step: int, most: int) -> int:
        """Return for how many steps, ``most`` at most, so many blocks cover what is needed."""
        if len(self.offsets) * (most // self.block_tokens + 1) <= num_blocks:
            return most
        needed = list(accumulate(self.blocks_needed(first_step, most)))
        return bisect_right(needed, num_blocks)
