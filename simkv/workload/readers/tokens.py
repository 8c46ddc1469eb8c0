"""Text and token ids as content: tokenising, and the rows that are compressed at the end."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from simkv.errors import InputError
from simkv.workload.radix import compress
from simkv.workload.readers.assemble import Columns, assemble
from simkv.workload.readers.clock import UNKNOWN_NS, seconds
from simkv.workload.trace import Floats, Ints, Trace

# A run of letters and digits, or a single sign; white space only parts them.
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Turns text into token ids, and says how.

    Parameters
    ----------
    encode
        From a text to its token ids; the same text always gives the same ids.
    note
        One sentence for the trace's notes.
    """

    encode: Callable[[str], Ints]
    note: str


def encoder(tokenizer: Path | None) -> Encoder:
    """Make the encoder of a ``tokenizer.json``, or of words where there is none.

    Raises
    ------
    InputError
        Where the file cannot be read, or the package that reads it is not installed.
    """
    if tokenizer is None:
        return Encoder(
            encode=_words(),
            note="text was counted by words and punctuation marks, not by a model's tokens "
            "(name a tokenizer.json with --tokenizer)",
        )
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "--tokenizer needs the package tokenizers, which is not installed: "
            "pip install 'simkv[tokenizer]'"
        ) from None
    if not tokenizer.is_file():
        raise InputError(f"{tokenizer}: there is no such tokenizer file")
    try:
        model = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the package raises bare Exception
        raise InputError(f"{tokenizer}: is no tokenizer.json ({error})") from None

    def encode(text: str) -> Ints:
        return np.array(model.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    return Encoder(encode=encode, note=f"text was tokenised with {tokenizer.name}")


def _words() -> Callable[[str], Ints]:
    numbers: dict[str, int] = {}

    def encode(text: str) -> Ints:
        words = _WORD.findall(text)
        return np.array([numbers.setdefault(word, len(numbers)) for word in words], dtype=np.int64)

    return encode


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One request of a file.

    Parameters
    ----------
    prompt_tokens, output_tokens
        Lengths.
    prompt, output
        Token ids; None where they are not known.
    time_ns
        Arrival, or ``UNKNOWN_NS``.
    session
        Any key that is equal within a session; None without one.
    think_s
        Delay after the turn before; NaN where it is not known.
    root
        Requests with different roots share no content (a cache salt).
    priority
        The smallest goes first.
    """

    file: Path
    line: int
    prompt_tokens: int
    output_tokens: int
    prompt: Ints | None = None
    output: Ints | None = None
    time_ns: int = UNKNOWN_NS
    session: Hashable | None = None
    think_s: float = float("nan")
    root: str = ""
    priority: int = 0


@dataclass(slots=True)
class TokenRows:
    """The requests of a trace whose content is tokens, in the order of the file."""

    rows: list[TokenRow] = field(default_factory=list)

    def trace(self, *, name: str, notes: list[str], find_sessions: bool = False) -> Trace:
        """Compress the content of all rows and make the trace.

        Parameters
        ----------
        name, notes
            As in ``Trace``.
        find_sessions
            Where no row names its session, call a request that begins with the whole prompt and
            output of an earlier one its next turn.
        """
        rows = self.rows
        segments = _segments(rows)
        arrival_s, clock_notes = seconds([row.time_ns for row in rows])
        session = [row.session for row in rows]
        found: list[str] = []
        if find_sessions and all(key is None for key in session):
            session = _continued(rows, segments, arrival_s)
            if any(key is not None for key in session):
                found = ["sessions were recognised: a turn begins with the whole turn before"]
        has_content = any(segments)
        return assemble(
            Columns(
                prompt_tokens=[row.prompt_tokens for row in rows],
                output_tokens=[row.output_tokens for row in rows],
                arrival_s=arrival_s,
                segments=segments if has_content else None,
                session=session if any(key is not None for key in session) else None,
                think_s=[row.think_s for row in rows],
                priority=[row.priority for row in rows],
            ),
            place=lambda row: (str(rows[row].file), rows[row].line),
            name=name,
            granularity_tokens=1 if has_content else 0,
            notes=[*notes, *clock_notes, *found],
        )


def _segments(rows: list[TokenRow]) -> list[list[tuple[int, int]]]:
    nothing: Ints = np.zeros(0, dtype=np.int64)
    prompts = [nothing if row.prompt is None else row.prompt for row in rows]
    # Output without its prompt would be content in the wrong place.
    outputs = [nothing if row.output is None or row.prompt is None else row.output for row in rows]
    return compress(
        [np.concatenate(pair) for pair in zip(prompts, outputs, strict=True)],
        [[len(prompt)] for prompt in prompts],
        [row.root for row in rows],
    )


def _continued(
    rows: list[TokenRow], segments: list[list[tuple[int, int]]], arrival_s: Floats
) -> list[Hashable | None]:
    """Return a session key for each row, or None for all where no row goes on from another."""
    session: list[Hashable | None] = list(range(len(rows)))
    waiting: dict[int, int] = {}  # last segment of a request that no other goes on from yet
    num_found = 0
    for row in np.argsort(arrival_s, kind="stable").tolist():
        for number, _ in reversed(segments[row][:-1]):
            if number in waiting:
                session[row] = session[waiting.pop(number)]
                num_found += 1
                break
        if rows[row].output_tokens and segments[row]:
            waiting[segments[row][-1][0]] = row
    return session if num_found else [None] * len(rows)
