"""Limits and chunk sizes deep inside the readers, which tests make small: here and nowhere else."""

from __future__ import annotations

import pytest

from rankscope.model import events
from rankscope.sources.columns import folders
from rankscope.sources.columns.sqlite_pages import loader, pages
from rankscope.sources.nsys import launches, nvtx

PLACES = {
    "events": (events, "MOST_HELD"),
    "kept": (events, "MOST_KEPT"),
    "part_rows": (events, "PART_ROWS"),
    "launches": (launches, "MOST_HELD"),
    "signatures": (nvtx, "MOST_SIGNATURES"),
    "piece_bytes": (pages, "PIECE_BYTES"),
    "piece_rows": (folders, "PIECE_ROWS"),
}


def limited(patch: pytest.MonkeyPatch, **limits: int) -> None:
    """Set some of PLACES until the end of a test; chunks of SQLite's pages need its reader."""
    for name, value in limits.items():
        patch.setattr(*PLACES[name], value)
    if "piece_bytes" in limits:
        patch.setenv(loader.SWITCH, "1")


def in_pieces(patch: pytest.MonkeyPatch) -> None:
    """Nothing is held, and all is read in pieces that are much smaller than a report."""
    limited(patch, events=0, kept=0, part_rows=64, launches=0, piece_bytes=2**14, piece_rows=50)
