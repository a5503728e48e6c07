"""`nsys export -t sqlite`: one SQLite file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.read import nsys_tables
from rankscope.read.columns_sqlite import SQLiteColumns
from rankscope.vocabulary import Vocabulary


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    with closing(SQLiteColumns(path)) as file:
        return nsys_tables.facts(file)


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is none."""
    return nsys_tables.trace(SQLiteColumns(path), words)
