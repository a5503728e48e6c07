"""Rows from the pages of a SQLite table, compiled by numba. Read DESIGN.md first.

For each page (https://www.sqlite.org/fileformat2.html, 1.6), rows are located first; then each
output column is copied. Loops over rows are the purpose of this module.

Nothing on a page is trusted: `decode` returns `UNUSUAL` for everything that SQLite does not write
itself and for everything that this module does not support. It reads and writes elements of NumPy
arrays only. Machine code does not check their bounds; DESIGN.md shows for each why it is within
bounds, and the tests run a build that does check them.
"""

from __future__ import annotations

import numpy as np

from rankscope.sources.columns.sqlite_pages.layout import (
    MISSING,
    UNUSUAL,
    Bytes,
    Integers,
    Outputs,
    Shapes,
    Target,
)
from rankscope.sources.columns.sqlite_pages.shapes import (
    ON_PAGE,
    PAYLOAD,
    PRESENT,
    byteswapped,
    cell,
    entry_of,
    has_shape,
    helper,
    inlined,
    int64_before,
    integer,
    parse_shape,
    write_int64,
)

LEAF = 13
"""Type of a leaf page of a table, the first byte of the page."""

INLINE = 12
"""A text of at most this many bytes is stored in its Arrow view, a longer one in a buffer."""

START, SHAPE, ROWID = range(3)
"""Facts of a located row: index of its record in `pages`, entry of its shape, its rowid."""


@inlined
def is_among(value: int, others: Integers) -> bool:
    """Whether `others` has `value`."""
    index = 0
    while index < others.size and others[index] != value:
        index += 1
    return index < others.size


@inlined
def fill(column: Integers, begin: int, end: int, value: int) -> None:
    """Set some elements of a column."""
    for index in range(begin, end):
        column[index] = value


@inlined
def skip_rows(column: Integers, output: int, target: Target, kept: int, rows: int) -> None:
    """Append the located rows to an output for which none of them has a value."""
    width = 1 if output < target.values.shape[0] else 2
    if target.missing[output] < kept:
        fill(column, width * kept, width * (kept + rows), MISSING if width == 1 else 0)
    target.missing[output] += rows


@inlined
def write_skipped(column: Integers, output: int, target: Target, kept: int) -> None:
    """Write what `skip_rows` left out while an output had no value at all."""
    width = 1 if output < target.values.shape[0] else 2
    if target.missing[output] == kept:
        fill(column, 0, width * kept, MISSING if width == 1 else 0)


@inlined
def copy_integers(
    pages: Bytes, shapes: Shapes, output: int, target: Target, kept: int, rows: int
) -> None:
    """Append the integers of the located rows to an output."""
    column = target.values[output]
    missing = 0
    for row in range(rows):
        start, shape = target.rows[START, row], target.rows[SHAPE, row]
        value = integer(pages, start, shapes, shape, output)
        missing += value == MISSING
        column[kept + row] = value
    target.missing[output] += missing


@inlined
def copy_text(
    pages: Bytes, begin: int, length: int, views: Integers, row: int, content: Bytes, used: int
) -> int:
    """Write the view of a text, and a long one's bytes behind those used; how many are used then.

    The layout of a view is https://arrow.apache.org/docs/format/Columnar.html,
    "Variable-size Binary View Layout".
    """
    first = last = np.int64(0)
    if length > INLINE:
        first = byteswapped(int64_before(pages, begin + 8))
        for i in range(8, length, 8):
            write_int64(content, used + i - 8, int64_before(pages, begin + i))
        write_int64(content, used + length - 8, int64_before(pages, begin + length))
        views[2 * row] = length | first << 32
        views[2 * row + 1] = used << 32
        return used + length
    if length > 0:
        count = min(length, 8)
        first = byteswapped(int64_before(pages, begin + count) << (64 - 8 * count))
    if length > 8:
        last = byteswapped(int64_before(pages, begin + length) << (128 - 8 * length))
    views[2 * row] = length | first << 32
    views[2 * row + 1] = (first >> 32) & 0xFFFFFFFF | last << 32
    return used


