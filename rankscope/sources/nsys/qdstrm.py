"""`.qdstrm`: what nsys recorded and made no report of, since it was stopped or found no room.

No reader is there for it but nsys's own importer, and that must be of the version that recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from rankscope.errors import UnreadableReport
from rankscope.sources.conventions import Vocabulary


def facts(path: Path) -> NoReturn:
    """Raises `UnreadableReport`, with what makes a report of it."""
    raise UnreadableReport(
        f"{path}: is what nsys recorded, and no report was made of it (nsys was stopped, or the "
        "disk was full)",
        hint="make one: QdstrmImporter -i FILE.qdstrm, of the nsys that recorded it",
    )


def read(path: Path, _words: Vocabulary | None = None) -> NoReturn:
    """Raises `UnreadableReport`, like `facts`."""
    facts(path)
