"""Columns out of SQLite files, fast and without trusting what stands in them.

The one place that knows what reads SQLite: `sqlite_pages` where there is much to read and a file
is plain, else ADBC's driver (columnar, streaming, and kept by the Arrow project), to the same
frames. The driver infers a column's type from the first rows, so every column is asked for as an
integer or as bytes, never null: text may hold NULs or bytes that are not UTF-8, and an integer
column may hold anything.
"""

from __future__ import annotations

import os
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite_pages.frames import TableLayout, Unusual
from rankscope.sources.columns.sqlite_pages.loader import compiled
from rankscope.sources.columns.sqlite_pages.pages import PagedFile
from rankscope.sources.columns.text import decoded, undecoded

if TYPE_CHECKING:
    from adbc_driver_manager import AdbcConnection, AdbcDatabase

MISSING = -(2**63)
"""Stands for NULL, and for anything but an integer, while integers travel; null in the frame."""

MARK = "(to keep)"
"""A column beside those of a table: 1 in rows that `only` keeps, else 0."""

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100

LAYOUTS = """
select cast(m.name as blob) as "table", cast(c.name as blob) as "column",
    m.rootpage, c.cid, cast(c.type as blob) as declared, c.pk, c.hidden,
    c.dflt_value is not null as has_default
from sqlite_master m, pragma_table_list(m.name) l, pragma_table_xinfo(m.name) c
where m.type = 'table' and l.schema = 'main' and l.type = 'table' and not l.wr
    and not exists (select 1 from pragma_index_list(m.name))
"""
"""The columns of all ordinary tables that have no index."""

HINT = "is it complete? export it again: nsys export -t sqlite REPORT.nsys-rep"


@dataclass(frozen=True, slots=True)
class _Borders:
    """Which rows of a table are in which piece."""

    ends: list[int]  # rows up to the end of each piece from pages, after a 0
    whole: bool  # else there is one more piece, of all rows that follow

    @property
    def paged(self) -> int:
        """How many pieces are to come from pages."""
        return len(self.ends) - 1

    @property
    def pieces(self) -> int:
        """How many there are."""
        return self.paged + (not self.whole)

    def slice(self, number: int) -> tuple[int, int | None]:
        """The first row of a piece and how many it has, None for all that follow."""
        begin = self.ends[number]
        return begin, None if number == self.paged else self.ends[number + 1] - begin


