"""Rows of a few integers and a text numbered, compiled: those that are alike have one number.

A hash table with open addressing; equal hashes are compared to the byte. Whoever imports this
waits for numba.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from rankscope.sources.columns.sqlite_pages.intrinsics import (
    INLINE,
    SPREAD,
    byte_at,
    helper,
    inlined,
    word_at,
)

Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]

COMMA, NEWLINE = 44, 10

ENTRIES, FILED, USED = range(3)
"""Numbers given; those of them that the table has; bytes of text kept."""


class Numbers(NamedTuple):
    """What has a number; grown by the caller, who sees to it that there is room."""

    counts: Integers
    table: Integers  # by hash: the number plus 1, 0 for none; its size a power of 2
    hashes: Integers  # by number
    keys: Integers  # (numbers, integers of a row)
    begins: Integers  # of the text in `texts`
    lengths: Integers
    texts: Bytes

    @classmethod
    def of(cls, integers: int) -> Numbers:
        """None yet; rows of so many integers."""
        shapes = 3, 2, 0, (0, integers), 0, 0
        return cls(*(np.zeros(shape, np.int64) for shape in shapes), np.zeros(0, np.uint8))

    def grown(self, rows: int, size: int) -> Numbers:
        """With room for so many more rows, and bytes of text."""
        most, used = int(self.counts[ENTRIES]) + rows, int(self.counts[USED]) + size
        table = self.table
        if 2 * most > table.size:
            table = np.zeros(1 << (2 * most).bit_length(), np.int64)
            self.counts[FILED] = 0
        entries = [_longer(each, most) for each in self[2:6]]
        return Numbers(self.counts, table, *entries, _longer(self.texts, used))


def _longer(values: NDArray[Any], length: int) -> NDArray[Any]:
    """With room for so many."""
    if len(values) >= length:
        return values
    longer = np.empty((2 * length, *values.shape[1:]), values.dtype)
    longer[: len(values)] = values
    return longer


@inlined
def tail(address: int, length: int) -> int:
    """The last bytes of a text that fill no word of eight, or all eight where they end one."""
    if length >= 8:
        return word_at(address + length - 8)
    value = np.int64(0)
    for place in range(length):
        value = value << 8 | byte_at(address + place)
    return value


@helper
def is_mark(address: int, length: int, marks: Bytes, ends: Integers) -> bool:
    """Whether a text begins with one of the marks, which stand one after the other."""
    begin = 0
    for end in ends:
        size = end - begin
        place = 0
        while place < min(size, length) and byte_at(address + place) == marks[begin + place]:
            place += 1
        if place == size:
            return True
        begin = end
    return False


@inlined
def plain(address: int, length: int, marks: Bytes, ends: Integers) -> int:
    """How long a text is without the first mark on its last line, and what follows it."""
    cut = length
    for place in range(length):
        here = address + place
        value: int = byte_at(here)
        if value == NEWLINE:
            cut = length
        elif value == COMMA and cut == length and is_mark(here, length - place, marks, ends):
            cut = place
    return cut


@inlined
def mixed(keys: Integers, row: int, address: int, length: int) -> int:
    """The hash of a row."""
    value = np.int64(length)
    for column in range(keys.shape[0]):
        value = (value ^ keys[column, row]) * SPREAD
        value ^= value >> 29
    for part in range(length >> 3):
        value = (value ^ word_at(address + 8 * part)) * SPREAD
        value ^= value >> 29
    value = (value ^ tail(address, length)) * SPREAD
    return value ^ value >> 32


@inlined
def same(known: Numbers, number: int, keys: Integers, row: int, address: int, length: int) -> bool:
    """Whether a row is what has the number."""
    differing = known.lengths[number] ^ length
    for column in range(keys.shape[0]):
        differing |= known.keys[number, column] ^ keys[column, row]
    if differing:
        return False
    kept = known.texts.ctypes.data + known.begins[number]
    for part in range(length >> 3):
        differing |= word_at(kept + 8 * part) ^ word_at(address + 8 * part)
    return (differing | tail(kept, length) ^ tail(address, length)) == 0


i8 = numba.int64
KNOWN = numba.types.NamedTuple(
    (*[i8[::1]] * 3, i8[:, ::1], *[i8[::1]] * 2, numba.uint8[::1]), Numbers
)


@numba.njit(
    numba.void(i8[:, ::1], i8, i8[::1], numba.uint8[::1], i8[::1], KNOWN, numba.uint32[::1]),
    cache=True,
    nogil=True,
)
def number(
    keys: Integers,
    views: int,
    contents: Integers,
    marks: Bytes,
    ends: Integers,
    known: Numbers,
    numbers: NDArray[np.uint32],
) -> None:
    """Number some rows, new ones from the last number on.

    Args:
        keys: (integers of a row, rows).
        views: address of the views of the texts; or 0, if there are none.
        contents: addresses of the buffers that views point into.
        marks: texts that begin with a comma; from the first on its last line a text is not told.
        ends: where each mark ends.
        known: what has a number already.
        numbers: gets those of the rows.
    """
    counts, mask = known.counts, known.table.size - 1
    for entry in range(counts[FILED], counts[ENTRIES]):
        place = known.hashes[entry] & mask
        while known.table[place]:
            place = (place + 1) & mask
        known.table[place] = entry + 1
    for row in range(keys.shape[1]):
        address = length = np.int64(0)
        if views:
            view = views + 16 * row
            first: int = word_at(view)
            length = first & 0xFFFFFFFF
            if length > INLINE:
                second = word_at(view + 8)
                address = contents[second & 0xFFFFFFFF] + (second >> 32)
            else:
                address = view + 4
            length = plain(address, length, marks, ends)
        value = mixed(keys, row, address, length)
        place = value & mask
        entry = known.table[place] - 1
        while entry >= 0 and not (
            known.hashes[entry] == value and same(known, entry, keys, row, address, length)
        ):
            place = (place + 1) & mask
            entry = known.table[place] - 1
        if entry < 0:
            entry = counts[ENTRIES]
            known.table[place] = entry + 1
            known.hashes[entry] = value
            known.begins[entry] = counts[USED]
            known.lengths[entry] = length
            for column in range(keys.shape[0]):
                known.keys[entry, column] = keys[column, row]
            for part in range(length):
                known.texts[counts[USED] + part] = byte_at(address + part)
            counts[USED] += length
            counts[ENTRIES] += 1
        numbers[row] = entry
    counts[FILED] = counts[ENTRIES]
