"""What a trace looks like, in numbers."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simkv.workload.trace import Floats, Ints, Trace

_PERCENTILES = (50, 90, 99)


def describe(trace: Trace) -> dict[str, Any]:
    """Describe a trace as a tree of plain values, ready for JSON.

    Percentiles are interpolated linearly. The coefficient of variation is the population
    deviation over the mean. What is not known is None.
    """
    known = np.sort(trace.arrival_s[~np.isnan(trace.arrival_s)])
    return {
        "name": trace.name,
        "num_requests": trace.num_requests,
        "span_s": float(known[-1] - known[0]) if len(known) else None,
        "num_arrivals": len(known),
        "prompt_tokens": _lengths(trace.prompt_tokens),
        "output_tokens": _lengths(trace.output_tokens),
        "interarrival": _gaps(known),
        "granularity_tokens": trace.granularity_tokens,
        "content": _content(trace),
        "sessions": _sessions(trace),
        "num_tenants": len(np.unique(trace.tenant)),
        "num_priorities": len(np.unique(trace.priority)),
        "notes": list(trace.notes),
    }


def _lengths(tokens: Ints) -> dict[str, Any]:
    if not len(tokens):
        return {"sum": 0}
    return {
        "sum": int(tokens.sum()),
        "mean": float(tokens.mean()),
        **{f"p{q}": float(np.percentile(tokens, q)) for q in _PERCENTILES},
        "min": int(tokens.min()),
        "max": int(tokens.max()),
    }


def _gaps(arrival_s: Floats) -> dict[str, Any] | None:
    gaps = np.diff(arrival_s)
    if not len(gaps):
        return None
    mean_s = float(gaps.mean())
    return {
        "mean_s": mean_s,
        "cv": float(gaps.std() / mean_s) if mean_s > 0 else None,
        **{f"p{q}_s": float(np.percentile(gaps, q)) for q in _PERCENTILES},
        "max_s": float(gaps.max()),
        "num_ties": int((gaps == 0).sum()),
    }


def _sessions(trace: Trace) -> dict[str, Any] | None:
    member = trace.session[trace.session >= 0]
    if not len(member):
        return None
    turns = np.bincount(np.unique(member, return_inverse=True)[1])
    return {
        "num_sessions": len(turns),
        "num_requests": len(member),
        "turns_mean": float(turns.mean()),
        "turns_max": int(turns.max()),
        "num_closed_loop": int((np.isnan(trace.arrival_s) & (trace.after >= 0)).sum()),
    }


def _content(trace: Trace) -> dict[str, Any] | None:
    if not len(trace.segment_id):
        return None
    known = int(_covered(trace).sum())
    repeated = int(repeated_tokens(trace).sum())
    total = int(trace.prompt_tokens.sum())
    return {
        "num_segments": len(trace.segment_id),
        "num_unique_segments": len(np.unique(trace.segment_id)),
        "known_prompt_tokens": known,
        "repeated_prompt_tokens": repeated,
        "repeated_ratio": repeated / total,
    }


def repeated_tokens(trace: Trace) -> Ints:
    """Return, for each request, how many prompt tokens repeat a prefix of an earlier request.

    Requests in order of rows; what an earlier request generated counts where its content is known.
    This is what a cache without limits, without blocks and without time would hit.
    """
    # An id stands for its whole prefix, so a segment that was seen implies all before it.
    order = np.argsort(trace.segment_id, kind="stable")
    ids, tokens = trace.segment_id[order], trace.segment_tokens[order]
    seen = np.zeros(len(order), dtype=np.int64)
    if len(order):
        group = np.cumsum(np.diff(ids, prepend=ids[0]) != 0)
        step = int(tokens.max()) + 1
        longest = np.maximum.accumulate(tokens + group * step) - group * step
        same = group[1:] == group[:-1]
        seen[order[1:]] = np.where(same, longest[:-1], 0)
    return _row_sums(trace, np.minimum(seen, _in_prompt(trace)))


def _covered(trace: Trace) -> Ints:
    return _row_sums(trace, _in_prompt(trace))


def _in_prompt(trace: Trace) -> Ints:
    """Return how many tokens of each segment lie within its request's prompt."""
    total = np.concatenate([[0], np.cumsum(trace.segment_tokens)])
    counts = np.diff(trace.segment_offset)
    start = total[:-1] - np.repeat(total[trace.segment_offset[:-1]], counts)
    room = np.repeat(trace.prompt_tokens, counts) - start
    inside: Ints = np.clip(room, 0, trace.segment_tokens)
    return inside


def _row_sums(trace: Trace, values: Ints) -> Ints:
    total = np.concatenate([[0], np.cumsum(values)])
    sums: Ints = total[trace.segment_offset[1:]] - total[trace.segment_offset[:-1]]
    return sums


def render(description: Mapping[str, Any]) -> str:
    """Render a description as aligned lines for people."""
    return "\n".join(_rows(description))


def _rows(description: Mapping[str, Any]) -> Iterator[str]:
    def row(label: str, text: str) -> str:
        return f"{label:<20}{text}"

    yield row("trace", str(description["name"]))
    yield row("requests", f"{description['num_requests']:,}")
    span_s = description["span_s"]
    yield row("time", "no arrivals known" if span_s is None else f"{span_s:,.6f} s")
    for key in ("prompt_tokens", "output_tokens"):
        yield row(key.replace("_", " "), _lengths_line(description[key]))
    if gaps := description["interarrival"]:
        cv = "-" if gaps["cv"] is None else f"{gaps['cv']:.4f}"
        yield row(
            "time between",
            f"mean {gaps['mean_s']:.4f} s, CV {cv}, p99 {gaps['p99_s']:.4f} s, "
            f"{gaps['num_ties']:,} ties",
        )
    yield row("content", _content_line(description))
    if sessions := description["sessions"]:
        yield row(
            "sessions",
            f"{sessions['num_sessions']:,} with {sessions['num_requests']:,} requests, "
            f"{sessions['turns_mean']:.1f} turns on average, {sessions['turns_max']:,} at most",
        )
    if description["num_tenants"] > 1:
        yield row("tenants", f"{description['num_tenants']:,}")
    for number, note in enumerate(description["notes"]):
        yield row("notes" if number == 0 else "", str(note))


def _lengths_line(lengths: Mapping[str, Any]) -> str:
    if "mean" not in lengths:
        return "none"
    shares = ", ".join(f"p{q} {lengths[f'p{q}']:,.0f}" for q in _PERCENTILES)
    return (
        f"{lengths['sum']:,} in all; mean {lengths['mean']:,.1f}, {shares}, max {lengths['max']:,}"
    )


def _content_line(description: Mapping[str, Any]) -> str:
    content = description["content"]
    if content is None:
        return "not known: no two requests can be seen to share a prefix"
    tokens = description["granularity_tokens"]
    return (
        f"told apart every {tokens:,} token{'s' if tokens != 1 else ''}; "
        f"{content['repeated_ratio']:.1%} of prompt tokens repeat an earlier prefix"
    )
