"""Workloads made from laws: arrivals, lengths, shared prefixes, sessions.

The values say what the traffic is; ``generate`` draws it. Every law has its own random stream, so
that changing one leaves the draws of the others as they were.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from simkv.errors import ConfigError
from simkv.rng import stream
from simkv.workload.arrivals import Arrivals, Closed, Poisson, draw_arrivals
from simkv.workload.lengths import Empirical, Lengths, Lognormal, OutputLengths, Paired
from simkv.workload.prefixes import Prefixes, Tenants, draw_popular
from simkv.workload.sessions import Sessions, Talks
from simkv.workload.trace import Floats, Ints, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Traffic drawn from laws.

    Parameters
    ----------
    num_requests
        How many requests, turns of sessions included; fewer where ``duration_s`` or a session's
        ``max_context_tokens`` ends them.
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


def generate(workload: Synthetic, *, seed: int) -> Trace:
    """Draw a trace.

    Requests whose arrival is a time are open; those of a closed loop, and follow-up turns of
    closed sessions, have ``after`` and ``think_s`` instead and NaN for a time. Rows are in order
    of arrival, as far as it is known before the simulation. All content is known
    (``granularity_tokens`` 1): what has no segment is the request's own.

    Raises
    ------
    ConfigError
        Where nothing arrives, or a session's limit leaves no request.
    TraceError
        Where an empirical law's trace cannot be read.
    """
    num_turns = _draw_turns(workload, seed)
    start_s = _draw_starts(workload, seed, len(num_turns))
    num_turns = num_turns[: len(start_s)]
    tenant, talks = _draw_talks(workload, seed, num_turns)
    # Tenant and start belong to a session by its first row, which a cut of its end keeps.
    notes: list[str] = []
    limit = workload.sessions.max_context_tokens if workload.sessions else None
    if limit is not None:
        left = talks.prompt_tokens()[talks.first] + talks.output_tokens[talks.first] <= limit
        cut = talks.cut(limit)
        if lost := len(talks.user_tokens) - len(cut.user_tokens):
            notes.append(f"{lost:,} turns beyond max_context_tokens {limit:,} were not generated")
        if not left.any():
            raise ConfigError(
                f"no request fits into {limit} tokens; raise it or shorten prompts and outputs",
                path="workload.sessions.max_context_tokens",
            )
        talks, tenant, start_s = cut, tenant[left], start_s[left]
    return _lay_out(workload, seed, talks, tenant, start_s, notes)


def _draw_turns(workload: Synthetic, seed: int) -> Ints:
    """Return the turns of each session, ``num_requests`` in all."""
    if workload.sessions is None:
        return np.ones(workload.num_requests, dtype=np.int64)
    num_turns = workload.sessions.turns.draw(stream(seed, "turns"), workload.num_requests)
    total = np.cumsum(num_turns)
    last = int(np.searchsorted(total, workload.num_requests))
    num_turns = num_turns[: last + 1]
    num_turns[last] -= total[last] - workload.num_requests
    return num_turns


def _draw_starts(workload: Synthetic, seed: int, num_sessions: int) -> Floats:
    """Return when each session starts; NaN for those that a closed loop's client starts later."""
    arrivals = workload.arrivals
    if isinstance(arrivals, Closed):
        start_s = np.full(num_sessions, np.nan)
        clients = min(arrivals.num_clients, num_sessions)
        start_s[:clients] = np.arange(clients) * (arrivals.ramp_s / arrivals.num_clients)
        return start_s
    rng = stream(seed, "arrivals")
    start_s = draw_arrivals(arrivals, rng, num=num_sessions, end_s=workload.duration_s)
    if not len(start_s):
        raise ConfigError(
            f"nothing arrives within {workload.duration_s} s; raise it or the rate",
            path="workload.duration_s",
        )
    return start_s


