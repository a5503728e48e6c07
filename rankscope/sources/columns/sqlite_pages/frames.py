"""Frames from leaf pages of a SQLite table: which columns to read, and series of them.

`decode` of `records` reads the rows themselves, into arrays that this module allocates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.model.arrays import known_if
from rankscope.model.frames import framed
from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite_pages.layout import (
    MISSING,
    MOST_OUTPUTS,
    Decode,
    Integers,
    Outputs,
    Shapes,
    Target,
)
from rankscope.sources.columns.text import strings

if TYPE_CHECKING:
    import pyarrow as pa

AFFINITIES = ("INT", "CHAR", "CLOB", "TEXT", "BLOB", "REAL", "FLOA", "DOUB")
"""Substrings of a declared type by which SQLite finds a column's affinity, in its order."""

KEEP_INTEGERS = ("INT", "BLOB", "")
"""Affinities ("": none) whose columns return an integer as an integer."""


class Unusual(Exception):
    """SQLite has to read this; the message says why."""


class Column(Struct, frozen=True):
    """How a column of a table is declared.

    Attributes:
        position: Its number in the table, from 0.
        keeps_integers: Integers are returned as integers, not as reals or texts.
        is_rowid: It is an alias of the rowid (INTEGER PRIMARY KEY).
        has_default: Rows older than the column have a value in it.
    """

    position: int
    keeps_integers: bool
    is_rowid: bool
    has_default: bool


class TableLayout(Struct, frozen=True):
    """The number of a table's root page, and its columns by name."""

    root: int
    columns: dict[str, Column]

    @classmethod
    def of(cls, declared: list[dict[str, Any]]) -> TableLayout:
        """The layout of a table by what SQLite says of its columns.

        Args:
            declared: `pragma table_xinfo`, a row per column: column, rootpage, cid, declared (its
                type), pk, has_default.
        """
        single_key = sum(row["pk"] for row in declared) == 1
        return cls(
            root=declared[0]["rootpage"],
            columns={
                row["column"]: Column(
                    position=row["cid"],
                    keeps_integers=_keeps_integers(row["declared"]),
                    is_rowid=bool(
                        single_key and row["pk"] and row["declared"].upper() == "INTEGER"
                    ),
                    has_default=bool(row["has_default"]),
                )
                for row in declared
            },
        )


class Plan(Struct, frozen=True):
    """The outputs of a read, integers first; the numbers are those of `layout.Outputs`.

    Attributes:
        names: Of the columns.
        integers: How many of them are integers.
        helping: Names of columns that only decide which rows are kept.
        raw: Names of columns that are read as bytes.
        of_column: For each column of the table up to the last selected its output, or -1.
        rowid: The output that gets the rowid, or -1.
        defaults: Per output whether older rows have a value.
        deciding: The output that decides which rows are kept, or -1.
        kept_values: Its values in rows to keep.
    """

    names: list[str]
    integers: int
    helping: set[str]
    raw: set[str]
    of_column: Integers
    rowid: int
    defaults: NDArray[np.bool_]
    deciding: int
    kept_values: Integers

    @classmethod
    def of(cls, table: TableLayout, request: ColumnRequest) -> Plan:
        """The plan of a request; raises `Unusual` for what only SQLite can do."""
        only, integers = request.only, request.integers
        extra = [only[0]] if only is not None and only[0] not in integers else []
        numbers = [*integers, *extra]
        names = [*numbers, *request.text, *request.raw]
        if not names or not table.columns.keys() >= {*names} or len({*names}) < len(names):
            raise Unusual("no column, an unknown column or one column twice is selected")
        columns = [table.columns[name] for name in names]
        if not all(column.keeps_integers for column in columns[: len(numbers)]):
            raise Unusual("a column does not return integers as integers")
        if any(column.is_rowid for column in columns[len(numbers) :]):
            raise Unusual("the rowid is selected as text")
        deciding = -1 if only is None else names.index(only[0])
        rowid = next((output for output, each in enumerate(columns) if each.is_rowid), -1)
        if only is not None and (MISSING in only[1] or deciding == rowid):
            raise Unusual("rows are selected by the rowid or by the value that stands for NULL")
        positions = [column.position for column in columns]
        of_column = np.full(max(positions) + 1, -1, np.int64)
        of_column[positions] = np.arange(len(positions))
        return cls(
            names=names,
            integers=len(numbers),
            helping={*extra},
            raw={*request.raw},
            of_column=of_column,
            rowid=rowid,
            defaults=np.array([column.has_default for column in columns], np.bool_),
            deciding=deciding,
            kept_values=np.array([] if only is None else only[1], np.int64),
        )


