"""Rows out of pages of a SQLite table, compiled (sqlite.org/fileformat2.html, 1.6 and 2.1).

Whoever imports this waits for numba. Nothing on a page is trusted: all that is not as SQLite
itself writes it, and all that it may write but reports never hold, ends with `UNUSUAL`, and no
byte outside a page is looked at. Loops over cells are what this module is for.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from rankscope.files import cache_home

UNUSUAL, SKIP, KEEP = -1, 0, 1
NULL = -1
"""Length of a text that is NULL."""

ABSENT = -1
"""Serial type of a column that a row lacks."""

LEAF = 13
MISSING = -(2**63)
MOST_PAYLOAD = 2**28
FLOAT, ZERO, ONE, FIRST_BYTES = 7, 8, 9, 12
"""Serial types; those below `FLOAT` are integers of some width, 0 is NULL."""

Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

numba.config.CACHE_DIR = str(cache_home() / "compiled")
COMPILED = not numba.config.DISABLE_JIT

WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1])
"""Bytes of a value by its serial type; two are reserved."""


@numba.njit("UniTuple(int64, 2)(uint8[::1], int64, int64)", cache=True, nogil=True)
def varint(pages: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 1 to 9 bytes and where it ends; `UNUSUAL` where it reaches beyond `end`."""
    value = np.int64(0)
    for place in range(9):
        if at + place >= end:
            return 0, UNUSUAL
        byte = np.int64(pages[at + place])
        if place == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + place + 1
    return 0, UNUSUAL


@numba.njit("int64(uint8[::1], int64, int64)", cache=True, nogil=True)
def integer(pages: Bytes, at: int, width: int) -> int:
    """A big-endian integer with a sign."""
    first = np.int64(np.int8(pages[at]))
    if width == 1:
        return first
    if width == 2:
        return first << 8 | pages[at + 1]
    if width == 4:
        return first << 24 | pages[at + 1] << 16 | pages[at + 2] << 8 | pages[at + 3]
    for place in range(1, width):
        first = first << 8 | pages[at + place]
    return first


@numba.njit("UniTuple(int64, 4)(uint8[::1], int64, int64, int64)", cache=True, nogil=True)
def cell(pages: Bytes, at: int, end: int, page_size: int) -> tuple[int, int, int, int]:
    """Rowid of a cell, where its record starts, its bytes and those on this page."""
    nothing = (0, UNUSUAL, 0, 0)
    payload, at = varint(pages, at, end)
    if at < 0 or payload < 1 or payload > MOST_PAYLOAD:
        return nothing
    rowid, start = varint(pages, at, end)
    if start < 0:
        return nothing
    most = page_size - 35
    if payload <= most:
        return (rowid, start, payload, payload) if start + payload <= end else nothing
    least = (page_size - 12) * 32 // 255 - 23
    local = least + (payload - least) % (page_size - 4)
    if local > most:
        local = least
    return (rowid, start, payload, local) if start + local + 4 <= end else nothing


@numba.njit(
    "boolean(uint8[::1], int64, int64, int64, int64[::1], int64[::1], int64[::1])",
    cache=True,
    nogil=True,
)
def header(
    pages: Bytes,
    start: int,
    payload: int,
    local: int,
    slots: Integers,
    kinds: Integers,
    begins: Integers,
) -> bool:
    """Serial types of the columns wanted and where their values stand; whether all is usual."""
    length, at = varint(pages, start, start + local)
    body = start + length
    if at < 0 or length > local or body < at:
        return False
    kinds[:] = ABSENT
    begin = body
    for slot in slots:
        if at == body:
            break
        kind = np.int64(pages[at])
        if kind < 0x80:
            at += 1
        else:
            kind, at = varint(pages, at, body)
            if at < 0 or kind < 0 or kind > 2 * MOST_PAYLOAD:
                return False
        if kind < FIRST_BYTES:
            width = WIDTHS[kind]
            if width < 0:
                return False
        else:
            width = (kind - FIRST_BYTES) >> 1
        if slot >= 0:
            kinds[slot] = kind
            begins[slot] = begin
            if begin + width > start + local:
                return False  # on an overflow page
        begin += width
    end = start + payload
    return begin == end if at == body else begin <= end


@numba.njit("int64(uint8[::1], int64, int64)", cache=True, nogil=True)
def number(pages: Bytes, kind: int, begin: int) -> int:
    """A value as an integer, `MISSING` where it is none."""
    if kind >= ZERO:
        return kind - ZERO if kind < FIRST_BYTES else MISSING
    return integer(pages, begin, WIDTHS[kind]) if 0 < kind < FLOAT else MISSING