def _draw_talks(workload: Synthetic, seed: int, num_turns: Ints) -> tuple[Ints, Talks]:
    """Return each session's tenant, and what is said in the sessions."""
    sessions, rows = len(num_turns), int(num_turns.sum())
    tenants, prefixes = workload.tenants, workload.prefixes
    tenant = draw_popular(stream(seed, "tenants"), tenants.num_tenants, tenants.exponent, sessions)
    if prefixes is None:
        prefix, prefix_tokens = np.full(sessions, -1), np.zeros(sessions, dtype=np.int64)
    else:
        of_tenant = draw_popular(
            stream(seed, "prefixes"), prefixes.num_prompts, prefixes.exponent, sessions
        )
        prefix = tenant * prefixes.num_prompts + of_tenant
        lengths = _draw_lengths(
            prefixes.tokens,
            stream(seed, "prefix_tokens"),
            tenants.num_tenants * prefixes.num_prompts,
            column="prompt_tokens",
        )
        prefix_tokens = lengths[prefix]
    user_tokens = _draw_lengths(workload.prompt, stream(seed, "prompt"), rows, "prompt_tokens")
    if isinstance(workload.output, Paired):
        # The same stream over the same trace draws the same rows.
        output = _draw_lengths(workload.prompt, stream(seed, "prompt"), rows, "output_tokens")
    else:
        output = _draw_lengths(workload.output, stream(seed, "output"), rows, "output_tokens")
    return tenant, Talks(
        num_turns=num_turns,
        user_tokens=user_tokens,
        output_tokens=output,
        prefix=prefix,
        prefix_tokens=prefix_tokens,
    )


def _draw_lengths(
    law: Lengths,
    rng: np.random.Generator,
    num: int,
    column: Literal["prompt_tokens", "output_tokens"],
) -> Ints:
    """Return ``num`` lengths; an empirical law draws from this column of its trace."""
    if not isinstance(law, Empirical):
        return law.draw(rng, num)
    # Reading a trace can mean generating one, so these two modules need each other.
    from simkv.workload.load import read_trace

    recorded: Ints = getattr(read_trace(law.path, format=law.format), column)
    return recorded[rng.integers(len(recorded), size=num)]


def _lay_out(
    workload: Synthetic, seed: int, talks: Talks, tenant: Ints, start_s: Floats, notes: list[str]
) -> Trace:
    """Return the trace: when each row arrives or what releases it, in which order, content."""
    session, turn = talks.session, talks.turn
    rows = np.arange(len(session))
    arrival_s = np.where(turn == 0, start_s[session], np.nan)
    after = np.where(turn == 0, -1, rows - 1)
    think_s = np.full(len(rows), np.nan)
    order_by = start_s[session]
    if workload.sessions is not None:
        follows = turn > 0
        think_s[follows] = workload.sessions.think.draw(stream(seed, "think"), int(follows.sum()))
        waited = np.cumsum(np.where(follows, think_s, 0.0))
        order_by = start_s[session] + waited - waited[talks.first[session]]
    if isinstance(workload.arrivals, Closed):
        clients = workload.arrivals.num_clients
        later = np.flatnonzero((turn == 0) & (session >= clients))
        former = session[later] - clients
        after[later] = talks.first[former] + talks.num_turns[former] - 1
        think_s[later] = workload.arrivals.think.draw(stream(seed, "clients"), len(later))
        order_by = (turn + _turns_before(talks.num_turns, clients)[session]).astype(np.float64)
    elif workload.sessions is not None and workload.sessions.loop == "open":
        arrival_s, after = order_by, np.full(len(rows), -1)
        think_s = np.full(len(rows), np.nan)
    order = np.argsort(order_by, kind="stable")
    place = np.empty(len(rows) + 1, dtype=np.int64)
    place[order] = rows
    place[-1] = -1  # where nothing releases a row
    offset, ids, tokens = talks.content(order)
    is_session = workload.sessions is not None
    return Trace(
        arrival_s=arrival_s[order],
        prompt_tokens=talks.prompt_tokens()[order],
        output_tokens=talks.output_tokens[order],
        segment_offset=offset,
        segment_id=ids,
        segment_tokens=tokens,
        session=session[order] if is_session else np.full(len(rows), -1),
        turn=turn[order],
        after=place[after[order]],
        think_s=think_s[order],
        patience_s=np.full(len(rows), np.nan),
        tenant=tenant[session[order]],
        priority=np.zeros(len(rows), dtype=np.int64),
        granularity_tokens=1,
        name="synthetic",
        notes=tuple(notes),
    )


def _turns_before(num_turns: Ints, clients: int) -> Ints:
    """Return how many turns each session's client has had before it (clients take turns)."""
    rounds = math.ceil(len(num_turns) / clients)
    of_client = np.zeros((rounds, clients), dtype=np.int64)
    of_client.reshape(-1)[: len(num_turns)] = num_turns
    before = np.cumsum(of_client, axis=0) - of_client
    return before.reshape(-1)[: len(num_turns)]