@inlined
def copy_texts(
    pages: Bytes, shapes: Shapes, output: int, target: Target, kept: int, rows: int
) -> bool:
    """Append the texts of the located rows to an output; whether there is room."""
    text = output - target.values.shape[0]
    views, content, used = target.views[text], target.contents[text], target.used[text]
    missing = 0
    for row in range(rows):
        shape = target.rows[SHAPE, row]
        begin = target.rows[START, row] + shapes.text_begins[shape, text]
        length = shapes.text_lengths[shape, text]
        if used + length > content.size:
            return False
        used = copy_text(pages, begin, length, views, kept + row, content, used)
        missing += length == 0
    target.used[text] = used
    target.missing[output] += missing
    return True


@helper
def copy_rows(
    pages: Bytes,
    outputs: Outputs,
    shapes: Shapes,
    target: Target,
    kept: int,
    rows: int,
    present: int,
) -> bool:
    """Append the located rows to all outputs; whether there is room.

    Args:
        pages: as `decode` has them.
        outputs: the same.
        shapes: the same, with the shapes of the located rows.
        target: the same; the located rows are in its `rows`.
        kept: how many rows each output has already.
        rows: how many rows are located.
        present: a bit for each output that has a value in at least one of them.
    """
    for output in range(outputs.defaults.size):
        is_integer = output < outputs.integers
        column = target.values[output] if is_integer else target.views[output - outputs.integers]
        if output == outputs.rowid:
            for row in range(rows):
                column[kept + row] = target.rows[ROWID, row]
        elif not present >> output & 1:
            skip_rows(column, output, target, kept, rows)
        else:
            write_skipped(column, output, target, kept)
            if is_integer:
                copy_integers(pages, shapes, output, target, kept, rows)
            elif not copy_texts(pages, shapes, output, target, kept, rows):
                return False
    return True


@inlined
def decode(pages: Bytes, outputs: Outputs, shapes: Shapes, target: Target) -> int:
    """How many rows of leaf pages were kept; or `UNUSUAL`.

    Args:
        pages: whole leaf pages, one after the other.
        outputs: the columns to read of their table.
        shapes: as an earlier call for the same outputs left them, or empty.
        target: gets the rows that are kept. Too little room is `UNUSUAL`.
    """
    target.used[:] = 0
    target.missing[:] = 0
    room = min(target.values.shape[1], target.views.shape[1] >> 1)
    kept = 0
    for page in range(pages.size // outputs.page_size):
        base = page * outputs.page_size
        end = base + outputs.page_size
        count = np.int64(pages[base + 3]) << 8 | np.int64(pages[base + 4])
        lowest = base + 8 + 2 * count
        fits = lowest <= end and count <= target.rows.shape[1] and kept + count <= room
        if pages[base] != LEAF or not fits:
            return UNUSUAL
        rows = present = 0
        for pointer in range(base + 8, lowest, 2):
            at = base + (np.int64(pages[pointer]) << 8 | np.int64(pages[pointer + 1]))
            payload, rowid, start = cell(pages, at if at >= lowest else end, end)
            if start < 0:
                return UNUSUAL
            length = np.int64(pages[start])
            shape = entry_of(pages, start, length)
            if not has_shape(pages, start, length, shapes, shape):
                # The new shape may take the entry of one that located rows have.
                copied = copy_rows(pages, outputs, shapes, target, kept, rows, present)
                if not copied or not parse_shape(pages, start, payload, outputs, shapes, shape):
                    return UNUSUAL
                kept += rows
                rows = present = 0
            facts = shapes.facts
            if payload != facts[shape, PAYLOAD] or start + facts[shape, ON_PAGE] > end:
                return UNUSUAL
            if outputs.deciding >= 0:
                decided = integer(pages, start, shapes, shape, outputs.deciding)
                if not is_among(decided, outputs.kept_values):
                    continue
            target.rows[START, rows] = start
            target.rows[SHAPE, rows] = shape
            target.rows[ROWID, rows] = rowid
            present |= facts[shape, PRESENT]
            rows += 1
        if not copy_rows(pages, outputs, shapes, target, kept, rows, present):
            return UNUSUAL
        kept += rows
    return kept
