"""Rows out of pages of a SQLite table, compiled (sqlite.org/fileformat2.html, 1.6 and 2.1).

A record begins with a header, which says of each value of what kind and so how wide it is. The
rows of a table have few different headers: what one says is found out once, its *form*, and rows
with the very same header are read by it. Of each page the rows are found first, then each column
is copied.

Whoever imports this waits for numba. Nothing on a page is trusted: all that is not as SQLite
itself writes it, and all that it may write but reports never hold, ends with `UNUSUAL`, and no
byte outside a page is looked at. Loops over cells are what this module is for.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from rankscope.sources.columns.sqlite_pages.intrinsics import (
    INLINE,
    SPREAD,
    byte,
    fill,
    helper,
    inlined,
    put,
    turned,
    word,
)

UNUSUAL = -1

LEAF = 13
MISSING = -(2**63)
"""Stands for what is no integer."""

MOST_PAYLOAD = 2**28
MOST_HEADER = 127
MOST_SLOTS = 62
"""A bit each."""

ABSENT, NULL, FLOAT, ZERO, ONE, FIRST_BYTES = -1, 0, 7, 8, 9, 12
"""Kinds of values (serial types): integers of some width are between `NULL` and `FLOAT`."""

FORMS = 256
"""How many are kept, one in each place; a power of 2."""

LENGTH, PAYLOAD, ON_PAGE, PRESENT = range(4)
"""Facts of a form: bytes of the header (0: there is none), of the record, of it on its page with
what leads to the others; slots that have a value, a bit each."""

END, SHIFT, MASK, CONSTANT = range(4)
"""How to read an integer: the eight bytes before its end (counted from where the record starts)
are shifted up and back, then mask (0: there is nothing to read) and constant applied."""

START, FORM, ROWID = range(3)
"""What is known of a row before its values are read."""

Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.int64]

WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1])
"""Bytes of a value by its kind; two are reserved."""


class Slots(NamedTuple):
    """What is wanted of a table: a slot a column, first those of integers, then those of text."""

    page_size: int
    of: Integers  # for each column up to the last one wanted its slot, -1 for none
    integers: int  # how many slots are
    filled: Booleans  # for each slot whether rows that lack its column have a value all the same
    rowid: int  # the slot of integers that gets the rowid, or -1
    deciding: int  # the slot of integers that decides which rows are kept, or -1
    only: Integers  # its values in rows to keep, none of them `MISSING`


class Forms(NamedTuple):
    """Those of a table, a row each."""

    heads: Integers  # the header's bytes, eight by eight
    facts: Integers
    numbers: Integers  # four a slot of integers
    begins: Integers  # of a slot of text, counted from where the record starts
    lengths: Integers  # of a slot of text, 0 for none

    @classmethod
    def none(cls, slots: int) -> Forms:
        """Room for them."""
        widths = MOST_HEADER // 8 + 1, 4, 4 * slots, slots, slots
        return cls(*(np.zeros((FORMS, width), np.int64) for width in widths))


class Target(NamedTuple):
    """Where rows go; by slots."""

    columns: Integers  # addresses of room for all rows: 8 bytes an integer, 16 a text's view
    contents: Integers  # addresses of room for long texts
    used: Integers  # bytes of it that are
    missing: Integers  # rows without a value; a column that has none is left untouched
    most: int  # bytes of room for long texts
    cells: Integers  # room for three facts of each row of a page


@inlined
def varint(pages: Bytes, at: int, end: int) -> tuple[int, int]:
    """A number of up to 8 bytes and where it ends: beyond `end` if it is not all before it."""
    value = np.int64(0)
    for place in range(at, min(at + 8, end)):
        part = byte(pages, place)
        value = value << 7 | part & 0x7F
        if part < 0x80:
            return value, place + 1
    return np.int64(0), end + 1


@inlined
def cell(pages: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """A record's bytes, rowid and start, with all of its header on the page; or `UNUSUAL`."""
    payload, at = varint(pages, at, end)
    rowid, start = varint(pages, at, end)
    length = byte(pages, start) if start < end else np.int64(0)
    if length < 1 or length > min(MOST_HEADER, end - start):
        return np.int64(0), np.int64(0), UNUSUAL
    return payload, rowid, start


@inlined
def last_of(pages: Bytes, start: int, length: int) -> int:
    """The last eight bytes of a header, or all where they are fewer."""
    return word(pages, start + length) << max(64 - 8 * length, 0)


@inlined
def place_of(pages: Bytes, start: int, length: int) -> int:
    """Where the form of a header is kept."""
    mixed = last_of(pages, start, length) ^ length
    for part in range(length >> 3):
        mixed = mixed * SPREAD ^ word(pages, start + 8 * part + 8)
    return (mixed * SPREAD >> 32) & (FORMS - 1)


