"""Requests from one: parallel samples of a prompt, and who may hit whose prefixes."""

import dataclasses
from typing import Literal

import numpy as np

from simkv.workload.ragged import gather
from simkv.workload.trace import Trace

ShareWithin = Literal["all", "tenant", "session"]


def sample(trace: Trace, num_samples: int) -> Trace:
    """Return a trace that asks for ``num_samples`` outputs of every prompt.

    Each sample is a request of its own, right behind the first, as vLLM does it. The first one
    keeps the known content of its output, and followers wait for it; nobody knows what the others
    generate, so their content ends with the prompt.
    """
    if num_samples == 1:
        return trace
    rows = np.repeat(np.arange(trace.num_requests), num_samples)
    is_first = np.arange(len(rows)) % num_samples == 0
    index, offset = gather(trace.segment_offset, rows)
    row = np.repeat(np.arange(len(rows)), np.diff(offset))
    tokens = trace.segment_tokens[index]
    end = np.cumsum(tokens)
    begin = end - tokens
    begin = begin - np.append(begin, 0)[offset[:-1]][row]  # within the request
    room = np.where(is_first[row], tokens, trace.prompt_tokens[rows][row] - begin)
    tokens = np.minimum(tokens, room)
    left = tokens > 0
    return dataclasses.replace(
        trace,
        arrival_s=trace.arrival_s[rows],
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        segment_offset=np.concatenate(([0], np.cumsum(left)))[offset],
        segment_id=trace.segment_id[index][left],
        segment_tokens=tokens[left],
        session=trace.session[rows],
        turn=trace.turn[rows],
        after=np.where(trace.after[rows] < 0, -1, trace.after[rows] * num_samples),
        think_s=trace.think_s[rows],
        patience_s=trace.patience_s[rows],
        tenant=trace.tenant[rows],
        priority=trace.priority[rows],
    )


def isolate(trace: Trace, within: ShareWithin) -> Trace:
    """Return a trace in which no content is common to two tenants, or to two sessions.

    Engines do that with a salt in the first block's hash; here the segments get ids of their own.
    """
    if within == "all" or not len(trace.segment_id):
        return trace
    alone = -1 - np.arange(trace.num_requests)
    owner = trace.tenant
    if within == "session":
        owner = np.where(trace.session >= 0, trace.session, alone)
    row = np.repeat(np.arange(trace.num_requests), np.diff(trace.segment_offset))
    pairs = np.stack([trace.segment_id, owner[row]], axis=1)
    _, fresh = np.unique(pairs, axis=0, return_inverse=True)
    return dataclasses.replace(trace, segment_id=fresh.reshape(-1).astype(np.int64))
