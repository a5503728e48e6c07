"""Columns out of an export folder, one file a table (`nsys export -t parquetdir`, `arrowdir`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.read.text import decoded

if TYPE_CHECKING:
    import pyarrow as pa

HINT = "is it complete? export it again: nsys export -t {kind} REPORT.nsys-rep"


class FolderColumns(ABC):
    """The tables of a folder."""

    kind: str
    ending: str

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: dict[str, frozenset[str]] = {}

    def has(self, table: str, *columns: str) -> bool:
        """Whether the folder has `table` with all of `columns`; raises `UnreadableReport`."""
        file = self._file(table)
        if table not in self._columns:
            try:
                names = self._names(file) if file.is_file() else ()
            except Exception as error:  # every engine has its own way to fail on broken files
                raise self._unreadable(file) from error
            self._columns[table] = frozenset(names)
        return file.is_file() and self._columns[table].issuperset(columns)

    def read(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table; one that the table lacks, or of another type, comes as nulls.

        Ids are unsigned here; they come with the bits they have in SQLite.

        Args:
            table: a table of the folder.
            integers: columns to read as Int64.
            text: columns to read as String; broken UTF-8 gets replacement characters.
            only: an integer column, and the values of the rows to keep.
            raw: columns to read as Binary, whatever type they claim to have.
        """
        self.has(table)
        file = self._file(table)
        wanted = dict.fromkeys(
            [*integers, *(text or []), *(raw or []), *(only[:1] if only else ())]
        )
        try:
            frame = self._table(file, [name for name in wanted if name in self._columns[table]])
        except Exception as error:
            raise self._unreadable(file) from error
        if only is not None:
            frame = frame.filter(_integer(frame, only[0]).is_in(only[1]))
        return pl.DataFrame(
            [_integer(frame, name) for name in integers]
            + [_text(frame, name) for name in text or []]
            + [_bytes(frame, name) for name in raw or []]
        )

    def pieces(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """What `read` gives, in one piece, number 0."""
        if chosen is None or chosen:
            yield self.read(table, integers, text, only, raw)

    @abstractmethod
    def _names(self, file: Path) -> list[str]:
        """Names of a table's columns."""

    @abstractmethod
    def _table(self, file: Path, columns: list[str]) -> pl.DataFrame:
        """Some columns as they stand; text that is not UTF-8 as bytes."""

    def _file(self, table: str) -> Path:
        return self.path / f"{table}{self.ending}"

    def _unreadable(self, file: Path) -> UnreadableReport:
        return UnreadableReport(
            f"{file}: is damaged or truncated", hint=HINT.format(kind=self.kind)
        )


class ParquetColumns(FolderColumns):
    """The tables of a `parquetdir`."""

    kind, ending = "parquetdir", ".parquet"

    def _names(self, file: Path) -> list[str]:
        return list(pl.read_parquet_schema(file))

    def _table(self, file: Path, columns: list[str]) -> pl.DataFrame:
        try:
            return pl.scan_parquet(file).select(columns).collect()
        except pl.exceptions.ComputeError:  # text that is not UTF-8, or a broken file
            from pyarrow import parquet

            return _frame(parquet.read_table(file, columns=columns))


class ArrowColumns(FolderColumns):
    """The tables of an `arrowdir`: Arrow IPC streams."""

    kind, ending = "arrowdir", ".arrow"

    def _names(self, file: Path) -> list[str]:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            names: list[str] = stream.schema.names
        return names

    def _table(self, file: Path, columns: list[str]) -> pl.DataFrame:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            return _frame(stream.read_all().select(columns))


def _frame(table: pa.Table) -> pl.DataFrame:
    """An Arrow table, checked to the last offset, with text as bytes: it may not be UTF-8."""
    import pyarrow as pa

    as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = as_bytes.get(column.type, column.type)
        chunks = [chunk.view(kind) for chunk in column.chunks]
        columns[name] = pa.chunked_array(chunks, kind)
    checked = pa.table(columns)
    checked.validate(full=True)
    frame = pl.from_arrow(checked)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _integer(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns or not frame[name].dtype.is_integer():
        return pl.Series(name, [None] * frame.height, dtype=pl.Int64)
    if frame[name].dtype == pl.UInt64:
        return frame[name].reinterpret(signed=True)
    return frame[name].cast(pl.Int64, strict=False)


def _text(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns or frame[name].dtype not in (pl.String, pl.Binary):
        return pl.Series(name, [None] * frame.height, dtype=pl.String)
    return decoded(frame[name])


def _bytes(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns or frame[name].dtype not in (pl.String, pl.Binary):
        return pl.Series(name, [None] * frame.height, dtype=pl.Binary)
    return frame[name].cast(pl.Binary)
