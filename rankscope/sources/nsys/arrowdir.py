"""`nsys export -t arrowdir`: a folder of Arrow streams, one a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.sources.nsys.family import FAMILY, HINTS
from rankscope.sources.report_format import Format

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    from rankscope.sources.columns.folders import ArrowColumns
    from rankscope.sources.nsys import tables

    return tables.facts(ArrowColumns(path))


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is not a valid one."""
    from rankscope.sources.columns.folders import ArrowColumns
    from rankscope.sources.nsys import tables

    return tables.trace(ArrowColumns(path), words)


FORMAT = Format(
    name="nsys-arrowdir",
    family=FAMILY,
    facts=facts,
    read=read,
    hints=HINTS,
    folders=("_arwdir",),
    preference=2,
)
