"""Headers of SQLite records, compiled by numba. Read DESIGN.md first.

The file format is https://www.sqlite.org/fileformat2.html, sections 1.6 (cells) and 2.1 (records).
A record begins with a header that has the type of each value, and so its width. The rows of a
table have few different headers, so each is parsed once into a *shape*; further rows with the same
header bytes are read by the shape.
"""

from __future__ import annotations

import numba
import numpy as np

from rankscope.sources.columns.sqlite_pages.layout import (
    MISSING,
    MOST_HEADER,
    SHAPES,
    UNUSUAL,
    Bytes,
    Outputs,
    Shapes,
)

MOST_PAYLOAD = 2**28
"""Largest record that is read, in bytes."""

ABSENT, NULL, FLOAT, ZERO, ONE, FIRST_BYTES = -1, 0, 7, 8, 9, 12
"""Serial types: 1 to 6 are integers, those from `FIRST_BYTES` on are blobs (even) and texts (odd);
`ABSENT` is our own, for a column that a record does not have."""

WIDTHS = np.array([0, 1, 2, 3, 4, 6, 8, 8, 0, 0, -1, -1])
"""Bytes of a value by serial type up to 11; types 10 and 11 are reserved."""

SPREAD = -0x61C8864680B583EB
"""2**64 divided by the golden ratio: the upper bits of a product with it depend on all bits."""

LENGTH, PAYLOAD, ON_PAGE, PRESENT = range(4)
"""Facts of a shape: bytes of the header (0: the entry is empty); bytes of the record; how many of
them are on the row's page, with the pointer to overflow pages; outputs with a value, a bit each."""

END, SHIFT, MASK, CONSTANT = range(4)
"""How to get an integer: take the eight bytes before END (counted from the start of the record),
shift them left and right by SHIFT bits to keep the last ones, then `& MASK | CONSTANT`. For a
constant or missing value MASK is 0."""

helper = numba.njit(nogil=True, error_model="numpy")
inlined = numba.njit(nogil=True, error_model="numpy", forceinline=True)


@inlined
def int64_before(pages: Bytes, end: int) -> int:
    """The eight bytes before an index as a big-endian integer; LLVM makes one load of them."""
    begin, value = np.uint64(end - 8), np.uint64(0)
    for i in range(8):
        value = value << np.uint64(8) | np.uint64(pages[begin + np.uint64(i)])
    return np.int64(value)


@inlined
def write_int64(content: Bytes, begin: int, value: int) -> None:
    """Write an integer as eight big-endian bytes; LLVM makes one store of them."""
    start, number = np.uint64(begin), np.uint64(value)
    for i in range(8):
        content[start + np.uint64(i)] = np.uint8(number >> np.uint64(56 - 8 * i))


@inlined
def byteswapped(value: int) -> int:
    """An integer with its eight bytes in reverse order."""
    remaining, result = np.uint64(value), np.uint64(0)
    for _ in range(8):
        result = result << np.uint64(8) | remaining & np.uint64(255)
        remaining = remaining >> np.uint64(8)
    return np.int64(result)


