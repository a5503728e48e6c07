"""Reports that were moved together with their database."""

from pathlib import Path

LEVELS = 3
"""Folders to look in: that of the database, and this many minus one above it."""


PUT_BACK = "ingest the reports from where they lie now, or put them back, or beside the database"
"""What to do about reports that `located` does not find."""


def located(report: Path, database: Path | None) -> Path:
    """Where a report is now: at its path, else where its database was moved to.

    The longest end of the path that exists below the database's folder counts, then the longest
    below the folders above it, which must have at least one folder. If none exists, the path stays.

    Args:
        report: the path that the database holds.
        database: the database; None: look nowhere else.
    """
    if database is None or report.exists():
        return report
    folder, parts = database.resolve().parent, report.parts[1:]
    for level, base in enumerate([folder, *folder.parents][:LEVELS]):
        for first in range(len(parts) - min(level, 1)):
            candidate = base.joinpath(*parts[first:])
            if candidate.exists():
                return candidate
    return report
