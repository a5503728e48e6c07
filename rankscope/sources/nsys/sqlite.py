"""`nsys export -t sqlite`: one SQLite file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys import tables


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    with closing(SQLiteColumns(path)) as file:
        return tables.facts(file)


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is none."""
    return tables.trace(SQLiteColumns(path), words)
