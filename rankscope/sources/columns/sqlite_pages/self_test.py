"""The self-test of the compiled reader: a small table, read by it and by `sqlite3`."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl

from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite_pages.frames import Column, TableLayout, Unusual
from rankscope.sources.columns.sqlite_pages.layout import MISSING, Decode
from rankscope.sources.columns.sqlite_pages.pages import PagedFile

PAGE_BYTES = 512

ROWS = 90
"""Rows of the table: some ten leaf pages below one interior page."""

COLUMNS = ("key integer primary key", "whole integer", "other", "name text", "bytes blob")

KEPT = [0, 1, -129, 7]
"""Values of `whole` in the rows that the second read keeps."""

LAYOUT = TableLayout(
    root=2,  # the first page holds the schema
    columns={
        declared.partition(" ")[0]: Column(position, True, position == 0, False)
        for position, declared in enumerate(COLUMNS)
    },
)


def failure(decode: Decode) -> str | None:
    """The fault of the compiled function; None if it reads everything as `sqlite3` does."""
    try:
        with tempfile.TemporaryDirectory(prefix="rankscope-") as folder:
            path = Path(folder) / "golden.sqlite"
            with closing(sqlite3.connect(path)) as connection:
                _fill(connection)
                expected = connection.execute("select * from t").fetchall()
            return _difference(decode, path, expected)
    except (OSError, sqlite3.Error) as error:
        return f"no table to test it with ({error})"
    except Unusual as error:
        return f"an ordinary table is unusual ({error})"


def _fill(connection: sqlite3.Connection) -> None:
    """Make the table `t`, with values of all widths that a record can have."""
    connection.execute(f"pragma page_size = {PAGE_BYTES}")
    connection.execute("pragma synchronous = off")
    connection.execute(f"create table t ({', '.join(COLUMNS)})")
    with connection:
        connection.executemany(f"insert into t values ({', '.join('?' * len(COLUMNS))})", _rows())


def _rows() -> Iterator[tuple[object, ...]]:
    for row in range(ROWS):
        sign, bits = (-1 if row % 2 else 1), (6, 7, 14, 15, 23, 31, 47, 62)[row % 8]
        whole = (None, 0, 1, 7, sign * 2**bits, sign * 2**bits - 1)[row % 6]
        other = (None, row, 0.5, "unselected", b"\0")[row % 5]
        name = (None, "", "é", "ncclKernel", "x" * (row % 45), "aten::add_, seq = 17")[row % 6]
        yield row * 37, whole, other, name, bytes(range(row % 23)) or None


def _difference(decode: Decode, path: Path, rows: list[tuple[object, ...]]) -> str | None:
    """How the table differs from its rows when it is read whole and in part; None if not."""
    names = ["key", "whole", "name", "bytes"]
    whole = [
        (key, whole if whole != MISSING else None, name or None, content or None)
        for key, whole, _, name, content in rows
    ]
    file = PagedFile(path)
    try:
        for only in (None, ("whole", KEPT)):
            request = ColumnRequest(["key", "whole"], ["name"], ["bytes"], only)
            chunks = [frame for _, frame in file.pieces(decode, LAYOUT, request)]
            decoded = pl.concat(chunks)
            expected = [row for row in whole if only is None or row[1] in KEPT]
            if decoded.columns != names or decoded.rows() != expected:
                return "it reads other values than SQLite"
    finally:
        file.close()
    return None
