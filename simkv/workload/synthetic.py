"""Workloads made from laws: arrivals, lengths, shared prefixes, sessions.

The values say what the traffic is; ``generate`` draws it. Every law has its own random stream, so
that changing one leaves the draws of the others as they were.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

from simkv.errors import ConfigError
from simkv.workload.arrivals import Arrivals, Closed, Poisson
from simkv.workload.lengths import Empirical, Fixed, Lengths, Lognormal, OutputLengths, Paired
from simkv.workload.think import ExponentialThink, Think

_TURNS = "workload.sessions.turns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenants:
    """Who the requests come from.

    Parameters
    ----------
    num_tenants
        How many tenants there are; each has system prompts of its own.
    exponent
        Zipf exponent of their popularity; 0: all alike.
    """

    num_tenants: int = 1
    exponent: float = 1.0

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_popularity("workload.tenants", "num_tenants", self.num_tenants, self.exponent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """System prompts that requests share.

    Parameters
    ----------
    num_prompts
        System prompts of each tenant.
    exponent
        Zipf exponent of their popularity within a tenant; 0: all alike.
    tokens
        Law of their lengths, drawn once each.
    """

    num_prompts: int = 8
    exponent: float = 1.0
    tokens: Lengths = field(default_factory=lambda: Fixed(tokens=512))

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        _check_popularity("workload.prefixes", "num_prompts", self.num_prompts, self.exponent)
        self.tokens.check("workload.prefixes.tokens")


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
                path="workload.sessions.turns.num_turns",
            )


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
class Synthetic:
    """Traffic drawn from laws.

    Parameters
    ----------
    num_requests
        How many requests, turns of sessions included.
    duration_s
        Sessions (requests, where there are none) start up to this time only; None: no limit but
        ``num_requests``. For open arrivals.
    arrivals
        When sessions (requests, where there are none) start.
    prompt
        Law of the tokens that a user adds with each request; the system prompt and the history
        come on top.
    output
        Law of the output lengths.
    tenants, prefixes, sessions
        Who asks, which system prompts they share, whether requests come in turns.
    """

    kind: Literal["synthetic"] = "synthetic"
    num_requests: int = 1000
    duration_s: float | None = None
    arrivals: Arrivals = field(default_factory=Poisson)
    prompt: Lengths = field(
        default_factory=lambda: Lognormal(mean_tokens=512.0, sigma=1.0, max_tokens=8192)
    )
    output: OutputLengths = field(
        default_factory=lambda: Lognormal(mean_tokens=192.0, sigma=0.8, max_tokens=2048)
    )
    tenants: Tenants = field(default_factory=Tenants)
    prefixes: Prefixes | None = None
    sessions: Sessions | None = None

    def __post_init__(self) -> None:
        """Check ranges, for library callers too."""
        if self.num_requests < 1:
            raise ConfigError(
                f"got {self.num_requests}, expected 1 or more", path="workload.num_requests"
            )
        if self.duration_s is not None:
            if not 0 < self.duration_s < math.inf:
                raise ConfigError(
                    f"got {self.duration_s}, expected more than 0", path="workload.duration_s"
                )
            if isinstance(self.arrivals, Closed):
                raise ConfigError(
                    "a closed loop has no arrival times to stop at; give num_requests alone",
                    path="workload.duration_s",
                )
        self.prompt.check("workload.prompt")
        if not isinstance(self.output, Paired):
            self.output.check("workload.output")
        elif not isinstance(self.prompt, Empirical):
            raise ConfigError(
                f"paired outputs need an empirical prompt, got {self.prompt.kind}",
                path="workload.output",
            )


def _check_popularity(path: str, name: str, num: int, exponent: float) -> None:
    if num < 1:
        raise ConfigError(f"got {num}, expected 1 or more", path=f"{path}.{name}")
    if not 0 <= exponent <= 20:
        raise ConfigError(f"got {exponent}, expected 0 to 20", path=f"{path}.exponent")