@numba.njit("boolean(int64, int64[::1])", cache=True, nogil=True)
def among(value: int, others: Integers) -> bool:
    """Whether `others` has `value`."""
    found = False
    for other in others:
        found = found or other == value
    return found


@numba.njit(
    "int64(uint8[::1], int64[::1], int64[::1], boolean[::1], int64, int64[::1])",
    cache=True,
    nogil=True,
)
def judge(
    pages: Bytes,
    kinds: Integers,
    begins: Integers,
    filled: Booleans,
    only_slot: int,
    only: Integers,
) -> int:
    """Whether to `KEEP` a row, to `SKIP` it, or to call it `UNUSUAL`."""
    for slot in range(filled.size):
        if filled[slot] and kinds[slot] == ABSENT:
            return UNUSUAL
    if only_slot < 0:
        return KEEP
    kind = kinds[only_slot]
    if kind == FLOAT or kind >= FIRST_BYTES:
        return UNUSUAL  # may compare equal to an integer
    return KEEP if kind > 0 and among(number(pages, kind, begins[only_slot]), only) else SKIP


@numba.njit(
    "int64(uint8[::1], int64, int64[::1], int64, int64, boolean[::1], int64, int64[::1], "
    "int64[:, ::1], boolean[:, ::1], int64[:, ::1], int64[:, ::1])",
    cache=True,
    nogil=True,
)
def decode(
    pages: Bytes,
    page_size: int,
    slots: Integers,
    integers: int,
    rowid_slot: int,
    filled: Booleans,
    only_slot: int,
    only: Integers,
    values: Integers,
    known: Booleans,
    places: Integers,
    lengths: Integers,
) -> int:
    """How many rows of leaf pages were kept, their values in the last four; or `UNUSUAL`.

    Args:
        pages: whole leaf pages, one after the other.
        page_size: bytes of a page.
        slots: for each column up to the last one wanted where its values go, -1 for nowhere.
        integers: how many slots are integers; the others are text.
        rowid_slot: the slot of integers that gets the rowid, or -1.
        filled: for each slot whether rows that lack its column have a value all the same.
        only_slot: the slot of integers that decides which rows are kept, or -1.
        only: its values in rows to keep.
        values, known: a row a slot of integers, a column a row kept.
        places, lengths: a row a slot of text: where it stands in `pages`, `NULL` long for none.
    """
    kinds = np.empty(filled.size, np.int64)
    begins = np.zeros(filled.size, np.int64)
    kept = 0
    for base in range(0, pages.size, page_size):
        end = base + page_size
        cells = (np.int64(pages[base + 3]) << 8) | pages[base + 4]
        lowest = base + 8 + 2 * cells
        if pages[base] != LEAF or cells > (page_size - 8) // 6:
            return UNUSUAL
        for pointer in range(base + 8, lowest, 2):
            at = base + ((np.int64(pages[pointer]) << 8) | pages[pointer + 1])
            if at < lowest:
                return UNUSUAL
            rowid, start, payload, local = cell(pages, at, end, page_size)
            if start < 0 or not header(pages, start, payload, local, slots, kinds, begins):
                return UNUSUAL
            fate = judge(pages, kinds, begins, filled, only_slot, only)
            if fate == UNUSUAL:
                return UNUSUAL
            if fate == SKIP:
                continue
            for slot in range(integers):
                value = rowid if slot == rowid_slot else number(pages, kinds[slot], begins[slot])
                values[slot, kept] = value
                known[slot, kept] = value != MISSING
            for slot in range(integers, filled.size):
                kind = kinds[slot]
                if 0 < kind < FIRST_BYTES:
                    return UNUSUAL  # a number as text
                places[slot - integers, kept] = begins[slot]
                lengths[slot - integers, kept] = (kind - FIRST_BYTES) >> 1 if kind > 0 else NULL
            kept += 1
    return kept


@numba.njit("void(uint8[::1], int64[::1], int64[::1], uint8[::1])", cache=True, nogil=True)
def gather(pages: Bytes, places: Integers, lengths: Integers, into: Bytes) -> None:
    """Copy texts out of the pages, one after the other."""
    to = 0
    for row in range(places.size):
        for byte in range(lengths[row]):
            into[to + byte] = pages[places[row] + byte]
        to += max(lengths[row], 0)
