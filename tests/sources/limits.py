"""Reading within limits that are much smaller than a report."""

from rankscope.measure.report import Reader
from rankscope.model.limits import Limits
from rankscope.model.reports import ReportFile, Trace
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys import exports, tables

IN_PIECES = Limits(held=0, kept=0, part_rows=64, launches=0, piece_bytes=2**14, piece_rows=50)
"""Nothing is held, and all is read in pieces; those of SQLite's pages by the compiled reader."""


def within(limits: Limits) -> Reader:
    """A reader of exports."""

    def read(file: ReportFile, words: Vocabulary | None = None) -> Trace:
        return tables.trace(exports.columns_of(file.place, limits), words)

    return read
