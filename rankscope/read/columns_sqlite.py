"""Columns out of SQLite files, fast and without trusting what stands in them.

The one place that knows which engine reads SQLite (ADBC's driver: columnar, streaming, and kept
by the Arrow project). It infers a column's type from the first rows, so every column is asked for
as an integer or as bytes, never null: text may hold NULs or bytes that are not UTF-8, and an
integer column may hold anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.read.text import decoded

MISSING = -(2**63)
"""Stands for NULL, and for anything but an integer, while integers travel; null in the frame."""

MAGIC = b"SQLite format 3\x00"
HEADER_BYTES = 100

HINT = "is it complete? export it again: nsys export -t sqlite REPORT.nsys-rep"


class SQLiteColumns:
    """A SQLite file, opened read-only; use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Open `path`; raises `UnreadableReport` where it is no SQLite database."""
        self.path = path
        self._check_magic()
        # Without a journal beside it nobody is writing, and `immutable` spares file locks,
        # which shared file systems answer slowly or not at all.
        quiet = not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal"))
        uri = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro{'&immutable=1' if quiet else ''}"
        import adbc_driver_sqlite.dbapi as adbc

        try:
            self._connection = adbc.connect(uri)
        except (adbc.Error, OSError) as error:
            raise self._unreadable(error) from error
        try:
            self._tables = self._read_tables()
        except BaseException:
            self._connection.close()
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
        self._connection.close()

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
        have = self._tables[table]
        wanted = [
            f'iif(typeof("{name}") = \'integer\', "{name}", {MISSING}) as "{name}"'
            for name in integers
            if name in have
        ] + [
            f'coalesce(cast("{name}" as blob), x\'\') as "{name}"'
            for name in [*(text or []), *(raw or [])]
            if name in have
        ]
        condition = ""
        if only is not None:
            condition = f' where "{only[0]}" in ({", ".join(map(str, only[1]))})'
        frame = self._query(f'select {", ".join(wanted)} from "{table}"{condition}')
        return frame.select(
            *(
                pl.col(name).cast(pl.Int64).replace(MISSING, None)
                if name in have
                else pl.lit(None, pl.Int64).alias(name)
                for name in integers
            ),
            *(
                decoded(frame[name]) if name in have else pl.lit(None, pl.String).alias(name)
                for name in text or []
            ),
            *(
                _bytes(frame[name]) if name in have else pl.lit(None, pl.Binary).alias(name)
                for name in raw or []
            ),
        )

    def _read_tables(self) -> dict[str, frozenset[str]]:
        frame = self._query(
            "select cast(m.name as blob) as t, cast(p.name as blob) as c "
            "from sqlite_master m, pragma_table_info(m.name) p where m.type = 'table'"
        )
        columns = frame.select(decoded(frame["t"]), decoded(frame["c"]))
        return {
            str(table): frozenset(group["c"])
            for (table,), group in columns.partition_by("t", as_dict=True).items()
        }

    def _query(self, sql: str) -> pl.DataFrame:
        import adbc_driver_sqlite.dbapi as adbc

        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                table: Any = cursor.fetch_arrow_table()
        except (adbc.Error, OSError) as error:
            raise self._unreadable(error) from error
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _check_magic(self) -> None:
        try:
            with self.path.open("rb") as file:
                head = file.read(HEADER_BYTES)
                size = os.fstat(file.fileno()).st_size
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


def _bytes(column: pl.Series) -> pl.Series:
    if column.is_empty():  # the engine had nothing to infer its type from
        return pl.Series(column.name, [], dtype=pl.Binary)
    return column.set(column.bin.size() == 0, None)


def _stated_size(header: bytes) -> int:
    """Size of the file by its header, 0 where the header does not vouch for it."""
    page_size = int.from_bytes(header[16:18]) or 0
    pages, vouched = int.from_bytes(header[28:32]), header[24:28] == header[92:96]
    return pages * (65536 if page_size == 1 else page_size) if vouched else 0
