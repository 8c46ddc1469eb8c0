"""What releases a request: its own arrival, or the end of another request (``Trace.after``).

A chain of releases is followed by pointer doubling: in log2(length) passes over the column.
"""

import numpy as np

from simkv.workload.trace import Floats, Ints, Trace


def nearest(after: Ints, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Ints:
    """Return for each row the first wanted one among itself and those that release it, or -1.

    Parameters
    ----------
    after
        Row that releases each row, -1 for none ``[num_rows]``.
    wanted
        Which rows count ``[num_rows]``.
    """
    # One row more stands for "none"; it releases itself, and so does a wanted row.
    none = len(after)
    at = np.append(np.where(wanted, np.arange(none), np.where(after < 0, none, after)), none)
    while True:
        further = at[at]
        if np.array_equal(further, at):
            return np.where(at[:-1] == none, -1, at[:-1])
        at = further


def start_s(trace: Trace) -> Floats:
    """Return for each row its arrival, or that of the nearest releaser with one; NaN without any.

    It is the earliest time that is known for a request, and the order in which requests come as
    far as it is known before a simulation.
    """
    known = ~np.isnan(trace.arrival_s)
    if known.all():
        return trace.arrival_s
    source = nearest(trace.after, known)
    return np.where(source < 0, np.nan, trace.arrival_s[source])


def open_s(trace: Trace) -> Floats:
    """Return arrivals in an open loop: where there is none, the releaser's plus the think time."""
    known = ~np.isnan(trace.arrival_s)
    if known.all():
        return trace.arrival_s
    none = trace.num_requests
    root = known | (trace.after < 0)
    at = np.append(np.where(root, np.arange(none), trace.after), none)
    waits_s = np.where(root, 0.0, np.nan_to_num(trace.think_s))
    total_s = np.append(waits_s, 0.0)
    while True:
        further = at[at]
        if np.array_equal(further, at):
            break
        total_s = total_s + total_s[at]
        at = further
    arrival_s: Floats = trace.arrival_s[at[:-1]] + total_s[:-1]
    return arrival_s
