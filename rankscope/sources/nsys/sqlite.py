"""`nsys export -t sqlite`: one SQLite file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.sources.nsys.family import FAMILY, HINTS
from rankscope.sources.report_format import Format

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    from rankscope.sources.columns.sqlite import SQLiteColumns
    from rankscope.sources.nsys import tables

    with closing(SQLiteColumns(path)) as file:
        return tables.facts(file)


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is not a valid one."""
    from rankscope.sources.columns.sqlite import SQLiteColumns
    from rankscope.sources.nsys import tables

    return tables.trace(SQLiteColumns(path), words)


FORMAT = Format(
    name="nsys-sqlite",
    family=FAMILY,
    facts=facts,
    read=read,
    hints=HINTS,
    suffixes=(".sqlite",),
    preference=0,  # it holds more than the other exports
    any_name=True,
)
