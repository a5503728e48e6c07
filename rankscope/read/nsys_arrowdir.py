"""`nsys export -t arrowdir`: a folder of Arrow streams, one a table."""

from __future__ import annotations

from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.read import nsys_tables
from rankscope.read.columns_folder import ArrowColumns
from rankscope.vocabulary import Vocabulary


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    return nsys_tables.facts(ArrowColumns(path))


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is none."""
    return nsys_tables.trace(ArrowColumns(path), words)
