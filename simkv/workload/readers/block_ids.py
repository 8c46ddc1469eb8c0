"""Formats with one JSON object a line, one line a request, and content as block ids.

Mooncake, Qwen-Bailian and ServeGen's offline traces differ in names and units only; what they
share is here: checked fields, ids against lengths, and the way into a trace.
"""

from pathlib import Path
from typing import Any

from simkv.errors import TraceError
from simkv.workload.chain import Chains, as_ids
from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import UNKNOWN_NS, seconds
from simkv.workload.trace import Trace


class BlockIdRows:
    """The lengths, times and block ids of requests, collected a line at a time.

    Parameters
    ----------
    granularity_tokens
        Tokens that one id stands for. A row's last id covers what remains of its prompt.
    """

    def __init__(self, granularity_tokens: int) -> None:
        self.granularity_tokens = granularity_tokens
        self._chains = Chains(granularity_tokens)
        self._prompt_tokens: list[int] = []
        self._output_tokens: list[int] = []
        self._time_ns: list[int] = []
        self._lines: list[tuple[Path, int]] = []
        self._without_ids = 0
        self._short = 0

    def add(
        self,
        *,
        prompt_tokens: int,
        output_tokens: int,
        time_ns: int = UNKNOWN_NS,
        ids: Any,
        space: int,
        file: Path,
        line: int,
    ) -> None:
        """Append one row; ``ids`` is what the file holds (None: nothing)."""
        try:
            known = as_ids(ids if ids is not None else [])
        except ValueError as error:
            raise TraceError(f"hash_ids: {error}", file=file, line=line) from error
        expected = -(prompt_tokens // -self.granularity_tokens)
        if len(known) > expected:
            raise TraceError(
                f"names {len(known)} block ids for a prompt of {prompt_tokens:,} tokens, expected "
                f"at most {expected} (one for every {self.granularity_tokens} tokens)",
                file=file,
                line=line,
            )
        if not len(known):
            self._without_ids += prompt_tokens > 0
        elif len(known) < expected:
            self._short += 1
        self._chains.add(known, prompt_tokens, space=space)
        self._prompt_tokens.append(prompt_tokens)
        self._output_tokens.append(output_tokens)
        self._time_ns.append(time_ns)
        self._lines.append((file, line))

    def trace(self, *, name: str, notes: list[str] | None = None, **columns: Any) -> Trace:
        """Make the trace of all rows; further keywords are those of ``Columns``."""
        segments = self._chains.segments()
        has_content = len(segments.id) > 0
        arrival_s, clock_notes = seconds(self._time_ns)
        return assemble(
            Columns(
                prompt_tokens=self._prompt_tokens,
                output_tokens=self._output_tokens,
                arrival_s=arrival_s,
                segments=segments.rows() if has_content else None,
                **columns,
            ),
            place=lambda row: (str(self._lines[row][0]), self._lines[row][1]),
            name=name,
            granularity_tokens=self.granularity_tokens if has_content else 0,
            notes=[
                *(notes or []),
                *clock_notes,
                *self._id_notes(segments.num_unchained_ids, has_content=has_content),
            ],
        )

    def _id_notes(self, num_unchained: int, *, has_content: bool) -> list[str]:
        notes = []
        if has_content and self._without_ids:
            notes.append(f"{self._without_ids:,} requests name no block ids: content unknown")
        if self._short:
            notes.append(
                f"{self._short:,} requests name fewer block ids than their prompts have blocks of "
                f"{self.granularity_tokens} tokens; the tokens past the last id are equal to "
                "nobody's"
            )
        if num_unchained:
            notes.append(unchained(num_unchained))
        return notes


def unchained(times: int) -> str:
    """Return the note for ids that do not stand for one prefix each."""
    return (
        f"block ids are not chained: {times:,} times one stands behind another prefix than "
        "before; content was told apart by the whole prefix"
    )