class SQLiteColumns:
    """A SQLite file, opened read-only."""

    def __init__(self, path: Path) -> None:
        """Open `path`; raises `UnreadableReport` where it is no SQLite database."""
        self.path = path
        self._check_magic()
        # Without a journal beside it nobody is writing, and `immutable` spares file locks,
        # which shared file systems answer slowly or not at all.
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
        """Let go of the file, as else happens once nobody uses this any more."""
        self._finalizer()
        if self._pages is not None:
            self._pages.close()

    @property
    def bytes(self) -> int:
        """How large the file is."""
        return self._bytes

    @property
    def tables(self) -> dict[str, frozenset[str]]:
        """Names of the tables and of their columns."""
        return self._tables

    def has(self, table: str, *columns: str) -> bool:
        """Whether the file has `table` with all of `columns`."""
        return table in self._tables and self._tables[table].issuperset(columns)

    def read(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table; one that the table lacks comes as nulls.

        Args:
            table: a table of the file.
            integers: columns to read as Int64.
            text: columns to read as String; broken UTF-8 gets replacement characters.
            only: an integer column, and the values of the rows to keep.
            raw: columns to read as Binary; empty ones are null.
        """
        return pl.concat(self.pieces(table, integers, text, only, raw), rechunk=False)

    def pieces(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """What `read` gives, piece by piece; at least one, which may be empty.

        Nothing is read before the first piece is asked for. The first call for a table that is
        read to its end settles which rows are in which piece, whatever is asked of them later.

        Args:
            chosen: numbers of the pieces to give, in rising order, of those that a call without
                it gives (from 0); the others are not read. Where no such call came before, the
                table is read once more for it.
        """
        have = self._tables[table]
        kinds = {
            **dict.fromkeys(integers, pl.Int64),
            **dict.fromkeys(text or [], pl.String),
            **dict.fromkeys(raw or [], pl.Binary),
        }
        present = ColumnRequest(
            integers=[name for name in integers if name in have],
            text=[name for name in text or [] if name in have],
            raw=[name for name in raw or [] if name in have],
            only=only,
        )
        for frame in self._pieces(table, present, chosen):
            if have.issuperset(kinds):
                yield frame
                continue
            nothing = pl.Series([None]).new_from_index(0, frame.height)
            yield pl.DataFrame(
                [
                    frame[name] if name in have else nothing.cast(kind).alias(name)
                    for name, kind in kinds.items()
                ]
            )

    def _pieces(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """Columns that are there; the library goes on where the pages turn out unusual."""
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
        """All pieces; those that the pages do not give are one. Settles what is in which."""
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
        """Rows of pieces, and of these the columns that are there of the rows to keep.

        Raises `Unusual` where the library has to read them.
        """
        records = compiled() if self._quiet else None
        if records is None:
            raise Unusual("the compiled reader is not used")
        if self._layouts is None:
            self._layouts = self._read_layouts()
        if table not in self._layouts:
            raise Unusual("it has an index, no rowid or generated columns")
        if self._pages is None:
            self._pages = PagedFile(self.path)
        yield from self._pages.pieces(records, self._layouts[table], wanted, chosen)

    def _read_layouts(self) -> dict[str, TableLayout]:
        """Layouts of the tables that the page reader can read; none where SQLite cannot say.

        An index may change the order of the rows, WITHOUT ROWID tables are stored otherwise, and
        the values of generated columns are not stored: all these are left to SQLite.
        """
        try:
            frame = self._query(LAYOUTS)
        except UnreadableReport:  # before SQLite 3.37, or damage that the library has to report
            return {}
        layouts: dict[str, TableLayout] = {}
        names = frame.with_columns(
            decoded(frame[name]).fill_null("") for name in ("table", "column", "declared")
        )
        for (table,), columns in names.partition_by("table", as_dict=True).items():
            if columns["hidden"].max() == 0 and columns["rootpage"].n_unique() == 1:
                layouts[str(table)] = TableLayout.of(columns)
        return layouts

    def _from_library(self, table: str, wanted: ColumnRequest, mark: bool = False) -> pl.DataFrame:
        """Columns that are there, of the rows to keep; or of all rows, with `MARK`."""
        columns = [
            f'iif(typeof("{name}") = \'integer\', "{name}", {MISSING}) as "{name}"'
            for name in wanted.integers
        ] + [
            f'coalesce(cast("{name}" as blob), x\'\') as "{name}"'
            for name in [*wanted.text, *wanted.raw]
        ]
        condition = "1"
        if wanted.only is not None:
            name, values = wanted.only
            condition = f'"{name}" in ({", ".join(map(str, values))})'
        if mark:
            columns.append(f'({condition}) is true as "{MARK}"')
        where = "" if mark else f" where {condition}"
        frame = self._query(f'select {", ".join(columns)} from "{table}"{where}')
        return pl.DataFrame(
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

        try:  # not by its DB-API, which waits for pyarrow and its datasets
            with AdbcStatement(self._connection) as statement:
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
            raise UnreadableReport(
                f"{self.path}: cannot be read ({error.strerror})", hint="check its permissions"
            ) from error
        if not head:
            raise UnreadableReport(f"{self.path}: is empty", hint=HINT)
        if not head.startswith(MAGIC):
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
    return integers.set(integers == MISSING, None)


def _close(connection: AdbcConnection, database: AdbcDatabase) -> None:
    connection.close()
    database.close()


def _stated_size(header: bytes) -> int:
    """Size of the file by its header, 0 where the header does not vouch for it."""
    page_size = int.from_bytes(header[16:18]) or 0
    pages, vouched = int.from_bytes(header[28:32]), header[24:28] == header[92:96]
    return pages * (65536 if page_size == 1 else page_size) if vouched else 0