@inlined
def has_form(pages: Bytes, start: int, length: int, forms: Forms, form: int) -> bool:
    """Whether a header is the one of a form."""
    differing = forms.facts[form, LENGTH] ^ length
    differing |= forms.heads[form, length >> 3] ^ last_of(pages, start, length)
    for part in range(length >> 3):
        differing |= forms.heads[form, part] ^ word(pages, start + 8 * part + 8)
    return differing == 0


@helper
def local(payload: int, page_size: int) -> int:
    """How many bytes of a record are on its own page; the others are on overflow pages."""
    most = page_size - 35
    if payload <= most:
        return payload
    least = (page_size - 12) * 32 // 255 - 23
    some = least + (payload - least) % (page_size - 4)
    return some if some <= most else least


@helper
def describe(forms: Forms, form: int, slot: int, text: bool, kind: int, begin: int) -> None:
    """Note how to read a value of some kind."""
    if text:
        forms.begins[form, slot] = begin
        forms.lengths[form, slot] = max(kind - FIRST_BYTES, 0) >> 1
        present = forms.lengths[form, slot] > 0
    else:
        stored, constant = NULL < kind < FLOAT, ZERO <= kind <= ONE
        width = WIDTHS[kind] if stored else 8
        forms.numbers[form, 4 * slot + END] = begin + width if stored else begin
        forms.numbers[form, 4 * slot + SHIFT] = 64 - 8 * width
        forms.numbers[form, 4 * slot + MASK] = -1 if stored else 0
        forms.numbers[form, 4 * slot + CONSTANT] = (
            0 if stored else kind - ZERO if constant else MISSING
        )
        present = stored or constant
    forms.facts[form, PRESENT] |= np.int64(present) << slot


@helper
def is_fit(slots: Slots, slot: int, kind: int) -> bool:
    """Whether a slot can have values of a kind: no numbers as text, nothing hard to compare."""
    if slot >= slots.integers:
        return kind == NULL or kind >= FIRST_BYTES
    return slot != slots.deciding or (kind < FIRST_BYTES and kind != FLOAT)


@helper
def learn(pages: Bytes, start: int, payload: int, slots: Slots, forms: Forms, form: int) -> bool:
    """Find out the form of a record whose header is within its page; whether all is usual."""
    length, here = byte(pages, start), local(payload, slots.page_size)
    seen = 0
    forms.facts[form, PRESENT] = 0
    for slot in range(slots.filled.size):
        describe(forms, form, slot, slot >= slots.integers, ABSENT, length)
    at, body, begin = start + 1, start + length, length
    column = 0
    while at < body:
        kind, at = varint(pages, at, body)
        width = WIDTHS[kind] if kind < FIRST_BYTES else (kind - FIRST_BYTES) >> 1
        slot = slots.of[column] if column < slots.of.size else -1
        if slot >= 0:
            if begin + width > here or not is_fit(slots, slot, kind):
                return False
            describe(forms, form, slot, slot >= slots.integers, kind, begin)
            seen |= 1 << slot
        if width < 0:
            return False
        begin += width
        column += 1
    for slot in range(slots.filled.size):
        if slots.filled[slot] and not seen >> slot & 1:
            return False
    for part in range(length >> 3):
        forms.heads[form, part] = word(pages, start + 8 * part + 8)
    forms.heads[form, length >> 3] = last_of(pages, start, length)
    forms.facts[form, LENGTH] = length
    forms.facts[form, PAYLOAD] = payload
    forms.facts[form, ON_PAGE] = payload if here == payload else here + 4
    return at == body and begin == payload <= MOST_PAYLOAD and length <= here


@inlined
def integer(pages: Bytes, start: int, forms: Forms, form: int, slot: int) -> int:
    """An integer of a record, `MISSING` where there is none."""
    shift = forms.numbers[form, 4 * slot + SHIFT]
    value = word(pages, start + forms.numbers[form, 4 * slot + END]) << shift >> shift
    value &= forms.numbers[form, 4 * slot + MASK]
    return value | forms.numbers[form, 4 * slot + CONSTANT]


@inlined
def among(value: int, others: Integers) -> bool:
    """Whether `others` has `value`."""
    place = 0
    while place < others.size and others[place] != value:
        place += 1
    return place < others.size


@inlined
def begun(target: Target, slot: int, kept: int, rows: int, words: int, present: bool) -> bool:
    """Whether some rows' values are to be stored; else they are missing, and that is noted.

    Nothing is stored before the first value, each of some words, of a column is there.
    """
    column, blank = target.columns[slot], MISSING if words == 1 else 0
    if present:
        if target.missing[slot] == kept:
            fill(column, words * kept, blank)
        return True
    if target.missing[slot] < kept:
        fill(column + 8 * words * kept, words * rows, blank)
    target.missing[slot] += rows
    return False


@inlined
def store_integers(
    pages: Bytes, forms: Forms, slot: int, target: Target, kept: int, rows: int
) -> None:
    """Append the integers of some rows to a column."""
    to = target.columns[slot] + 8 * kept
    missing = 0
    for row in range(rows):
        value = integer(pages, target.cells[START, row], forms, target.cells[FORM, row], slot)
        missing += value == MISSING
        put(to + 8 * row, value)
    target.missing[slot] += missing


