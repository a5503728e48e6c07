"""Columns of SQLite files, fast and without trusting their content.

Large ordinary files are read by `sqlite_pages`, all others by ADBC's driver (columnar, streaming,
maintained by the Arrow project), to the same frames. The driver infers a column's type from the
first rows, and fails at a value of another type. If an integer column contains one, it is selected
once more, with a number in place of everything that is no integer. Text may contain NULs or bytes
that are not UTF-8, so it is selected as bytes, never null.
"""

from __future__ import annotations

import os
import shlex
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.model.frames import framed, with_series
from rankscope.model.limits import USUAL, Limits
from rankscope.sources.columns.request import ColumnRequest, Columns, export_again
from rankscope.sources.columns.sqlite_pages.frames import TableLayout, Unusual
from rankscope.sources.columns.sqlite_pages.loader import compiled
from rankscope.sources.columns.sqlite_pages.pages import PagedFile
from rankscope.sources.columns.text import decoded, strings, undecoded
from rankscope.sources.report_format import not_opened
from rankscope.util.grouping import grouped

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection, AdbcDatabase

MISSING = -(2**63)
"""Stands for NULL and for a value that is not an integer; null in the frame."""

MARK = "(to keep)"
"""An additional column: 1 in rows that `only` keeps, else 0."""

BATCH_ROWS = 2**14
"""Rows that the driver hands over at once; by default 1,024, in as many chunks of each column."""

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100

LAYOUTS = """
select cast(m.name as blob) as "table", cast(c.name as blob) as "column",
    m.rootpage, c.cid, cast(coalesce(c.type, '') as blob) as declared, c.pk, c.hidden,
    c.dflt_value is not null as has_default
from sqlite_master m, pragma_table_xinfo(m.name) c
where m.type = 'table' and m.rootpage and not exists (select 1 from pragma_index_list(m.name))
"""
"""The columns of all tables without an index that are not virtual."""

HINT = export_again("sqlite")


class _Borders(Struct, frozen=True):
    """Which rows of a table are in which chunk."""

    ends: list[int]  # rows up to the end of each chunk read from pages, after a 0
    whole: bool  # else there is one more chunk, of all rows that follow

    @property
    def paged(self) -> int:
        """The number of chunks that are read from pages."""
        return len(self.ends) - 1

    @property
    def pieces(self) -> int:
        """The number of chunks."""
        return self.paged + (not self.whole)

    def slice(self, number: int) -> tuple[int, int | None]:
        """The first row of a chunk and its number of rows, None for all that follow."""
        begin = self.ends[number]
        return begin, None if number == self.paged else self.ends[number + 1] - begin


