"""`.qdstrm`: a recording that nsys did not convert to a report, since it was stopped or disk full.

Only nsys's own importer reads it, and it must be of the version that recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rankscope.errors import UnreadableReport
from rankscope.sources.nsys.family import FAMILY, HINTS
from rankscope.sources.report_format import Format

if TYPE_CHECKING:
    from rankscope.sources.conventions import Vocabulary


def facts(path: Path) -> NoReturn:
    """Raises `UnreadableReport`, with the way to convert it."""
    raise UnreadableReport(
        f"{path}: is a raw .qdstrm recording that was never converted to a report (nsys was "
        "stopped, or the disk was full)",
        hint="convert it: QdstrmImporter -i FILE.qdstrm, of the nsys version that recorded it",
    )


def read(path: Path, _words: Vocabulary | None = None) -> NoReturn:
    """Raises `UnreadableReport`, like `facts`."""
    facts(path)


FORMAT = Format(
    name="nsys-raw",
    family=FAMILY,
    facts=facts,
    read=read,
    hints=HINTS,
    suffixes=(".qdstrm",),
    preference=4,
    listed=False,  # found only to be refused with the remedy
)
