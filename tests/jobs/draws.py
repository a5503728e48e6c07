"""Random numbers that depend on what they are for, and on nothing else.

A job with one plant fewer draws the same numbers, whichever rank is played first.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np

Key = int | str


def generator(*key: Key) -> np.random.Generator:
    """The numbers of one purpose, such as `generator(seed, rank, "speed")`."""
    words = [crc32(part.encode()) if isinstance(part, str) else part for part in key]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
