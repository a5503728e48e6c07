"""`nsys export -t arrowdir`: a folder of Arrow streams, one a table."""

from __future__ import annotations

from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.sources.columns.folders import ArrowColumns
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys import tables


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    return tables.facts(ArrowColumns(path))


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is none."""
    return tables.trace(ArrowColumns(path), words)
