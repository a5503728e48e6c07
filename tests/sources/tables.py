"""SQLite files of one table `t`, and what rankscope's two ways to read them say."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.model.limits import USUAL, Limits
from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.columns.sqlite_pages.frames import Unusual
from tests.support import with_rows

Row = Sequence[object]

PAGES = [512, 1024, 4096, 65536]
"""Sizes of pages."""


def both(
    path: Path,
    integers: list[str],
    text: list[str],
    only: tuple[str, list[int]] | None = None,
    limits: Limits = USUAL,
) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    """What the pages say and what the library says; None where either says nothing."""
    paged: pl.DataFrame | None = None
    try:
        with closing(SQLiteColumns(path, limits)) as file:
            if not file.has("t", *integers, *text):
                return None, None
            if not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal")):
                paged = from_pages(file, ColumnRequest(integers, text, only=only))
    except UnreadableReport:
        return None, None
    except Unusual:
        pass
    try:
        with closing(SQLiteColumns(path)) as file:
            return paged, file._from_library("t", ColumnRequest(integers, text, only=only))
    except UnreadableReport:
        return paged, None


def agreed(
    path: Path,
    integers: list[str],
    text: list[str],
    only: tuple[str, list[int]] | None = None,
    limits: Limits = USUAL,
) -> pl.DataFrame | None:
    """What the pages say, and the library, too; None where they say nothing."""
    paged, library = both(path, integers, text, only, limits)
    assert paged is None or (library is not None and paged.equals(library)), (paged, library)
    return paged


def from_pages(file: SQLiteColumns, wanted: ColumnRequest) -> pl.DataFrame:
    return pl.concat(frame for _, frame in file._from_pages("t", wanted))


def made(
    path: Path, rows: Sequence[Row], page: int = 4096, columns: str = "a integer, b text"
) -> Path:
    edit(path, f"pragma page_size = {page}", f"create table t ({columns})")
    return with_rows(path, "t", *rows)


def edit(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as file, file:
        for statement in statements:
            file.execute(statement)
    return path