@inlined
def store_text(pages: Bytes, begin: int, length: int, view: int, content: int, used: int) -> int:
    """Store the view of a text, and a long one's bytes behind those `used`; how many are then."""
    end = begin + length
    if length > INLINE:
        put(view, length | turned(word(pages, begin + 8)) << 32)
        put(view + 8, used << 32)
        to = content + used - begin - 8
        for part in range(begin + 8, end, 8):
            put(to + part, turned(word(pages, part)))
        put(to + end, turned(word(pages, end)))
        return used + length
    first = last = np.int64(0)
    if length > 0:
        some = min(length, 8)
        first = turned(word(pages, begin + some) << (64 - 8 * some))
    if length > 8:
        last = turned(word(pages, end) << (128 - 8 * length))
    put(view, length | first << 32)
    put(view + 8, (first >> 32) & 0xFFFFFFFF | last << 32)
    return used


@inlined
def store_texts(
    pages: Bytes, forms: Forms, slot: int, target: Target, kept: int, rows: int
) -> bool:
    """Append the texts of some rows to a column; whether there is room."""
    for row in range(rows):
        form = target.cells[FORM, row]
        begin, length = forms.begins[form, slot], forms.lengths[form, slot]
        used, view = target.used[slot], target.columns[slot] + 16 * (kept + row)
        if used + length > target.most:
            return False
        begin += target.cells[START, row]
        target.used[slot] = store_text(pages, begin, length, view, target.contents[slot], used)
        target.missing[slot] += length == 0
    return True


@helper
def store(
    pages: Bytes, slots: Slots, forms: Forms, target: Target, kept: int, rows: int, present: int
) -> bool:
    """Append some rows to all columns, given which of these have a value; whether there is room."""
    for slot in range(slots.filled.size):
        there = present >> slot & 1
        if slot == slots.rowid:
            for row in range(rows):
                put(target.columns[slot] + 8 * (kept + row), target.cells[ROWID, row])
        elif slot < slots.integers:
            if begun(target, slot, kept, rows, 1, there):
                store_integers(pages, forms, slot, target, kept, rows)
        elif begun(target, slot, kept, rows, 2, there) and not store_texts(
            pages, forms, slot, target, kept, rows
        ):
            return False
    return True


i8 = numba.int64
SLOTS = numba.types.NamedTuple((i8, i8[::1], i8, numba.boolean[::1], i8, i8, i8[::1]), Slots)
FORMS_OF = numba.types.NamedUniTuple(i8[:, ::1], 5, Forms)
TARGET = numba.types.NamedTuple((*[i8[::1]] * 4, i8, i8[:, ::1]), Target)


@numba.njit(i8(numba.uint8[::1], SLOTS, FORMS_OF, TARGET), cache=True, nogil=True, _nrt=False)
def decode(pages: Bytes, slots: Slots, forms: Forms, target: Target) -> int:
    """How many rows of leaf pages were kept; or `UNUSUAL`.

    Args:
        pages: whole leaf pages, one after the other.
        slots: what is wanted of their table.
        forms: as an earlier call for the same slots left them, or none.
        target: room for all rows that the pages say they have; gets those that are kept.
    """
    target.used[:] = 0
    target.missing[:] = 0
    kept = form = 0
    for base in range(0, pages.size, slots.page_size):
        end = base + slots.page_size
        count = np.int64(pages[base + 3]) << 8 | pages[base + 4]
        lowest = base + 8 + 2 * count
        if pages[base] != LEAF or count > target.cells.shape[1] or lowest > end:
            return UNUSUAL
        rows = present = 0
        for pointer in range(base + 8, lowest, 2):
            at = base + (word(pages, pointer + 2) & 0xFFFF)
            payload, rowid, start = cell(pages, at if at >= lowest else end, end)
            if start < 0:
                return UNUSUAL
            length = byte(pages, start)
            if not has_form(pages, start, length, forms, form):
                form = place_of(pages, start, length)
                if not has_form(pages, start, length, forms, form):
                    # The new form may take the place of one that rows before this have.
                    stored = store(pages, slots, forms, target, kept, rows, present)
                    if not stored or not learn(pages, start, payload, slots, forms, form):
                        return UNUSUAL
                    kept += rows
                    rows = present = 0
            facts = forms.facts
            if payload != facts[form, PAYLOAD] or start + facts[form, ON_PAGE] > end:
                return UNUSUAL
            if slots.deciding >= 0:
                decided = integer(pages, start, forms, form, slots.deciding)
                if not among(decided, slots.only):
                    continue
            target.cells[START, rows] = start
            target.cells[FORM, rows] = form
            target.cells[ROWID, rows] = rowid
            present |= facts[form, PRESENT]
            rows += 1
        if not store(pages, slots, forms, target, kept, rows, present):
            return UNUSUAL
        kept += rows
    return kept
