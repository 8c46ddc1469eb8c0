"""The canonical trace: one columnar table, whatever format it came from.

This module owns the columns and what must hold of them. Reading, transforming and describing
traces live beside it. Columns are numpy arrays, so that a million requests cost megabytes.

Content
-------
The prompt (and, where it is known, the output) of a request is a run of **segments**
``(segment id, number of tokens)``. Ids are chained: an id stands for the whole prefix up to the
segment's end, so two requests hold the same tokens up to there if and only if they name the same
id. A segment always starts at the same position; a request may end inside one (its last segment
then has fewer tokens). Ids are >= 0. Tokens that no segment covers are the request's own, equal
to nobody's. Segments cover the prompt first and may go on into the output, so that a follow-up
turn can name what was generated; a boundary between two segments lies at the prompt's end then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simkv.errors import TraceError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_TOKENS = 10**9
"""Longest prompt or output that is taken for one: sums over any trace stay within 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in the order of the file, one array a column, all of length ``num_requests``.

    Parameters
    ----------
    arrival_s
        Seconds from the trace's zero; NaN where the arrival is only known relative to another
        request (``after``) or not at all.
    prompt_tokens, output_tokens
        Lengths; a prompt has at least one token, an output may have none.
    segment_offset, segment_id, segment_tokens
        Content in compressed rows: request ``i`` holds the segments
        ``segment_offset[i]:segment_offset[i + 1]``. Empty where content is unknown.
    session, turn
        Session number and position in it; -1 and 0 where there are none.
    after, think_s
        Row of the request whose end releases this one (-1: none) and the delay after it.
    patience_s
        Seconds after its arrival at which a request's client gives up, unless it has ended; NaN
        where it waits for ever.
    tenant, priority
        Small integers; a smaller priority goes first.
    granularity_tokens
        Finest length at which content can be told apart (1: token level; 0: no content).
    name
        Short name for tables and figures.
    notes
        What the reader had to decide or drop, as sentences for people.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    segment_offset: Ints
    segment_id: Ints
    segment_tokens: Ints
    session: Ints
    turn: Ints
    after: Ints
    think_s: Floats
    patience_s: Floats
    tenant: Ints
    priority: Ints
    granularity_tokens: int = 0
    name: str = "trace"
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Check what must hold of every trace, whoever made it."""
        rows = len(self.prompt_tokens)
        for column in ("arrival_s", "output_tokens", "session", "turn", "after", "think_s",
                       "patience_s", "tenant", "priority"):  # fmt: skip
            if len(getattr(self, column)) != rows:
                raise TraceError(
                    f"column {column} has {len(getattr(self, column))} rows, expected {rows}",
                    file=self.name,
                )
        if len(self.segment_offset) != rows + 1 or self.segment_offset[-1] != len(self.segment_id):
            raise TraceError("segment_offset does not fit the segments", file=self.name)
        if rows and self.prompt_tokens.min() < 1:
            row = int(np.argmin(self.prompt_tokens))
            raise TraceError(
                f"request {row} has a prompt of {self.prompt_tokens[row]} tokens, expected >= 1",
                file=self.name,
            )
        if rows and self.output_tokens.min() < 0:
            row = int(np.argmin(self.output_tokens))
            raise TraceError(
                f"request {row} has {self.output_tokens[row]} output tokens, expected >= 0",
                file=self.name,
            )
        for what, lengths in (("prompt", self.prompt_tokens), ("output", self.output_tokens)):
            if rows and lengths.max() > MAX_TOKENS:
                row = int(np.argmax(lengths))
                raise TraceError(
                    f"request {row} has {lengths[row]:,} {what} tokens, expected at most "
                    f"{MAX_TOKENS:,}",
                    file=self.name,
                )

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.prompt_tokens)

    def segments(self, row: int) -> list[tuple[int, int]]:
        """Return the content of one request as ``(segment id, tokens)`` pairs."""
        lo, hi = int(self.segment_offset[row]), int(self.segment_offset[row + 1])
        ids = self.segment_id[lo:hi].tolist()
        return list(zip(ids, self.segment_tokens[lo:hi].tolist(), strict=True))


def make_trace(
    *,
    prompt_tokens: Sequence[int] | Ints,
    output_tokens: Sequence[int] | Ints,
    arrival_s: Sequence[float] | Floats | None = None,
    segments: Sequence[Sequence[tuple[int, int]]] | None = None,
    session: Sequence[int] | Ints | None = None,
    turn: Sequence[int] | Ints | None = None,
    after: Sequence[int] | Ints | None = None,
    think_s: Sequence[float] | Floats | None = None,
    patience_s: Sequence[float] | Floats | None = None,
    tenant: Sequence[int] | Ints | None = None,
    priority: Sequence[int] | Ints | None = None,
    granularity_tokens: int = 0,
    name: str = "trace",
    notes: tuple[str, ...] = (),
) -> Trace:
    """Build a trace from whatever columns are known; the others get their neutral value."""
    rows = len(prompt_tokens)

    def ints(values: Sequence[int] | Ints | None, neutral: int) -> Ints:
        return np.full(rows, neutral) if values is None else np.asarray(values, dtype=np.int64)

    def floats(values: Sequence[float] | Floats | None) -> Floats:
        return np.full(rows, np.nan) if values is None else np.asarray(values, dtype=np.float64)

    flat = [pair for row in segments or () for pair in row]
    counts = np.zeros(rows, dtype=np.int64) if segments is None else [len(row) for row in segments]
    return Trace(
        arrival_s=floats(arrival_s),
        prompt_tokens=np.asarray(prompt_tokens, dtype=np.int64),
        output_tokens=np.asarray(output_tokens, dtype=np.int64),
        segment_offset=np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]),
        segment_id=np.array([pair[0] for pair in flat], dtype=np.int64),
        segment_tokens=np.array([pair[1] for pair in flat], dtype=np.int64),
        session=ints(session, -1),
        turn=ints(turn, 0),
        after=ints(after, -1),
        think_s=floats(think_s),
        patience_s=floats(patience_s),
        tenant=ints(tenant, 0),
        priority=ints(priority, 0),
        granularity_tokens=granularity_tokens,
        name=name,
        notes=notes,
    )