class Decoder:
    """Makes frames of leaf pages of one table; shapes of records stay cached between calls."""

    def __init__(self, decode: Decode, plan: Plan, page_size: int, most: int) -> None:
        """A decoder of at most this many bytes of pages at once."""
        count = len(plan.names)
        if count > MOST_OUTPUTS:
            raise Unusual("too many columns are selected")
        self._decode, self._plan, self._page_size = decode, plan, page_size
        self._outputs = Outputs(
            page_size,
            plan.of_column,
            plan.integers,
            plan.defaults,
            plan.rowid,
            plan.deciding,
            plan.kept_values,
        )
        texts = count - plan.integers
        self._shapes = Shapes.empty(plan.integers, texts)
        # `rows` replaces those that are too small. A large array takes memory only where it is
        # written to.
        self._target = Target(
            values=np.empty((plan.integers, 0), np.int64),
            views=np.empty((texts, 0), np.int64),
            contents=np.empty((texts, most), np.uint8),
            used=np.zeros(texts, np.int64),
            missing=np.zeros(count, np.int64),
            rows=np.empty((3, most_cells(page_size)), np.int64),
        )

    def rows(self, pages: NDArray[np.uint8], alone: bool) -> tuple[int, pl.DataFrame]:
        """The number of rows of some leaf pages, and the columns of those to keep.

        Raises:
            Unusual: SQLite has to read them; also an empty page, unless it is `alone` in its table.
        """
        by_page = pages.reshape(-1, self._page_size)
        counts = by_page[:, 3].astype(np.int64) << 8 | by_page[:, 4]
        if counts.max() > most_cells(self._page_size) or (counts.min() == 0 and not alone):
            raise Unusual("a page has too many cells or none")
        height = int(counts.sum())
        if height > self._target.values.shape[1]:
            self._target = self._target._replace(
                values=np.empty((self._plan.integers, height), np.int64),
                views=np.empty((len(self._target.views), 2 * height), np.int64),
            )
        kept = self._decode(pages, self._outputs, self._shapes, self._target)
        if kept < 0:
            raise Unusual("a page is damaged, or a record has something that is not supported")
        columns = [
            self._column(output, kept)
            for output, name in enumerate(self._plan.names)
            if name not in self._plan.helping
        ]
        return height, framed(columns)

    def _column(self, output: int, rows: int) -> pl.Series:
        """A decoded output of this many rows."""
        plan, target = self._plan, self._target
        name, missing = plan.names[output], int(target.missing[output])
        if output < plan.integers:
            if missing == rows:  # nothing was written
                return pl.Series(name, [None], pl.Int64).new_from_index(0, rows)
            # a copy, so that a column that is kept does not keep the others in memory
            return _integers(name, target.values[output, :rows].copy(), missing)
        text = output - plan.integers
        if missing == rows:
            column = pl.Series(name, [None], pl.Binary).new_from_index(0, rows)
        else:
            content = target.contents[text, : target.used[text]]
            column = _texts(name, target.views[text, : 2 * rows], content, missing)
        return column if name in plan.raw else strings(column)


def most_cells(page_size: int) -> int:
    """Most cells of a page: each has 4 bytes and a pointer of 2, behind a page header of 8."""
    return (page_size - 8) // 6


def _keeps_integers(declared: str) -> bool:
    """Whether integers in a column of this declared type are returned and compared as integers.

    A column of reals returns them as reals, one of text compares them as text
    (https://www.sqlite.org/datatype3.html, 3.1).
    """
    affinity = next((word for word in AFFINITIES if word in declared.upper()), "")
    return affinity in KEEP_INTEGERS


def _integers(name: str, values: Integers, missing: int) -> pl.Series:
    column = pl.Series(name, values)  # polars takes the array itself
    return known_if(column, values != MISSING) if missing else column


def _texts(name: str, views: Integers, content: NDArray[np.uint8], missing: int) -> pl.Series:
    import pyarrow as pa

    valid = np.packbits(views[::2] != 0, bitorder="little") if missing else None
    buffers = [None if each is None else _copied(each) for each in (valid, views, content)]
    return pl.Series(name, pa.Array.from_buffers(pa.binary_view(), len(views) // 2, buffers))


def _copied(values: NDArray[Any]) -> pa.Buffer:
    """A copy in Arrow's memory, which the series will keep."""
    import pyarrow as pa

    buffer = pa.allocate_buffer(values.nbytes)
    np.frombuffer(buffer, values.dtype)[:] = values
    return buffer
