"""Reports → traces: one module a format, each knowing no other.

A format module has `read(path, words) -> Trace` and `facts(path) -> CaptureFacts`, the cheap look
at whose capture it is; both raise `UnreadableReport`. A new format is a module and a row here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from rankscope.model.reports import CaptureFacts, ReportFile, Trace
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys import export

FORMATS = {
    "nsys-report": "rankscope.sources.nsys.report",
    "nsys-sqlite": "rankscope.sources.nsys.sqlite",
    "nsys-parquetdir": "rankscope.sources.nsys.parquetdir",
    "nsys-arrowdir": "rankscope.sources.nsys.arrowdir",
    "nsys-raw": "rankscope.sources.nsys.qdstrm",
    "kineto": "rankscope.sources.kineto.reader",
}


class Reader(Protocol):
    """What a format module offers."""

    def facts(self, path: Path) -> CaptureFacts: ...

    def read(self, path: Path, words: Vocabulary | None = None, /) -> Trace: ...


def facts(file: ReportFile) -> CaptureFacts:
    """Host, times and rank evidence of a report, without its events."""
    return _reader(file.kind).facts(file.place)


def read(file: ReportFile, words: Vocabulary | None = None) -> Trace:
    """The whole report as a `Trace`; ranges that are operators by `words` need not be held."""
    return _reader(file.kind).read(file.place, words)


def clear_exports(reports: Iterable[Path]) -> None:
    """Forget the exports that were made of `reports`, and those of reports that are gone."""
    export.clear(reports)


def exports_bytes() -> int:
    """How much room the exports take that were made to read reports."""
    return export.cache_bytes()


def exports_folder() -> Path:
    """Where they are."""
    return export.cache_folder()


def _reader(kind: str) -> Reader:
    return cast(Reader, import_module(FORMATS[kind]))
