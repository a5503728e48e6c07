"""The databases that a user may have meant."""

from __future__ import annotations

import shlex
from pathlib import Path

MOST = 8
"""Most databases that a hint lists."""


def databases_in(folder: Path) -> list[Path]:
    """The databases in a folder by their names, sorted; none where it cannot be read."""
    try:
        return sorted(each for each in folder.glob("*.duckdb") if each.is_file())
    except OSError:
        return []


def hint_for_missing(path: Path) -> str:
    """A hint for a missing database: those beside it, and how to make one."""
    made = "make it: rankscope ingest PROFILES --db FILE"
    found = databases_in(path.parent)
    if not found:
        return made
    listed = ", ".join(f"--db {shlex.quote(str(each))}" for each in found[:MOST])
    more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
    return f"there {'is' if len(found) == 1 else 'are'} {listed}{more}; or {made}"
