"""Reading time: every clock of every format becomes whole nanoseconds, then seconds.

Whole nanoseconds hold what the formats write (100 ns ticks, microseconds, epochs beyond 2^53)
without rounding; a float of seconds since 1970 would not. Only the last step, after the trace's
zero is taken away, makes floats.
"""

import contextlib
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simkv.units import NS_PER_S
from simkv.workload.trace import Floats, Ints

# Times from here on are clock times (three years and more since some zero), not offsets.
_CLOCK_NS = 100_000_000 * NS_PER_S
# No time is known: what numpy's NaT is among 64-bit instants.
UNKNOWN_NS = int(np.iinfo(np.int64).min)
_ZONE = r"(Z|[+-]\d\d(:?\d\d)?)$"


def seconds(time_ns: Sequence[int] | Ints) -> tuple[Floats, list[str]]:
    """Turn nanoseconds into seconds from the trace's zero, with a note where that moved.

    Offsets stay as they are. Clock times, and offsets below zero, start at zero instead.
    ``UNKNOWN_NS`` becomes NaN.
    """
    ticks = np.asarray(time_ns, dtype=np.int64)
    known = ticks != UNKNOWN_NS
    since_zero: Floats = np.full(len(ticks), np.nan)
    if not known.any():
        return since_zero, []
    first = int(ticks[known].min())
    offset_ns = 0 if 0 <= first < _CLOCK_NS else first
    since_zero[known] = (ticks[known] - offset_ns) / NS_PER_S
    return since_zero, ["times count from the first arrival"] if offset_ns else []


def nanoseconds(value: object, *, unit_ns: int) -> int:
    """Turn a number of ``unit_ns`` into whole nanoseconds, rounding only what is finer.

    Takes integers, floats (their shortest decimal form, which is what a file says) and strings of
    either.

    Raises
    ------
    ValueError
        Where it is none of these, or too large for 64 bits of nanoseconds.
    """
    ticks: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        ticks = value * unit_ns
    elif isinstance(value, str | float):
        with contextlib.suppress(InvalidOperation, ValueError, OverflowError):
            ticks = round(Decimal(str(value)) * unit_ns)
    if ticks is None or abs(ticks) >= 2**63:
        raise ValueError(f"{value!r} is no time")
    return ticks


def instants(cells: pa.Array) -> Ints:
    """Parse date-times of one column into nanoseconds since 1970, whatever mixture it holds.

    Space or ``T``, none to nine fractional digits, ``Z``, an offset or no zone (then UTC).
    An empty cell is ``UNKNOWN_NS``.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where a cell is no date-time.
    """
    cells = pc.if_else(pc.equal(cells, ""), None, cells)
    zoned = pc.match_substring_regex(cells, _ZONE)
    whole = pc.if_else(zoned, cells, pc.binary_join_element_wise(cells, "Z", ""))
    ticks = whole.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).fill_null(UNKNOWN_NS)
    values: Ints = ticks.to_numpy(zero_copy_only=False)
    return values


def offsets(cells: pa.Array) -> Ints:
    """Parse decimal seconds of one column into nanoseconds, exact to nine fractional digits.

    An empty cell is ``UNKNOWN_NS``.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where a cell is no number, or too large for 64 bits of nanoseconds.
    """
    empty = pc.equal(cells, "")
    filled = pc.if_else(empty, "0", cells)
    try:
        exact = pc.cast(filled, pa.decimal128(38, 9))
        words = np.frombuffer(exact.buffers()[1], dtype=np.int64)
        words = words[2 * exact.offset : 2 * (exact.offset + len(exact))].reshape(-1, 2)
        in_range = (words[:, 1] == words[:, 0] >> 63).all()
        ticks: Ints = words[:, 0].copy()
    except pa.ArrowInvalid:
        # More than nine digits: written by a program from floats, so read as floats.
        with np.errstate(over="ignore"):
            values = pc.cast(filled, pa.float64()).to_numpy(zero_copy_only=False) * NS_PER_S
        in_range = (np.abs(values) < 2**63).all()
        ticks = np.rint(values).astype(np.int64) if in_range else np.zeros(0, dtype=np.int64)
    if not in_range:
        raise pa.ArrowInvalid("a time is out of range")
    ticks[empty.to_numpy(zero_copy_only=False)] = UNKNOWN_NS
    return ticks
