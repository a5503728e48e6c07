"""Opening a DuckDB file, and what DuckDB's errors mean for the user."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import duckdb

from rankscope.errors import DatabaseError

IN_USE = "is in use by another process"
NOT_OURS = "is no rankscope database"

MAGIC, MAGIC_AT = b"DUCK", 8
"""What stands where in every DuckDB file."""

LEAST_FREE = 2**20
"""With less room than this left, what failed failed for want of room."""

REBUILD_HINT = "ingest the reports again with --rebuild"

DAMAGE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
"""What DuckDB raises when it reads a damaged file. Its other errors are bugs of rankscope."""


def connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    if path.is_dir():
        raise DatabaseError(f"{path}: is a folder", hint="name a file with --db")
    if path.exists() and not os.access(path, os.R_OK):
        raise DatabaseError(f"{path}: may not be read", hint="check its permissions")
    if path.exists() and not _looks_like_duckdb(path):
        ours = path.suffix in (".duckdb", ".rebuild")  # by its name: damaged beyond its first bytes
        hint = REBUILD_HINT if ours else "name another file with --db"
        raise DatabaseError(f"{path}: {NOT_OURS}", hint=hint)
    try:
        return duckdb.connect(os.fspath(path), read_only=read_only)
    except duckdb.Error as error:
        raise _translated(path, error) from error


def _translated(path: Path, error: duckdb.Error) -> DatabaseError:
    """What DuckDB says when it cannot open a file, in our words."""
    text = str(error)
    if re.search(r"\block\b", text, re.IGNORECASE):
        return DatabaseError(
            f"{path}: {IN_USE}", hint="wait until it is done, or name another --db"
        )
    if not path.parent.is_dir():
        return DatabaseError(
            f"{path}: cannot be created, for there is no folder {path.parent}",
            hint="make the folder, or name another file with --db",
        )
    if full := disk_full(path, error):
        return full
    if "newer" in text or "version number" in text:
        return DatabaseError(f"{path}: was written by another version of DuckDB", hint=REBUILD_HINT)
    if not path.exists():
        return DatabaseError(
            f"{path}: cannot be created ({first_line(error)})",
            hint="may you write to its folder?",
        )
    return DatabaseError(f"{path}: is damaged", hint=REBUILD_HINT)


def disk_full(path: Path, error: duckdb.Error) -> DatabaseError | None:
    """The error for a full disk, if that is what it was."""
    if "No space left" not in str(error) and shutil.disk_usage(path.parent).free > LEAST_FREE:
        return None
    return DatabaseError(
        f"{path}: cannot be written, for the disk is full",
        hint="make room or name a --db elsewhere; what was ingested before is intact",
    )


def _looks_like_duckdb(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(len(MAGIC) + MAGIC_AT)
    return head[MAGIC_AT:] == MAGIC


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
