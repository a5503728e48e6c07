"""What `nsys export` writes: one SQLite file, or a folder of Parquet files or Arrow streams."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.model.limits import USUAL, Limits
from rankscope.sources.report_format import Format, IterationHints

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.columns.request import Columns
    from rankscope.sources.conventions import Vocabulary

ARROW_FOLDER = "_arwdir"

FAMILY = "nsys"

HINTS = IterationHints(
    ranges="NVTX",
    no_ranges="annotate the training loop (NVTX ranges 'step 12') and profile "
    "with --trace=cuda,nvtx",
)


def columns_of(path: Path, limits: Limits = USUAL) -> Columns:
    """The tables of an export; raises `UnreadableReport` where a file is none."""
    from rankscope.sources.columns.folders import ArrowColumns, ParquetColumns
    from rankscope.sources.columns.sqlite import SQLiteColumns

    if not path.is_dir():
        return SQLiteColumns(path, limits)
    of_kind = ArrowColumns if path.name.endswith(ARROW_FOLDER) else ParquetColumns
    return of_kind(path, limits)


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    from rankscope.sources.columns.sqlite import SQLiteColumns
    from rankscope.sources.nsys import tables

    if path.is_dir():
        return tables.facts(columns_of(path))
    with closing(SQLiteColumns(path)) as file:
        return tables.facts(file)


def read(path: Path, words: Vocabulary | None = None, more: Sequence[Path] = ()) -> Trace:
    """The whole report; raises `UnreadableReport` where it is not a valid one."""
    from rankscope.sources.nsys import tables, windows

    if more:
        return windows.in_one(path, [read(each, words) for each in (path, *more)])
    return tables.trace(columns_of(path), words)


def joined(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """The windows of each session that wrote several SQLite exports."""
    from rankscope.sources.columns.sqlite import SQLiteColumns
    from rankscope.sources.nsys import tables, windows

    def session(path: Path) -> str | None:
        with closing(SQLiteColumns(path)) as file:
            return tables.session(file)

    return windows.joined(paths, SQLITE.stem, session)


SQLITE = Format(
    name="nsys-sqlite",
    family=FAMILY,
    facts=facts,
    read=read,
    joined=joined,
    hints=HINTS,
    suffixes=(".sqlite",),
    preference=0,  # it holds more than the other exports
    any_name=True,
)

PARQUET = Format(
    name="nsys-parquetdir",
    family=FAMILY,
    facts=facts,
    read=read,
    hints=HINTS,
    folders=("_pqtdir",),
    preference=1,
)

ARROW = Format(
    name="nsys-arrowdir",
    family=FAMILY,
    facts=facts,
    read=read,
    hints=HINTS,
    folders=(ARROW_FOLDER,),
    preference=2,
)
