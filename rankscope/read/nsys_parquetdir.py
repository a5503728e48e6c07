"""`nsys export -t parquetdir`: a folder of Parquet files, one a table."""

from __future__ import annotations

from pathlib import Path

from rankscope.model.reports import CaptureFacts, Trace
from rankscope.read import nsys_tables
from rankscope.read.columns_folder import ParquetColumns
from rankscope.vocabulary import Vocabulary


def facts(path: Path) -> CaptureFacts:
    """Host, times and rank evidence; raises `UnreadableReport`."""
    return nsys_tables.facts(ParquetColumns(path))


def read(path: Path, words: Vocabulary | None = None) -> Trace:
    """The whole report; raises `UnreadableReport` where it is none."""
    return nsys_tables.trace(ParquetColumns(path), words)
