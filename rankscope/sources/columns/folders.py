"""Columns of an export folder with a file per table (`nsys export -t parquetdir`, `arrowdir`)."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.model.limits import USUAL, Limits
from rankscope.sources.columns.request import ColumnRequest, Columns, export_again
from rankscope.sources.columns.text import decoded

if TYPE_CHECKING:
    import pyarrow as pa


class FolderColumns(Columns):
    """The tables of a folder."""

    kind: str
    ending: str

    def __init__(self, path: Path, limits: Limits = USUAL) -> None:
        self.path = path
        self.limits = limits
        self._columns: dict[str, frozenset[str]] = {}

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(self.path))

    def has(self, table: str, *columns: str) -> bool:
        """Whether the folder has `table` with all of `columns`; raises `UnreadableReport`."""
        file = self._file(table)
        if table not in self._columns:
            try:
                names = self._names(file) if file.is_file() else ()
            except Exception as error:  # engines fail on broken files with different errors
                raise self._unreadable(file) from error
            self._columns[table] = frozenset(names)
        return file.is_file() and self._columns[table].issuperset(columns)

    def chunks(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """The requested columns and rows in chunks of `Limits.piece_rows` rows of the table."""
        self.has(table)
        file = self._file(table)
        try:
            rows = self._rows(file)
        except Exception as error:
            raise self._unreadable(file) from error
        most = self.limits.piece_rows
        for number in range(max(1, -(-rows // most))) if chosen is None else chosen:
            yield self.rows(table, wanted, number * most, most)

    def rows(
        self, table: str, wanted: ColumnRequest, first: int = 0, most: int | None = None
    ) -> pl.DataFrame:
        """The requested columns and rows; Binary whatever the declared type."""
        self.has(table)
        file = self._file(table)
        only = wanted.only
        named = dict.fromkeys([*wanted.types, *(only[:1] if only else ())])
        names = [name for name in named if name in self._columns[table]]
        try:
            frame = self._table(file, names, first, most)
        except Exception as error:
            raise self._unreadable(file) from error
        if only is not None:
            frame = frame.filter(_integer(frame, only[0]).is_in(only[1]))
        return pl.DataFrame(
            [_integer(frame, name) for name in wanted.integers]
            + [_text(frame, name) for name in wanted.text]
            + [_bytes(frame, name) for name in wanted.raw]
        )

    @abstractmethod
    def _names(self, file: Path) -> list[str]:
        """Names of a table's columns."""

    @abstractmethod
    def _rows(self, file: Path) -> int:
        """The number of rows of a table."""

    @abstractmethod
    def _table(self, file: Path, columns: list[str], first: int, rows: int | None) -> pl.DataFrame:
        """Some columns of some rows, unchanged; text that is not UTF-8 as bytes."""

    def _file(self, table: str) -> Path:
        return self.path / f"{table}{self.ending}"

    def _unreadable(self, file: Path) -> UnreadableReport:
        return UnreadableReport(f"{file}: is damaged or truncated", hint=export_again(self.kind))


class ParquetColumns(FolderColumns):
    """The tables of a `parquetdir`."""

    kind, ending = "parquetdir", ".parquet"

    def _names(self, file: Path) -> list[str]:
        return list(pl.read_parquet_schema(file))

    def _rows(self, file: Path) -> int:
        return int(pl.scan_parquet(file).select(pl.len()).collect().item())

    def _table(self, file: Path, columns: list[str], first: int, rows: int | None) -> pl.DataFrame:
        try:
            return pl.scan_parquet(file).select(columns).slice(first, rows).collect()
        except pl.exceptions.ComputeError:  # text that is not UTF-8, or a broken file
            from pyarrow import parquet

            return _frame(parquet.read_table(file, columns=columns).slice(first, rows))


class ArrowColumns(FolderColumns):
    """The tables of an `arrowdir`: Arrow IPC streams."""

    kind, ending = "arrowdir", ".arrow"

    def _names(self, file: Path) -> list[str]:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            names: list[str] = stream.schema.names
        return names

    def _rows(self, file: Path) -> int:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            return sum(len(batch) for batch in stream)

    def _table(self, file: Path, columns: list[str], first: int, rows: int | None) -> pl.DataFrame:
        import pyarrow as pa

        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
            return _frame(stream.read_all().select(columns).slice(first, rows))


END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def tables_apart(streams: Path, folder: Path, wanted: Container[str]) -> None:
    """Make an `arrowdir` of a file of `nsys export -t arrow`: the streams of all tables in a row.

    Args:
        streams: the file.
        folder: the new folder.
        wanted: the tables that are kept.

    Raises:
        ValueError, OSError: the file is truncated, or no such file.
    """
    import pyarrow as pa

    folder.mkdir()
    with pa.memory_map(str(streams)) as file:
        while (begin := file.tell()) < file.size():
            with pa.ipc.open_stream(file) as stream:
                name = (stream.schema.metadata or {}).get(b"table_name", b"").decode()
                deque(stream, maxlen=0)
            size = file.tell() - begin
            if file.read_at(len(END_OF_STREAM), begin + size - len(END_OF_STREAM)) != END_OF_STREAM:
                raise ValueError(name)
            if name in wanted:
                file.seek(begin)
                (folder / f"{name}{ArrowColumns.ending}").write_bytes(file.read_buffer(size))


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
    if name in frame.columns and frame[name].dtype == pl.Boolean:  # 0 or 1 in SQLite
        return frame[name].cast(pl.Int64)
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
