"""`nsys export -t sqlite`: one SQLite file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def read_windows(path: Path, words: Vocabulary | None, more: Sequence[Path]) -> Trace:
    """The windows of one session as one report; raises `UnreadableReport`."""
    from rankscope.sources.nsys.windows import in_one

    return in_one(path, [read(each, words) for each in (path, *more)])


def joined(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """The windows of each session that wrote several."""
    from rankscope.sources.columns.sqlite import SQLiteColumns
    from rankscope.sources.nsys import tables, windows

    def session(path: Path) -> str | None:
        with closing(SQLiteColumns(path)) as file:
            return tables.session(file)

    return windows.joined(paths, FORMAT.stem, session)


FORMAT = Format(
    name="nsys-sqlite",
    family=FAMILY,
    facts=facts,
    read=read,
    read_windows=read_windows,
    joined=joined,
    hints=HINTS,
    suffixes=(".sqlite",),
    preference=0,  # it holds more than the other exports
    any_name=True,
)
