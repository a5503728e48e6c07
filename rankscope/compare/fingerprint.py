"""What the cached answers of a database depend on, as one text."""

from __future__ import annotations

import hashlib
from pathlib import Path

import polars as pl

from rankscope.model.options import Options
from rankscope.store.migrations import SCHEMA_VERSION
from rankscope.util.source_digest import source_digest

PACKAGE = Path(__file__).parents[1]

SHAPING = ("compare", "judge", "match", "model", "store", "util")
"""Packages whose source files shape the answers; those that read reports shape the tables."""


def fingerprint(options: Options, reports: pl.DataFrame) -> str:
    """Text that differs if the code, the options or the reports of cached answers differ.

    Args:
        options: how the ranks were compared.
        reports: the table `reports`. A report that was moved is the same one.
    """
    state = "\n".join(sorted(map(repr, reports.drop("path").iter_rows())))
    code = source_digest(PACKAGE, SHAPING)
    parts = (code, pl.__version__, str(SCHEMA_VERSION), repr(options), state)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