class SQLiteColumns(Columns):
    """A SQLite file, opened read-only."""

    def __init__(self, path: Path, limits: Limits = USUAL) -> None:
        """Open it; raises `UnreadableReport` where it is not a SQLite database."""
        self.path = path
        self.limits = limits
        self._check_magic()
        # Without a journal, nobody is writing; `immutable` avoids file locks, which are slow or
        # never granted on shared file systems.
        self._quiet = quiet = not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal"))
        self._layouts: dict[str, TableLayout] | None = None
        self._pages: PagedFile | None = None
        self._borders: dict[str, _Borders] = {}
        uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro{'&immutable=1' if quiet else ''}"
        import adbc_driver_sqlite as sqlite
        from adbc_driver_manager import AdbcConnection, Error

        try:
            database = sqlite.connect(uri)
            self._connection = AdbcConnection(database)
        except (Error, OSError) as error:
            raise self._unreadable(error) from error
        self._finalizer = weakref.finalize(self, _close, self._connection, database)
        try:
            self._tables = self._read_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; otherwise it is closed when this object is collected."""
        self._finalizer()
        if self._pages is not None:
            self._pages.close()

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return self._bytes

    def has(self, table: str, *columns: str) -> bool:
        """Whether the file has `table` with all of `columns`."""
        return table in self._tables and self._tables[table].issuperset(columns)

    def chunks(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """The requested columns and rows in chunks.

        Nothing is read before the first chunk is requested. The first call that reads a table to
        its end decides which rows are in which chunk, for all columns and filters. If `chosen` is
        given before that, the table is read once more.
        """
        have = self._tables[table]
        present = replace(
            wanted,
            integers=[name for name in wanted.integers if name in have],
            text=[name for name in wanted.text if name in have],
            raw=[name for name in wanted.raw if name in have],
        )
        for frame in self._pieces(table, present, chosen):
            if have.issuperset(wanted.types):
                yield frame
                continue
            nothing = pl.Series([None]).new_from_index(0, frame.height)
            yield framed(
                frame[name] if name in have else nothing.cast(kind).alias(name)
                for name, kind in wanted.types.items()
            )

    def _pieces(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """Existing columns; the library continues where pages are unusual."""
        if table not in self._borders:
            first = self._first_pieces(table, wanted)
            if chosen is None:
                yield from first
                return
            deque(first, maxlen=0)
        borders = self._borders[table]
        left = [*(range(borders.pieces) if chosen is None else chosen)]
        try:
            for _, frame in self._from_pages(table, wanted, [n for n in left if n < borders.paged]):
                yield frame
                del left[0]
        except Unusual:  # with these columns
            pass
        if left and not borders.paged:
            yield self._from_library(table, wanted)
        elif left:
            marked = self._from_library(table, wanted, mark=True)
            for number in left:
                rows = marked.slice(*borders.slice(number))
                yield rows.filter(rows[MARK] == 1).drop(MARK)

    def _first_pieces(self, table: str, wanted: ColumnRequest) -> Iterator[pl.DataFrame]:
        """All chunks; rows that are not read from pages are one. Sets `_borders`."""
        ends, rows, whole = [0], 0, True
        try:
            for height, frame in self._from_pages(table, wanted):
                yield frame
                ends.append(ends[-1] + height)
                rows += frame.height
        except Unusual:
            whole = False
            yield self._from_library(table, wanted).slice(rows)
        self._borders[table] = _Borders(ends, whole)

    def _from_pages(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pl.DataFrame]]:
        """The number of rows of each chunk, and existing columns of the rows to keep.

        Raises `Unusual` where the library has to read.
        """
        decode = compiled() if self._quiet else None
        if decode is None:
            raise Unusual("the compiled reader is not used")
        if self._layouts is None:
            self._layouts = self._read_layouts()
        if table not in self._layouts:
            raise Unusual("it has an index, no rowid or generated columns")
        if self._pages is None:
            self._pages = PagedFile(self.path, self.limits.piece_bytes)
        yield from self._pages.pieces(decode, self._layouts[table], wanted, chosen)

    def _read_layouts(self) -> dict[str, TableLayout]:
        """Layouts of the tables that the page reader can read.

        An index, which a WITHOUT ROWID table has, too, may change the order of the rows, and the
        values of generated columns are not stored: all these are left to SQLite.
        """
        frame = self._query(LAYOUTS)
        texts = (strings(frame[name]) for name in ("table", "column", "declared"))
        rows = with_series(frame, *texts).iter_rows(named=True)
        columns = grouped((str(row["table"]), row) for row in rows)
        return {
            table: TableLayout.of(declared)
            for table, declared in columns.items()
            if not any(row["hidden"] for row in declared)
            and len({row["rootpage"] for row in declared}) == 1
        }

    def _from_library(self, table: str, wanted: ColumnRequest, mark: bool = False) -> pl.DataFrame:
        """Existing columns of the rows to keep; or of all rows, with `MARK`."""
        others = [
            f'coalesce(cast("{name}" as blob), x\'\') as "{name}"'
            for name in [*wanted.text, *wanted.raw]
        ]
        condition = "1"
        if wanted.only is not None:
            name, values = wanted.only
            condition = f'"{name}" in ({", ".join(map(str, values))})'
        if mark:
            others.append(f'({condition}) is true as "{MARK}"')
        rows = f'from "{table}"' + ("" if mark else f" where {condition}")

        def selected(integers: list[str]) -> pl.DataFrame:
            return self._query(f"select {', '.join([*integers, *others])} {rows}")

        try:
            frame = selected([f'"{name}"' for name in wanted.integers])
            plain = all(frame[name].dtype == pl.Int64 for name in wanted.integers)
        except UnreadableReport:  # a value is of another type than those before it
            plain = False
        if not plain:
            frame = selected(
                [
                    f'iif(typeof("{name}") = \'integer\', "{name}", {MISSING}) as "{name}"'
                    for name in wanted.integers
                ]
            )
        return framed(
            [
                *(_integers(frame[name]) for name in wanted.integers),
                *(decoded(frame[name]) for name in wanted.text),
                *(undecoded(frame[name]) for name in wanted.raw),
                *([frame[MARK]] if mark else []),
            ]
        )

    def _read_tables(self) -> dict[str, frozenset[str]]:
        frame = self._query(
            "select cast(m.name as blob) as t, cast(p.name as blob) as c "
            "from sqlite_master m, pragma_table_info(m.name) p where m.type = 'table'"
        )
        names: defaultdict[str, set[str]] = defaultdict(set)
        for table, name in zip(decoded(frame["t"]), decoded(frame["c"]), strict=True):
            names[str(table)].add(name)
        return {table: frozenset(columns) for table, columns in names.items()}

    def _query(self, sql: str) -> pl.DataFrame:
        from adbc_driver_manager import AdbcStatement, Error

        try:  # not by its DB-API, which imports pyarrow and its datasets
            with AdbcStatement(self._connection) as statement:
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
                statement.set_sql_query(sql)
                return pl.DataFrame(statement.execute_query()[0])
        except (Error, OSError, pl.exceptions.PolarsError) as error:
            raise self._unreadable(error) from error

    def _check_magic(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(HEADER_BYTES)
                self._bytes = size = os.fstat(file.fileno()).st_size
        except OSError as error:
            raise not_opened(self.path, error) from error
        if not head:
            raise UnreadableReport(f"{self.path}: is empty", hint=HINT)
        if head[8:12] == b"DUCK":
            raise UnreadableReport(
                f"{self.path}: is a DuckDB database, not a report",
                hint="if rankscope made it: rankscope imbalance --db "
                + shlex.quote(str(self.path)),
            )
        if not head.startswith(MAGIC):
            if self.path.suffix != ".sqlite":
                raise UnreadableReport(
                    f"{self.path}: is not a report", hint="name a folder: its reports are found"
                )
            raise UnreadableReport(
                f"{self.path}: is not an Nsight Systems .sqlite export", hint=HINT
            )
        if size < _stated_size(head):  # SQLite itself does not look at the end of the last page
            raise UnreadableReport(f"{self.path}: is truncated", hint=HINT)

    def _unreadable(self, error: Exception) -> UnreadableReport:
        text = str(error)
        reason = "is damaged or truncated" if "malformed" in text else "cannot be read as SQLite"
        return UnreadableReport(f"{self.path}: {reason}", hint=HINT)


def _integers(column: pl.Series) -> pl.Series:
    integers = column.cast(pl.Int64)
    return integers.set(integers == MISSING, None) if integers.min() == MISSING else integers


def _close(connection: AdbcConnection, database: AdbcDatabase) -> None:
    connection.close()
    database.close()


def _stated_size(header: bytes) -> int:
    """Size of the file by its header, 0 where that size is not valid."""
    page_size = int.from_bytes(header[16:18]) or 0
    pages, vouched = int.from_bytes(header[28:32]), header[24:28] == header[92:96]
    return pages * (65536 if page_size == 1 else page_size) if vouched else 0
