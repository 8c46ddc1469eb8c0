"""Requests that come in turns: how many, how far apart, and what each repeats of the talk so far.

The values say the laws; ``Talks`` is what was drawn, with the content that follows from it.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from simkv.errors import ConfigError
from simkv.workload.think import ExponentialThink, Think
from simkv.workload.trace import Ints

_TURNS = "workload.sessions.turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedTurns:
    """Every session has the same number of turns."""

    kind: Literal["fixed"] = "fixed"
    num_turns: int = 4

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.num_turns < 1:
            raise ConfigError(
                f"got {self.num_turns}, expected 1 or more",
                path=f"{_TURNS}.num_turns",
            )

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return the number of turns of ``num`` sessions."""
        return np.full(num, self.num_turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometricTurns:
    """After each turn the session goes on with the same probability.

    Parameters
    ----------
    mean_turns
        Mean number of turns, before the limit.
    max_turns
        Sessions end here at the latest.
    """

    kind: Literal["geometric"] = "geometric"
    mean_turns: float = 4.0
    max_turns: int = 64

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if not 1 <= self.mean_turns < math.inf:
            raise ConfigError(
                f"got {self.mean_turns}, expected 1 or more", path=f"{_TURNS}.mean_turns"
            )
        if self.max_turns < 1:
            raise ConfigError(
                f"got {self.max_turns}, expected 1 or more", path=f"{_TURNS}.max_turns"
            )

    def draw(self, rng: np.random.Generator, num: int) -> Ints:
        """Return the number of turns of ``num`` sessions."""
        turns = rng.geometric(1 / self.mean_turns, num)
        return np.minimum(turns, self.max_turns).astype(np.int64)


Turns = GeometricTurns | FixedTurns


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Requests that come in turns: each prompt repeats the talk so far and adds to it.

    Parameters
    ----------
    turns
        Law of the number of turns.
    think
        Time between a turn and the next: in an open loop between their arrivals, in a closed one
        from the end of the turn.
    loop
        ``open``: follow-up turns arrive at drawn times, whether or not the former has ended.
        ``closed``: they are released by its end. With closed arrivals it is closed in any case.
    max_context_tokens
        A session ends before the turn whose prompt and output would pass this.
    """

    turns: Turns = field(default_factory=GeometricTurns)
    think: Think = field(default_factory=ExponentialThink)
    loop: Literal["open", "closed"] = "closed"
    max_context_tokens: int | None = None

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        self.think.check("workload.sessions.think")
        if self.max_context_tokens is not None and self.max_context_tokens < 2:
            raise ConfigError(
                f"got {self.max_context_tokens}, expected 2 or more",
                path="workload.sessions.max_context_tokens",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Talks:
    """Sessions as they were drawn; rows go session by session, turn by turn.

    Parameters
    ----------
    num_turns
        Turns of each session, 1 at least ``[num_sessions] int64``.
    user_tokens, output_tokens
        What the user adds and what the model answers in each turn ``[num_rows] int64``.
    prefix, prefix_tokens
        System prompt of each session, a number from 0, and its length; prefix -1 where there is
        none ``[num_sessions] int64``.
    """

    num_turns: Ints
    user_tokens: Ints
    output_tokens: Ints
    prefix: Ints
    prefix_tokens: Ints

    @property
    def first(self) -> Ints:
        """Row of each session's first turn ``[num_sessions]``."""
        return np.cumsum(self.num_turns) - self.num_turns

    @property
    def session(self) -> Ints:
        """Session of each row ``[num_rows]``."""
        return np.repeat(np.arange(len(self.num_turns)), self.num_turns)

    @property
    def turn(self) -> Ints:
        """Position of each row in its session, from 0 ``[num_rows]``."""
        return np.arange(len(self.user_tokens)) - self.first[self.session]

    def prompt_tokens(self) -> Ints:
        """Return each row's prompt: system prompt, the talk so far, what the user adds."""
        session = self.session
        said = self.user_tokens + self.output_tokens
        before = np.cumsum(said) - said
        history = before - before[self.first[session]]
        prompt_tokens: Ints = self.prefix_tokens[session] + history + self.user_tokens
        return prompt_tokens

    def cut(self, max_context_tokens: int) -> "Talks":
        """Return the sessions up to the turn that would pass the limit; some may vanish."""
        # A later turn is always longer, so what fits is the start of its session.
        fits = self.prompt_tokens() + self.output_tokens <= max_context_tokens
        num_turns = np.bincount(self.session[fits], minlength=len(self.num_turns))
        left = num_turns > 0
        return Talks(
            num_turns=num_turns[left],
            user_tokens=self.user_tokens[fits],
            output_tokens=self.output_tokens[fits],
            prefix=self.prefix[left],
            prefix_tokens=self.prefix_tokens[left],
        )

    def content(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return ``(segment_offset, segment_id, segment_tokens)`` of these rows, in this order.

        A session's segments are: its system prompt, what the user says first, then for each
        further turn the former output with what the user adds. A turn that has a follow-up goes on
        into the next segment by its output, which is how the follow-up names it. What no other
        request can hold (a last output, a request by itself) has no segment.
        """
        session, turn = self.session[rows], self.turn[rows]
        num_prefix = (self.prefix[session] >= 0).astype(np.int64)
        num_turns = self.num_turns[session]
        answered = (turn + 1 < num_turns) & (self.output_tokens[rows] > 0)
        num_segments = num_prefix + np.where(num_turns > 1, turn + 1 + answered, 0)
        offset = np.concatenate(([0], np.cumsum(num_segments)))

        row = np.repeat(np.arange(len(rows)), num_segments)
        step = np.arange(offset[-1]) - offset[row] - num_prefix[row]  # -1: the system prompt
        spoken = self.first[session[row]] + np.maximum(step, 0)  # the row whose words these are
        is_answer = step > turn[row]

        added = self.user_tokens.copy()
        follows = np.flatnonzero(self.turn > 0)
        added[follows] += self.output_tokens[follows - 1]
        words = np.where(is_answer, self.output_tokens[spoken - 1], added[spoken])

        is_prefix = step < 0
        num_prefixes = int(self.prefix.max(initial=-1)) + 1
        ids = np.where(is_prefix, self.prefix[session[row]], num_prefixes + spoken)
        tokens = np.where(is_prefix, self.prefix_tokens[session[row]], words)
        return offset, ids, tokens
