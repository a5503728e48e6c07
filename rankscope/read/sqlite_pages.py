"""Tables of a SQLite file read from its pages: several times as fast as through SQLite.

Only what SQLite reads as well, to the same values, is read here; for anything else, a damaged
page or a file that was cut included, `Unusual` is raised and SQLite has to say what stands there.
The file is read in pieces (no memory map: a file that shrinks would kill the process).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.read.text import strings
from rankscope.read.wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 2**23
"""How much is read and decoded at once."""

DEEPEST = 20
"""Levels of a tree, as SQLite allows them."""

INTERIOR, LEAF = 5, 13
MISSING = -(2**63)
LOCK_BYTE = 2**30
HEADER_BYTES = 100
UTF8 = 1

NUMBERS = ("INT", "CHAR", "CLOB", "TEXT", "BLOB", "REAL", "FLOA", "DOUB")
"""What SQLite looks for in a declared type, in its order; the first three groups keep integers."""

Integers = NDArray[np.int64]


class Unusual(Exception):
    """Nothing for this reader."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column of a table is declared."""

    place: int
    keeps_integers: bool  # not turned into reals
    rowid: bool
    filled: bool  # rows that were there before it have a value


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a table begins, and its columns by name."""

    root: int
    columns: dict[str, Column]

    @classmethod
    def of(cls, declared: pl.DataFrame) -> Layout:
        """The layout of a table by what SQLite says of its columns (`pragma table_xinfo`)."""
        alias = declared["pk"].sum() == 1
        return cls(
            root=int(declared["rootpage"][0]),
            columns={
                row["c"]: Column(
                    place=row["cid"],
                    keeps_integers=_keeps_integers(row["declared"]),
                    rowid=bool(alias and row["pk"] and row["declared"].upper() == "INTEGER"),
                    filled=bool(row["filled"]),
                )
                for row in declared.iter_rows(named=True)
            },
        )


@cache
def compiled() -> ModuleType | None:
    """The compiled part, None where it cannot be had (nowhere to keep it, no numba)."""
    try:
        from rankscope.read import sqlite_cells
    except Exception:  # numba, the disk, or what another version of numba left there
        return None
    return sqlite_cells if sqlite_cells.COMPILED else None


class PagedFile:
    """A SQLite file that nobody writes to; raises `Unusual` wherever it is not plain."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise Unusual from error
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def pieces(
        self,
        table: Layout,
        wanted: Wanted,
        least: int = 0,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """Some columns piece by piece, a piece being some pages in the order of the rows.

        With each comes how many rows its pages hold. There is at least one; only pages of those
        `chosen` by their numbers from 0 are read. A table of fewer bytes than `least` is
        `Unusual` as well.
        """
        plan = _Plan.of(table, wanted)
        leaves = self._leaves(table.root)
        cells = compiled() if leaves.size * self._page_size >= least else None
        if cells is None:
            raise Unusual
        most = max(1, PIECE_BYTES // self._page_size)
        buffer = np.empty(min(most, leaves.size) * self._page_size, np.uint8)
        decoder = _Decoder(cells, plan, self._page_size, buffer.size)
        firsts = range(0, leaves.size, most)
        for piece in range(len(firsts)) if chosen is None else chosen:
            numbers = leaves[firsts[piece] :][:most]
            pages = buffer[: numbers.size * self._page_size]
            self._fill(numbers, pages)
            yield decoder.rows(pages, alone=leaves.size == 1)

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


@dataclass(frozen=True, slots=True)
class _Plan:
    """What goes where while rows are decoded; a slot is a column that is wanted."""

    names: list[str]  # of slots
    integers: int  # of them, first
    unwanted: set[str]  # needed to decide only
    raw: set[str]
    slots: Integers
    rowid_slot: int
    filled: NDArray[np.bool_]
    only_slot: int
    only: Integers

    @classmethod
    def of(cls, table: Layout, wanted: Wanted) -> _Plan:
        only, integers = wanted.only, wanted.integers
        extra = [only[0]] if only is not None and only[0] not in integers else []
        numbers = [*integers, *extra]
        names = [*numbers, *wanted.text, *wanted.raw]
        if not names or not table.columns.keys() >= {*names}:
            raise Unusual
        columns = [table.columns[name] for name in names]
        places = [column.place for column in columns]
        if len({*names}) < len(names) or (only is not None and MISSING in only[1]):
            raise Unusual
        if not all(table.columns[name].keeps_integers for name in numbers):
            raise Unusual
        if any(column.rowid for column in columns[len(numbers) :]):
            raise Unusual
        only_slot = -1 if only is None else names.index(only[0])
        rowid_slot = next((slot for slot, each in enumerate(columns) if each.rowid), -1)
        if only_slot >= 0 and only_slot == rowid_slot:
            raise Unusual
        slots = np.full(max(places, default=-1) + 1, -1, np.int64)
        slots[places] = np.arange(len(places))
        return cls(
            names=names,
            integers=len(numbers),
            unwanted={*extra},
            raw={*wanted.raw},
            slots=slots,
            rowid_slot=rowid_slot,
            filled=np.array([column.filled for column in columns], np.bool_),
            only_slot=only_slot,
            only=np.array([] if only is None else only[1], np.int64),
        )


class _Decoder:
    """Makes frames of pages of a table; what it learned of its rows it knows for the next."""

    def __init__(self, cells: ModuleType, plan: _Plan, page_size: int, most: int) -> None:
        """Frames of at most so many bytes of pages."""
        count = len(plan.names)
        if count > cells.MOST_SLOTS:
            raise Unusual
        self._cells, self._plan, self._page_size = cells, plan, page_size
        self._slots = cells.Slots(
            page_size,
            plan.slots,
            plan.integers,
            plan.filled,
            plan.rowid_slot,
            plan.only_slot,
            plan.only,
        )
        self._forms = cells.Forms.none(count)
        self._contents = np.empty((count, most), np.uint8)  # of which only what is used takes room
        self._target = cells.Target(
            columns=np.zeros(count, np.int64),
            contents=self._contents.ctypes.data + most * np.arange(count),
            used=np.zeros(count, np.int64),
            missing=np.zeros(count, np.int64),
            most=most,
            cells=np.empty((3, page_size // 6), np.int64),
        )

    def rows(self, pages: NDArray[np.uint8], alone: bool) -> tuple[int, pl.DataFrame]:
        """How many rows leaf pages hold, and those to keep; only one `alone` may be empty."""
        import pyarrow as pa

        by_page = pages.reshape(-1, self._page_size)
        counts = by_page[:, 3].astype(np.int64) << 8 | by_page[:, 4]
        if counts.max() > self._page_size // 6 or (counts.min() == 0 and not alone):
            raise Unusual
        plan, target, height = self._plan, self._target, int(counts.sum())
        buffers = [
            pa.allocate_buffer(height * (8 if slot < plan.integers else 16))
            for slot in range(len(plan.names))
        ]
        target.columns[:] = [buffer.address for buffer in buffers]
        kept = self._cells.decode(pages, self._slots, self._forms, target)
        if kept < 0:
            raise Unusual
        columns = []
        for slot, (name, buffer) in enumerate(zip(plan.names, buffers, strict=True)):
            missing, content = target.missing[slot], self._contents[slot, : target.used[slot]]
            if name in plan.unwanted:
                continue
            if missing == kept:
                kind = pl.Int64 if slot < plan.integers else pl.Binary
                column = pl.Series(name, [None], kind).new_from_index(0, kept)
            elif slot < plan.integers:
                column = _numbers(name, buffer, kept, missing)
            else:
                column = _texts(name, buffer, content, kept, missing)
            text = slot >= plan.integers and name not in plan.raw
            columns.append(strings(column) if text else column)
        return height, pl.DataFrame(columns)


def _keeps_integers(declared: str) -> bool:
    """Whether integers in a column declared so are told as integers, and compare as such.

    A column of reals tells them as reals, one of text compares them as text
    (https://www.sqlite.org/datatype3.html, 3.1).
    """
    found = next((word for word in NUMBERS if word in declared.upper()), "")
    return found in ("INT", "BLOB", "")


def _numbers(name: str, buffer: pa.Buffer, rows: int, missing: int) -> pl.Series:
    import pyarrow as pa

    values = np.frombuffer(buffer, np.int64, rows)
    known = _bits(values != MISSING) if missing else None
    return pl.Series(
        name, pa.Array.from_buffers(pa.int64(), rows, [known, _fitting(values, buffer)])
    )


def _texts(
    name: str, buffer: pa.Buffer, content: NDArray[np.uint8], rows: int, missing: int
) -> pl.Series:
    import pyarrow as pa

    views = np.frombuffer(buffer, np.int64, 2 * rows)
    known = _bits(views[::2] != 0) if missing else None
    parts = [known, _fitting(views, buffer), _lasting(content)]
    return pl.Series(name, pa.Array.from_buffers(pa.binary_view(), rows, parts))


def _bits(known: NDArray[np.bool_]) -> pa.Buffer:
    return _lasting(np.packbits(known, bitorder="little"))


def _fitting(values: Integers, buffer: pa.Buffer) -> pa.Buffer:
    """The buffer of some values, or a smaller one if they leave most of it empty."""
    return buffer if 2 * values.nbytes > buffer.size else _lasting(values)


def _lasting(values: NDArray[Any]) -> pa.Buffer:
    """A copy where Arrow keeps its own: between numpy's short-lived ones it would scatter them."""
    import pyarrow as pa

    buffer = pa.allocate_buffer(values.nbytes)
    np.frombuffer(buffer, values.dtype)[:] = values
    return buffer
