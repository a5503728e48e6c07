"""Columns out of a folder of Parquet files, one a table (`nsys export -t parquetdir`)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from rankscope.errors import UnreadableReport

HINT = "is it complete? export it again: nsys export -t parquetdir REPORT.nsys-rep"


class ParquetColumns:
    """The tables of a folder."""

    def __init__(self, path: Path) -> None:
        """Look at the folder; raises `UnreadableReport` where a file in it is broken."""
        self.path = path
        self._columns: dict[str, frozenset[str]] = {}

    def has(self, table: str, *columns: str) -> bool:
        """Whether the folder has `table` with all of `columns`."""
        file = self._file(table)
        if table not in self._columns:
            try:
                names = pl.read_parquet_schema(file) if file.is_file() else None
            except (pl.exceptions.PolarsError, OSError) as error:
                raise self._unreadable(file) from error
            self._columns[table] = frozenset(names or ())
        return file.is_file() and self._columns[table].issuperset(columns)

    def read(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table; one that the table lacks comes as nulls.

        Ids are unsigned here; they come with the bits they have in SQLite.

        Args:
            table: a table of the folder.
            integers: columns to read as Int64.
            text: columns to read as String.
            only: an integer column, and the values of the rows to keep.
        """
        self.has(table)
        have = self._columns[table]
        file = self._file(table)
        scan = pl.scan_parquet(file)
        if only is not None:
            scan = scan.filter(pl.col(only[0]).is_in(only[1]))
        try:
            frame = scan.select(
                name for name in dict.fromkeys([*integers, *(text or [])]) if name in have
            ).collect()
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self._unreadable(file) from error
        return frame.select(
            *(
                _signed(frame[name]) if name in have else pl.lit(None, pl.Int64).alias(name)
                for name in integers
            ),
            *(
                frame[name].cast(pl.String).replace("", None)
                if name in have
                else pl.lit(None, pl.String).alias(name)
                for name in text or []
            ),
        )

    def _file(self, table: str) -> Path:
        return self.path / f"{table}.parquet"

    def _unreadable(self, file: Path) -> UnreadableReport:
        return UnreadableReport(f"{file}: is damaged or truncated", hint=HINT)


def _signed(column: pl.Series) -> pl.Series:
    if column.dtype == pl.UInt64:
        return column.reinterpret(signed=True)
    return column.cast(pl.Int64)