@inlined
def varint(pages: Bytes, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer of up to 8 bytes and the index behind it.

    The index is beyond `end` if the integer does not end before it or has 9 bytes.
    """
    value = np.int64(0)
    for index in range(at, min(at + 8, end)):
        byte = np.int64(pages[index])
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, index + 1
    return np.int64(0), end + 1


@inlined
def cell(pages: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """A cell's record size, rowid and record start; or `UNUSUAL` as the start.

    The start is given only if all of the record's header lies before `end`.
    """
    payload, at = varint(pages, at, end)
    rowid, start = varint(pages, at, end)
    length = np.int64(pages[start]) if start < end else np.int64(0)
    if length < 1 or length > min(MOST_HEADER, end - start):
        return np.int64(0), np.int64(0), UNUSUAL
    return payload, rowid, start


@inlined
def last_bytes(pages: Bytes, start: int, length: int) -> int:
    """The last eight bytes of a header, or all of them where they are fewer."""
    return int64_before(pages, start + length) << max(64 - 8 * length, 0)


@inlined
def entry_of(pages: Bytes, start: int, length: int) -> int:
    """The entry of the cache of shapes for a header."""
    mixed = last_bytes(pages, start, length) ^ length
    for i in range(length >> 3):
        mixed = mixed * SPREAD ^ int64_before(pages, start + 8 * i + 8)
    return (mixed * SPREAD >> 56) & (SHAPES - 1)


@inlined
def has_shape(pages: Bytes, start: int, length: int, shapes: Shapes, shape: int) -> bool:
    """Whether a header has the very bytes from which a shape was parsed."""
    differing = shapes.facts[shape, LENGTH] ^ length
    differing |= shapes.headers[shape, length >> 3] ^ last_bytes(pages, start, length)
    for i in range(length >> 3):
        differing |= shapes.headers[shape, i] ^ int64_before(pages, start + 8 * i + 8)
    return differing == 0


@helper
def bytes_on_page(payload: int, page_size: int) -> int:
    """How many bytes of a record are on the page of its cell; the rest is on overflow pages."""
    most = page_size - 35
    if payload <= most:
        return payload
    least = (page_size - 12) * 32 // 255 - 23
    share = least + (payload - least) % (page_size - 4)
    return share if share <= most else least


@helper
def set_integer(shapes: Shapes, shape: int, output: int, kind: int, begin: int) -> bool:
    """Note how to get an integer of a serial type; whether there is a value."""
    stored, constant = NULL < kind < FLOAT, ZERO <= kind <= ONE
    width = WIDTHS[kind] if stored else 8
    shapes.integers[shape, 4 * output + END] = begin + width if stored else begin
    shapes.integers[shape, 4 * output + SHIFT] = 64 - 8 * width
    shapes.integers[shape, 4 * output + MASK] = -1 if stored else 0
    shapes.integers[shape, 4 * output + CONSTANT] = (
        0 if stored else kind - ZERO if constant else MISSING
    )
    return stored or constant


@helper
def set_text(shapes: Shapes, shape: int, text: int, kind: int, begin: int) -> bool:
    """Note where a text of a serial type is; whether there is one that is not empty."""
    shapes.text_begins[shape, text] = begin
    shapes.text_lengths[shape, text] = max(kind - FIRST_BYTES, 0) >> 1
    return shapes.text_lengths[shape, text] > 0


@helper
def set_output(
    shapes: Shapes, shape: int, outputs: Outputs, output: int, kind: int, begin: int
) -> None:
    """Note how to get the value of an output."""
    if output < outputs.integers:
        present = set_integer(shapes, shape, output, kind, begin)
    else:
        present = set_text(shapes, shape, output - outputs.integers, kind, begin)
    shapes.facts[shape, PRESENT] |= np.int64(present) << output


@helper
def is_supported(outputs: Outputs, output: int, kind: int) -> bool:
    """Whether values of a serial type are read: no number as text, nothing hard to compare."""
    if output >= outputs.integers:
        return kind == NULL or kind >= FIRST_BYTES
    return output != outputs.deciding or (kind < FIRST_BYTES and kind != FLOAT)


@helper
def parse_shape(
    pages: Bytes, start: int, payload: int, outputs: Outputs, shapes: Shapes, shape: int
) -> bool:
    """Parse the header of a record into an entry; whether everything in it is supported.

    All of the header must be on the page: see `cell`.
    """
    length, on_page = np.int64(pages[start]), bytes_on_page(payload, outputs.page_size)
    seen = 0
    shapes.facts[shape, PRESENT] = 0
    for output in range(outputs.defaults.size):
        set_output(shapes, shape, outputs, output, ABSENT, length)
    at, body, begin = start + 1, start + length, length
    column = 0
    while at < body:
        kind, at = varint(pages, at, body)
        width = WIDTHS[kind] if kind < FIRST_BYTES else (kind - FIRST_BYTES) >> 1
        output = outputs.of_column[column] if column < outputs.of_column.size else -1
        if output >= 0:
            if begin + width > on_page or not is_supported(outputs, output, kind):
                return False
            set_output(shapes, shape, outputs, output, kind, begin)
            seen |= 1 << output
        if width < 0:
            return False
        begin += width
        column += 1
    for output in range(outputs.defaults.size):
        if outputs.defaults[output] and not seen >> output & 1:
            return False
    for i in range(length >> 3):
        shapes.headers[shape, i] = int64_before(pages, start + 8 * i + 8)
    shapes.headers[shape, length >> 3] = last_bytes(pages, start, length)
    shapes.facts[shape, LENGTH] = length
    shapes.facts[shape, PAYLOAD] = payload
    shapes.facts[shape, ON_PAGE] = payload if on_page == payload else on_page + 4
    return at == body and begin == payload <= MOST_PAYLOAD and length <= on_page


@inlined
def integer(pages: Bytes, start: int, shapes: Shapes, shape: int, output: int) -> int:
    """An integer of a record, `MISSING` where there is none."""
    shift = shapes.integers[shape, 4 * output + SHIFT]
    end = start + shapes.integers[shape, 4 * output + END]
    value = int64_before(pages, end) << shift >> shift
    value &= shapes.integers[shape, 4 * output + MASK]
    return value | shapes.integers[shape, 4 * output + CONSTANT]
