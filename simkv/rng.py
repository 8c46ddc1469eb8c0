"""Named random streams: one root seed, one independent stream a consumer.

A stream depends on the seed and on its name only, never on the order of creation, so adding a
consumer leaves every other stream as it was.
"""

from zlib import crc32

import numpy as np


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream of one named consumer.

    Parameters
    ----------
    seed
        Root seed of the run.
    names
        What the stream is for, from coarse to fine: ``stream(7, "arrivals", tenant)``.
    """
    key = tuple(crc32(name.encode()) if isinstance(name, str) else name for name in names)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
