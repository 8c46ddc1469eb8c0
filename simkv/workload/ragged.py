"""Rows of different lengths, stored one after the other with their offsets."""

import numpy as np

from simkv.workload.trace import Ints


def gather(offset: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Pick rows, in this order, with repetitions where asked for.

    Parameters
    ----------
    offset
        Row ``i`` holds the elements ``offset[i]:offset[i + 1]`` ``[num_rows + 1]``.
    rows
        The rows wanted.

    Returns
    -------
    tuple
        The elements' old indices, and the offsets of the picked rows ``[len(rows) + 1]``.
    """
    lengths = np.diff(offset)[rows]
    picked = np.concatenate(([0], np.cumsum(lengths)))
    shift = offset[rows] - picked[:-1]
    return np.arange(picked[-1]) + np.repeat(shift, lengths), picked


def group(key: Ints, num_groups: int) -> tuple[Ints, Ints]:
    """Return the elements sorted by group (ties in order), and each group's offset in them."""
    counts = np.bincount(key, minlength=num_groups)
    return np.argsort(key, kind="stable"), np.concatenate(([0], np.cumsum(counts)))
