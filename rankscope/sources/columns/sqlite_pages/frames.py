"""Frames out of leaf pages of a SQLite table: which of its columns, and what they become.

The rows themselves are decoded by `sqlite_cells`, straight into the buffers that Arrow keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.text import strings

if TYPE_CHECKING:
    import pyarrow as pa

MISSING = -(2**63)
"""Stands for what is no integer, as in `sqlite_cells`."""

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


@dataclass(frozen=True, slots=True)
class Plan:
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
    def of(cls, table: Layout, wanted: ColumnRequest) -> Plan:
        """The plan for some columns of a table; raises `Unusual` for what only SQLite can do."""
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


class Decoder:
    """Makes frames of pages of a table; what it learned of its rows it knows for the next."""

    def __init__(self, cells: ModuleType, plan: Plan, page_size: int, most: int) -> None:
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
