"""What is done to a trace before it is simulated: a part of it, its rate, its limits, its loop.

Nothing is dropped in silence: what a transform decided beyond its plain meaning is in the notes.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from simkv.errors import ConfigError, TraceError
from simkv.rng import stream
from simkv.workload.clones import isolate, sample
from simkv.workload.ragged import gather
from simkv.workload.release import nearest, open_s, start_s
from simkv.workload.resample import resample
from simkv.workload.source import Transform
from simkv.workload.trace import Trace

_PATH = "workload.transform"


def apply(
    trace: Trace, transform: Transform, *, seed: int, max_model_len: int | None = None
) -> Trace:
    """Return the trace after all steps of a transform, in the order of its fields.

    In the result no request has both an arrival and a releaser (``after``); one that has neither
    comes from a trace without times, which only a simulator can judge.

    Parameters
    ----------
    trace, transform
        What is transformed, and how.
    seed
        Root seed; thinning and resampling have a stream each.
    max_model_len
        The model's limit on prompt and output together, for ``too_long = "clip"``.

    Raises
    ------
    TraceError
        Where no request is left.
    ConfigError
        Where clipping is asked for and the model's limit is unknown.
    """
    trace = _window(trace, transform)
    trace = _thin(trace, transform.keep_ratio, seed)
    if transform.resample:
        trace = resample(trace, seed=seed)
    if transform.rate_scale != 1:
        trace = dataclasses.replace(trace, arrival_s=trace.arrival_s / transform.rate_scale)
    if transform.max_requests is not None and transform.max_requests < trace.num_requests:
        first = np.argsort(start_s(trace), kind="stable")[: transform.max_requests]
        kept = np.zeros(trace.num_requests, dtype=np.bool_)
        kept[first] = True
        trace = _keep(trace, kept)
    if transform.too_long == "clip":
        if max_model_len is None:
            raise ConfigError(
                "clipping needs the model's limit, which is unknown", path=f"{_PATH}.too_long"
            )
        trace = clip(trace, max_model_len)
    trace = sample(isolate(trace, transform.share_within), transform.num_samples)
    if transform.patience_s is not None:
        patience_s = np.fmin(trace.patience_s, transform.patience_s)
        trace = dataclasses.replace(trace, patience_s=patience_s)
    return _loop(trace, transform)


def _window(trace: Trace, transform: Transform) -> Trace:
    """Keep what starts in the window; requests without an arrival go with their releaser."""
    if transform.start_s == 0 and transform.duration_s is None:
        return trace
    begin_s = start_s(trace)
    kept = begin_s >= transform.start_s
    if transform.duration_s is not None:
        kept &= begin_s < transform.start_s + transform.duration_s
    if not kept.any():
        known_s = begin_s[~np.isnan(begin_s)]
        last = (
            f"its last arrival is at {known_s.max():g} s" if len(known_s) else "it knows no times"
        )
        raise TraceError(
            f"no request arrives in the window from {_PATH}.start_s = {transform.start_s:g} s; "
            + last,
            file=trace.name,
        )
    trace = _keep(trace, kept)
    return dataclasses.replace(trace, arrival_s=trace.arrival_s - transform.start_s)


def _thin(trace: Trace, keep_ratio: float, seed: int) -> Trace:
    """Keep this share of the sessions and of the requests that belong to none, at random."""
    if keep_ratio == 1:
        return trace
    label = np.where(trace.session >= 0, trace.session, -1 - np.arange(trace.num_requests))
    labels, unit = np.unique(label, return_inverse=True)
    kept = (stream(seed, "thin").random(len(labels)) < keep_ratio)[unit]
    if not kept.any():
        raise TraceError(
            f"{_PATH}.keep_ratio = {keep_ratio:g} leaves none of {trace.num_requests:,} requests",
            file=trace.name,
        )
    return _keep(trace, kept)


def _keep(trace: Trace, kept: npt.NDArray[np.bool_]) -> Trace:
    """Keep some rows. Who waited for a dropped row waits for the one that released that.

    Where none of those is kept, the request comes at its own arrival, or when the first of the
    chain would have.
    """
    if kept.all():
        return trace
    rows = np.flatnonzero(kept)
    # A row releases nobody else while it looks for its own releaser, so start one step ahead.
    waits = trace.after >= 0
    releaser = np.where(waits, nearest(trace.after, kept)[trace.after], -1)[rows]
    orphan = waits[rows] & (releaser < 0)
    arrival_s = np.where(orphan, start_s(trace)[rows], trace.arrival_s[rows])
    place = np.full(trace.num_requests + 1, -1)  # the last stands for "released by none"
    place[rows] = np.arange(len(rows))
    index, offset = gather(trace.segment_offset, rows)
    notes = trace.notes
    if orphans := int(orphan.sum()):
        notes = (
            *notes,
            f"{orphans:,} requests lost those that they follow and arrive at their own time",
        )
    return dataclasses.replace(
        trace,
        arrival_s=arrival_s,
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        segment_offset=offset,
        segment_id=trace.segment_id[index],
        segment_tokens=trace.segment_tokens[index],
        session=trace.session[rows],
        turn=trace.turn[rows],
        after=place[releaser],
        think_s=np.where(orphan, np.nan, trace.think_s[rows]),
        patience_s=trace.patience_s[rows],
        tenant=trace.tenant[rows],
        priority=trace.priority[rows],
        notes=notes,
    )


def clip(trace: Trace, max_model_len: int) -> Trace:
    """Shorten requests until prompt and output fit the model's limit together.

    The output goes first, down to one token, then the end of the prompt. A shortened prompt is
    followed by an output that nobody knows, so content then ends with the prompt.

    Raises
    ------
    ConfigError
        Where the limit leaves no room for a prompt and an output.
    """
    if max_model_len < 2:
        raise ConfigError(
            f"cannot clip to a limit of {max_model_len} tokens, expected 2 or more",
            path=f"{_PATH}.too_long",
        )
    prompt_tokens = np.minimum(
        trace.prompt_tokens, max_model_len - np.minimum(trace.output_tokens, 1)
    )
    output_tokens = np.minimum(trace.output_tokens, max_model_len - prompt_tokens)
    is_cut = prompt_tokens < trace.prompt_tokens
    lost_prompt = int((trace.prompt_tokens - prompt_tokens).sum())
    lost_output = int((trace.output_tokens - output_tokens).sum())
    if not lost_prompt + lost_output:
        return trace
    note = (
        f"clipped to {max_model_len:,} tokens: {int(is_cut.sum()):,} prompts lost {lost_prompt:,} "
        f"tokens and {int((output_tokens < trace.output_tokens).sum()):,} outputs {lost_output:,}"
    )
    row = np.repeat(np.arange(trace.num_requests), np.diff(trace.segment_offset))
    end = np.cumsum(trace.segment_tokens)
    begin = end - trace.segment_tokens
    begin = begin - np.append(begin, 0)[trace.segment_offset[:-1]][row]  # within the request
    room = np.where(is_cut, prompt_tokens, prompt_tokens + output_tokens)[row]
    segment_tokens = np.minimum(trace.segment_tokens, room - begin)
    left = segment_tokens > 0
    return dataclasses.replace(
        trace,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        segment_offset=np.concatenate(([0], np.cumsum(left)))[trace.segment_offset],
        segment_id=trace.segment_id[left],
        segment_tokens=segment_tokens[left],
        notes=(*trace.notes, note),
    )


def _loop(trace: Trace, transform: Transform) -> Trace:
    """Give each request an arrival or a releaser, by the kind of loop."""
    notes = list(trace.notes)
    unknown = np.isnan(trace.arrival_s)
    none = np.full(trace.num_requests, np.nan)
    if transform.loop == "open":
        if count := int((unknown & (trace.after >= 0)).sum()):
            notes.append(
                f"{count:,} requests have no arrival time; in an open loop each arrives its think "
                "time after the arrival of the one that it follows"
            )
        arrival_s, after, think_s = open_s(trace), np.full(trace.num_requests, -1), none
    else:
        follows = trace.after >= 0 if transform.loop == "closed" else unknown & (trace.after >= 0)
        # A recorded gap holds the time of service too; it is the best that is known of the pause.
        gap_s = trace.arrival_s - trace.arrival_s[np.maximum(trace.after, 0)]
        guessed = follows & np.isnan(trace.think_s)
        think_s = np.where(guessed, np.maximum(np.nan_to_num(gap_s), 0.0), trace.think_s)
        if count := int(guessed.sum()):
            notes.append(
                f"{count:,} think times are unknown and taken as the time between the arrivals, "
                "or 0 where that is unknown too"
            )
        arrival_s = np.where(follows, np.nan, trace.arrival_s)
        after = np.where(follows, trace.after, -1)
        think_s = np.where(follows, think_s, np.nan)
    return dataclasses.replace(
        trace, arrival_s=arrival_s, after=after, think_s=think_s, notes=tuple(notes)
    )
