"""The numbers and arrays that `records.decode` gets: for its callers, and for its compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

UNUSUAL = -1
"""Result of `decode` for a page that SQLite has to read."""

MISSING = -(2**63)
"""Stands for NULL and for a value that is not an integer; null in the frame."""

MOST_HEADER = 127
"""Largest record header that is read, in bytes: its size is then one byte."""

MOST_OUTPUTS = 62
"""Most columns that are read at once: sets of them are the bits of an int64."""

SHAPES = 256
"""Entries of the cache of shapes; a power of 2. A header's hash is its entry."""

Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]


class Outputs(NamedTuple):
    """The columns to read: first all integers, then all texts."""

    page_size: int
    of_column: Integers  # for each column of the table up to the last selected: its output, or -1
    integers: int  # number of integer outputs
    defaults: Booleans  # per output: a row that lacks the column has a value (its DEFAULT)
    rowid: int  # the integer output that gets the rowid, or -1
    deciding: int  # the integer output that decides which rows are kept, or -1
    kept_values: Integers  # its values in rows to keep, none of them `MISSING`


class Shapes(NamedTuple):
    """The cache of shapes: a row of each array per entry."""

    headers: Integers  # the bytes of the header, eight in an integer
    facts: Integers
    integers: Integers  # END, SHIFT, MASK, CONSTANT of each integer output
    text_begins: Integers  # of each text output, counted from the start of the record
    text_lengths: Integers  # of each text output, 0 for no text

    @classmethod
    def empty(cls, integers: int, texts: int) -> Shapes:
        """A cache without an entry for this many outputs."""
        widths = MOST_HEADER // 8 + 1, 4, 4 * integers, texts, texts
        return cls(*(np.zeros((SHAPES, width), np.int64) for width in widths))


class Target(NamedTuple):
    """The memory that `decode` writes to, beside the cache of shapes."""

    values: Integers  # (integer outputs, rows)
    views: Integers  # (text outputs, 2 * rows): Arrow views, two integers each
    contents: Bytes  # (text outputs, bytes): the texts that are longer than INLINE
    used: Integers  # per text output: bytes of its `contents` that are in use
    missing: Integers  # per output: rows without a value; while all lack it, nothing is written
    rows: Integers  # (3, most rows of a page): facts of the rows of the current page


Decode = Callable[[Bytes, Outputs, Shapes, Target], int]
"""`records.decode`, compiled in one way or another."""
