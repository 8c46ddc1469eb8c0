"""What a seed means on a recorded trace: the same kind of traffic, drawn anew from its own parts.

Parts are whole sessions; 60 s windows where there are no sessions; single requests where there
are no arrival times either. Each part's slot in time stays and gets a part drawn with replacement
(a block bootstrap), so the arrival process of sessions, or the pattern within a window, stays.

A part drawn twice must not find its own content in the cache just because it is a copy. So what
only this part names gets fresh ids in the copies; what several parts name (a system prompt) is
shared as before. As ids are chained, everything behind a part's own segment is its own too, so the
chain holds in the copy.
"""

import dataclasses

import numpy as np

from simkv.rng import stream
from simkv.workload.ragged import gather, group
from simkv.workload.release import start_s
from simkv.workload.trace import Floats, Ints, Trace

WINDOW_S = 60.0

_FEW_PARTS = 10


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """How a trace divides into parts.

    Parameters
    ----------
    what
        Name of a part, for people.
    part
        Part of each row ``[num_rows]``.
    begin_s
        When each part begins ``[num_parts]``.
    num_drawn_from
        Parts that may be drawn: the first so many.
    rows, offset
        Rows part by part in order of their start: part ``p`` is ``rows[offset[p]:offset[p + 1]]``.
    """

    what: str
    part: Ints
    begin_s: Floats
    num_drawn_from: int
    rows: Ints
    offset: Ints


def resample(trace: Trace, *, seed: int) -> Trace:
    """Draw a trace of the same slots from the parts of this one.

    The draw depends on the seed and the number of parts only, so all arms of a comparison see the
    same one. The last window is a shorter slot, and gets the start of a window.
    """
    if not trace.num_requests:
        return trace
    parts = _divide(trace)
    num_parts = len(parts.begin_s)
    drawn = stream(seed, "resample").integers(parts.num_drawn_from, size=num_parts)
    picked, slot_offset = gather(parts.offset, drawn)
    source = parts.rows[picked]
    slot = np.repeat(np.arange(num_parts), np.diff(slot_offset))
    arrival_s, after, think_s = _moved(trace, parts, drawn, slot_offset)
    begin_s = start_s(trace)[source] - parts.begin_s[drawn[slot]] + parts.begin_s[slot]
    kept = np.arange(len(source))
    if parts.what == "window":
        kept = np.flatnonzero(begin_s <= start_s(trace).max())
    order = kept[np.argsort(begin_s[kept], kind="stable")]

    place = np.full(len(source) + 1, -1)  # the last stands for "released by none"
    place[order] = np.arange(len(order))
    source, slot = source[order], slot[order]
    index, offset = gather(trace.segment_offset, source)
    row = np.repeat(np.arange(len(order)), np.diff(offset))
    is_session = trace.session[source] >= 0
    note = (
        f"resampled with seed {seed}: {num_parts:,} of the {parts.num_drawn_from:,} {parts.what}s "
        f"with replacement, {len(np.unique(drawn)):,} of them at least once"
    )
    if parts.num_drawn_from < _FEW_PARTS:
        note += "; that is few, so intervals over seeds are rough"
    return dataclasses.replace(
        trace,
        arrival_s=arrival_s[order],
        prompt_tokens=trace.prompt_tokens[source],
        output_tokens=trace.output_tokens[source],
        segment_offset=offset,
        segment_id=_own_ids(trace, parts, drawn, index, slot[row]),
        segment_tokens=trace.segment_tokens[index],
        session=np.where(is_session, slot, -1),
        turn=trace.turn[source],
        after=place[after[order]],
        think_s=think_s[order],
        patience_s=trace.patience_s[source],
        tenant=trace.tenant[source],
        priority=trace.priority[source],
        notes=(*trace.notes, note),
    )


