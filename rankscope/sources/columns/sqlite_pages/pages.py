"""Tables of a SQLite file read from its pages: several times as fast as through SQLite.

Only what SQLite reads as well, to the same values, is read here; for anything else, a damaged
page or a file that was cut included, `Unusual` is raised and SQLite has to say what stands there.
The file is read in pieces (no memory map: a file that shrinks would kill the process).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite_pages.frames import Decoder, Plan, TableLayout, Unusual

PIECE_BYTES = 2**24
"""How much is read and decoded at once."""

DEEPEST = 20
"""Levels of a tree, as SQLite allows them."""

INTERIOR, LEAF = 5, 13
LOCK_BYTE = 2**30
HEADER_BYTES = 100
UTF8 = 1

Integers = NDArray[np.int64]

Got = TypeVar("Got")


def _ahead(get: Callable[[int], Got], numbers: Iterable[int]) -> Iterator[Got]:
    """What `get` gives of each number, the next while the one before is being looked at."""
    with ThreadPoolExecutor(1) as reader:
        coming: Future[Got] | None = None
        for number in numbers:
            following = reader.submit(get, number)
            if coming is not None:
                yield coming.result()
            coming = following
        if coming is not None:
            yield coming.result()


class PagedFile:
    """A SQLite file that nobody writes to; raises `Unusual` wherever it is not plain."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise Unusual from error
        self._finalizer = weakref.finalize(self, os.close, self._file)
        self._known: dict[int, Integers] = {}  # by the root of a table its leaves
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file, as else happens once nobody uses this any more."""
        self._finalizer()

    def pieces(
        self,
        records: ModuleType,
        table: TableLayout,
        wanted: ColumnRequest,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """Some columns piece by piece, a piece being some pages in the order of the rows.

        With each comes how many rows its pages hold. There is at least one; only pages of those
        `chosen` by their numbers from 0 are read. `records` is the module that decodes them.
        """
        plan = Plan.of(table, wanted)
        if table.root not in self._known:
            self._known[table.root] = self._leaves(table.root)
        leaves = self._known[table.root]
        most = max(1, PIECE_BYTES // self._page_size)
        buffer = np.empty(min(most, leaves.size) * self._page_size, np.uint8)
        decoder = Decoder(records, plan, self._page_size, buffer.size)
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
        there = os.fstat(self._file).st_size // self._page_size if self._page_size else 0
        vouched = stated != 0 and head[24:28] == head[92:96]
        self._pages = stated if vouched else there
        plain = (
            self._page_size in (512 << shift for shift in range(8))
            and head[18:20] == b"\x01\x01"  # not in WAL mode
            and head[20] == 0  # no space reserved for an extension, such as encryption
            and int.from_bytes(head[56:60]) == UTF8
            and self._pages <= there
        )
        if not plain:
            raise Unusual

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
                raise Unusual
            if (ordered[1:] == ordered[:-1]).any():
                raise Unusual
            seen[ordered] = True
            if self._page(level[0])[0] == LEAF:
                return level  # that the others are leaves as well is seen when they are read
            level = np.concatenate([self._children(number) for number in level])
        raise Unusual

    def _children(self, number: int) -> Integers:
        page = self._page(number)
        cells = int.from_bytes(page[3:5])
        if page[0] != INTERIOR or not 0 < cells <= (self._page_size - 12) // 7:
            raise Unusual
        pointers = np.frombuffer(page, ">u2", cells, 12).astype(np.int64)
        if pointers.min() < 12 + 2 * cells or pointers.max() > self._page_size - 5:
            raise Unusual
        content = np.frombuffer(page, np.uint8)
        children = content[pointers[:, None] + np.arange(4)].copy().view(">u4").ravel()
        return np.append(children.astype(np.int64), int.from_bytes(page[8:12]))

    def _page(self, number: int) -> bytes:
        return self._bytes((int(number) - 1) * self._page_size, self._page_size)

    def _bytes(self, at: int, length: int) -> bytes:
        try:
            content = os.pread(self._file, length, at)
        except OSError as error:
            raise Unusual from error
        if len(content) < length:
            raise Unusual
        return content

    def _fill(self, numbers: Integers, pages: NDArray[np.uint8]) -> None:
        """Read pages, neighbours at once."""
        borders = np.flatnonzero(np.diff(numbers) != 1) + 1
        begins, ends = [0, *borders.tolist()], [*borders.tolist(), numbers.size]
        for begin, end in zip(begins, ends, strict=True):
            into = pages[begin * self._page_size : end * self._page_size]
            try:
                got = os.preadv(
                    self._file, [into.data], (int(numbers[begin]) - 1) * self._page_size
                )
            except OSError as error:
                raise Unusual from error
            if got < into.size:
                raise Unusual
