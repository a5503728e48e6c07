"""Tables of a SQLite file read from its pages, several times as fast as through SQLite.

The values are those that SQLite returns. For everything else, including damaged pages and
truncated files, `Unusual` is raised and SQLite has to read: see DESIGN.md. The file is read in
chunks, not through a memory map: a file that shrinks would kill the process.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.limits import USUAL
from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite_pages.frames import Decoder, Plan, TableLayout, Unusual
from rankscope.sources.columns.sqlite_pages.layout import Decode

DEEPEST = 20
"""Most levels of a tree that SQLite allows."""

INTERIOR, LEAF = 5, 13
"""Types of the pages of a table, the first byte of a page."""

LOCK_BYTE = 2**30
"""Offset of the byte that locks the file; SQLite never uses the page that it is in."""

HEADER_BYTES = 100
"""Bytes of the file header."""

UTF8 = 1
"""The text encoding in the file header."""

Integers = NDArray[np.int64]

Item = TypeVar("Item")


def _ahead(get: Callable[[int], Item], numbers: Sequence[int]) -> Iterator[Item]:
    """The result of `get` for each number; a thread gets the next while the caller works."""
    if len(numbers) == 1:
        yield get(numbers[0])
        return
    with ThreadPoolExecutor(1) as reader:
        coming: Future[Item] | None = None
        for number in numbers:
            following = reader.submit(get, number)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


class PagedFile:
    """A SQLite file that nobody writes to; raises `Unusual` where SQLite has to read it."""

    def __init__(self, path: Path, piece_bytes: int = USUAL.piece_bytes) -> None:
        """Open it; `piece_bytes` is the size of a chunk."""
        self._piece_bytes = piece_bytes
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise Unusual(str(error)) from error
        self._finalizer = weakref.finalize(self, os.close, self._file)
        self._leaves_by_root: dict[int, Integers] = {}
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; otherwise it is closed when this object is collected."""
        self._finalizer()

    def pieces(
        self,
        decode: Decode,
        table: TableLayout,
        wanted: ColumnRequest,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """Selected columns in chunks of pages, in the order of the rows; at least one chunk.

        Args:
            decode: the compiled function.
            table: the layout of the table.
            wanted: the columns, and the rows to keep.
            chosen: numbers of the chunks to read, from 0; None: all of them.

        Yields:
            The number of rows on the pages of a chunk, and the columns of those to keep.
        """
        plan = Plan.of(table, wanted)
        if table.root not in self._leaves_by_root:
            self._leaves_by_root[table.root] = self._leaves(table.root)
        leaves = self._leaves_by_root[table.root]
        most = max(1, self._piece_bytes // self._page_size)
        buffer = np.empty(min(most, leaves.size) * self._page_size, np.uint8)
        decoder = Decoder(decode, plan, self._page_size, buffer.size)
        firsts = range(0, leaves.size, most)

        def piece(number: int) -> tuple[int, pl.DataFrame]:
            numbers = leaves[firsts[number] :][:most]
            pages = buffer[: numbers.size * self._page_size]
            self._fill(numbers, pages)
            return decoder.rows(pages, alone=leaves.size == 1)

        yield from _ahead(piece, range(len(firsts)) if chosen is None else chosen)

    def _read_header(self) -> None:
        head = self._bytes(0, HEADER_BYTES)
        size = int.from_bytes(head[16:18])
        self._page_size = 65536 if size == 1 else size
        stated = int.from_bytes(head[28:32])
        in_file = os.fstat(self._file).st_size // self._page_size if self._page_size else 0
        is_valid = stated != 0 and head[24:28] == head[92:96]
        self._pages = stated if is_valid else in_file
        plain = (
            self._page_size in (512 << shift for shift in range(8))
            and head[18:20] == b"\x01\x01"  # not in WAL mode
            and head[20] == 0  # no space reserved for an extension, such as encryption
            and int.from_bytes(head[56:60]) == UTF8
            and self._pages <= in_file
        )
        if not plain:
            raise Unusual("the file is in WAL mode, encrypted, not UTF-8 or truncated")

    def _leaves(self, root: int) -> Integers:
        """Numbers of a table's leaf pages in the order of its rows."""
        seen = np.zeros(self._pages + 1, np.bool_)
        seen[:2] = True  # the first page holds the schema
        if LOCK_BYTE // self._page_size < self._pages:
            seen[LOCK_BYTE // self._page_size + 1] = True
        level = np.array([root])
        for _ in range(DEEPEST):
            ordered = np.sort(level)
            if ordered[0] < 0 or ordered[-1] > self._pages or seen[ordered].any():
                raise Unusual("a page of a tree does not exist or is in use")
            if (ordered[1:] == ordered[:-1]).any():
                raise Unusual("a page is twice in a tree")
            seen[ordered] = True
            if self._page(level[0])[0] == LEAF:
                return level  # `decode` checks that the others are leaves as well
            level = np.concatenate([self._children(number) for number in level])
        raise Unusual("a tree is too deep")

    def _children(self, number: int) -> Integers:
        page = self._page(number)
        cells = int.from_bytes(page[3:5])
        if page[0] != INTERIOR or not 0 < cells <= (self._page_size - 12) // 7:
            raise Unusual("a page of a tree is damaged")
        pointers = np.frombuffer(page, ">u2", cells, 12).astype(np.int64)
        if pointers.min() < 12 + 2 * cells or pointers.max() > self._page_size - 5:
            raise Unusual("a page of a tree is damaged")
        content = np.frombuffer(page, np.uint8)
        children = content[pointers[:, None] + np.arange(4)].copy().view(">u4").ravel()
        return np.append(children.astype(np.int64), int.from_bytes(page[8:12]))

    def _page(self, number: int) -> bytes:
        return self._bytes((int(number) - 1) * self._page_size, self._page_size)

    def _bytes(self, at: int, length: int) -> bytes:
        try:
            content = os.pread(self._file, length, at)
        except OSError as error:
            raise Unusual(str(error)) from error
        if len(content) < length:
            raise Unusual("the file is truncated")
        return content

    def _fill(self, numbers: Integers, pages: NDArray[np.uint8]) -> None:
        """Read pages, consecutive ones with one call."""
        borders = np.flatnonzero(np.diff(numbers) != 1) + 1
        begins, ends = [0, *borders.tolist()], [*borders.tolist(), numbers.size]
        for begin, end in zip(begins, ends, strict=True):
            into = pages[begin * self._page_size : end * self._page_size]
            try:
                at = (int(numbers[begin]) - 1) * self._page_size
                count = os.preadv(self._file, [into.data], at)
            except OSError as error:
                raise Unusual(str(error)) from error
            if count < into.size:
                raise Unusual("the file is truncated")