def _divide(trace: Trace) -> _Parts:
    begin_s = start_s(trace)
    if (trace.session >= 0).any():
        what = "session"
        # A request outside any session is a part by itself.
        label = np.where(trace.session >= 0, trace.session, -1 - np.arange(trace.num_requests))
        part = np.unique(label, return_inverse=True)[1].astype(np.int64)
        num_parts = int(part.max()) + 1
    elif np.isnan(trace.arrival_s).any():
        what, part, num_parts = "request", np.arange(trace.num_requests), trace.num_requests
    else:
        what = "window"
        window = (begin_s // WINDOW_S).astype(np.int64)
        first = int(window.min())  # the times of a trace may count from far before its start
        part = window - first
        num_parts = int(part.max()) + 1
    by_time = np.argsort(begin_s, kind="stable")
    grouped, offset = group(part[by_time], num_parts)
    rows = by_time[grouped]
    if what == "window":
        # The last is cut short by the end of the trace, so drawn into a full slot it would thin it.
        part_begin_s: Floats = WINDOW_S * np.arange(first, first + num_parts, dtype=np.float64)
        drawn_from = max(num_parts - 1, 1)
    else:
        part_begin_s, drawn_from = begin_s[rows[offset[:-1]]], num_parts
    return _Parts(
        what=what,
        part=part,
        begin_s=part_begin_s,
        num_drawn_from=drawn_from,
        rows=rows,
        offset=offset,
    )


def _moved(
    trace: Trace, parts: _Parts, drawn: Ints, slot_offset: Ints
) -> tuple[Floats, Ints, Floats]:
    """Return arrival, releaser and think time of the drawn rows, before they are sorted.

    Within a part a row keeps its distance and its releaser. A part's first row is released as the
    slot's first row was, if need be by the last row of another slot: that belongs to the slot.
    """
    picked, _ = gather(parts.offset, drawn)
    source, slot = parts.rows[picked], np.repeat(np.arange(len(drawn)), np.diff(slot_offset))
    shift_s = parts.begin_s[slot] - parts.begin_s[drawn[slot]]
    arrival_s = trace.arrival_s[source] + shift_s
    think_s = trace.think_s[source]

    position = np.empty(trace.num_requests, dtype=np.int64)
    position[parts.rows] = np.arange(trace.num_requests)  # in the order of parts
    releaser = trace.after[source]
    inside = (releaser >= 0) & (parts.part[releaser] == drawn[slot])
    within = position[releaser] - parts.offset[parts.part[releaser]]
    after = np.where(inside, slot_offset[slot] + within, -1)
    orphan = np.isnan(arrival_s) & ~inside
    arrival_s[orphan] = (start_s(trace)[source] + shift_s)[orphan]

    if parts.what != "window":
        first = parts.rows[parts.offset[:-1]]
        head = slot_offset[:-1]
        outer = trace.after[first]
        after[head] = np.where(outer < 0, -1, slot_offset[parts.part[outer] + 1] - 1)
        arrival_s[head] = trace.arrival_s[first]
        think_s[head] = trace.think_s[first]
    return arrival_s, after, think_s


def _own_ids(trace: Trace, parts: _Parts, drawn: Ints, index: Ints, slot: Ints) -> Ints:
    """Return the ids of the drawn segments: fresh ones where a copy names what is its part's own.

    ``index`` are the segments' places in the trace, ``slot`` the slots that they are drawn for.
    """
    if not len(trace.segment_id):
        return trace.segment_id
    ids, number = np.unique(trace.segment_id, return_inverse=True)
    row = np.repeat(np.arange(trace.num_requests), np.diff(trace.segment_offset))
    part = parts.part[row]
    lowest, owner = np.full(len(ids), len(parts.begin_s)), np.full(len(ids), -1)
    np.minimum.at(lowest, number, part)
    np.maximum.at(owner, number, part)
    is_own = lowest == owner

    # Number what is a part's own from 0 within it, and give each copy a range of that size.
    own = np.flatnonzero(is_own)
    sorted_own, own_offset = group(owner[own], len(parts.begin_s))
    rank = np.zeros(len(ids), dtype=np.int64)
    rank[own[sorted_own]] = np.arange(len(own)) - own_offset[owner[own[sorted_own]]]
    is_copy = np.ones(len(drawn), dtype=np.bool_)
    is_copy[np.unique(drawn, return_index=True)[1]] = False
    size = np.where(is_copy, np.diff(own_offset)[drawn], 0)
    fresh = int(ids[-1]) + 1 + np.cumsum(size) - size
    at = number[index]
    copied: Ints = np.where(
        is_copy[slot] & is_own[at], fresh[slot] + rank[at], trace.segment_id[index]
    )
    return copied
