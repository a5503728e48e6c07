"""Opening a DuckDB file, and what DuckDB's errors mean for the user."""

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

import duckdb

from rankscope.errors import DatabaseError
from rankscope.util.threads import cores_to_use

IN_USE = "is in use by"
NOT_OURS = "is no rankscope database"

MAGIC, MAGIC_AT = b"DUCK", 8
"""Magic bytes of DuckDB files and their offset."""

LEAST_FREE = 2**20
"""Free bytes. With fewer, any failure to write counts as a full disk."""

REBUILD_HINT = "ingest the reports again with --rebuild"

OTHER_FILE_HINT = "name another file with --db; reports are named without it"

DAMAGE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
"""Errors that DuckDB raises for a damaged file; for a wrong checksum it raises a plain
`duckdb.Error`. Its other errors are bugs of rankscope."""

PATIENCE_S, POLL_S = 3.0, 0.1
"""Seconds to wait in all for a database that another process uses, and between two attempts."""

AFTERWARDS_S = 60.0
"""Seconds to wait for the database after reports were read: giving up would lose that work."""

LOCK = "lock_configuration"
"""The setting after which no SQL can change settings."""

BUILT_IN = "system.main"
"""The schema of DuckDB's own functions. A file may hold macros that have the names of functions or
operators. A connection that reads finds built-in names first; a file with macros is never written
to."""

LEAST_MEMORY = "128MB"
"""DuckDB's memory limit while a file is read: the memory is left to the frames."""

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "threads": cores_to_use(),  # each one holds memory
}
"""Settings of every connection: SQL in somebody else's file reads and loads nothing else."""

A_FILE = "a database is a file, as rankscope ingest --db FILE makes it"

TO_READ = CONFIG | {"memory_limit": LEAST_MEMORY}
"""Settings of a connection that only reads."""


def connect(
    path: Path, *, read_only: bool, patience_s: float = PATIENCE_S
) -> duckdb.DuckDBPyConnection:
    """A connection to a file that exists or can be created.

    Args:
        patience_s: how long to wait while another process uses it.

    Raises:
        DatabaseError: it is in use, no database, damaged, or cannot be created.
    """
    check_accessible(path)
    if path.is_dir():
        raise DatabaseError(f"{path}: is a folder", hint=A_FILE)
    if path.exists() and not path.is_file():
        raise DatabaseError(f"{path}: is no regular file", hint=A_FILE)
    if path.exists() and not os.access(path, os.R_OK):
        raise DatabaseError(f"{path}: may not be read", hint="check its permissions")
    limit = time.monotonic() + patience_s
    while True:
        try:
            connection = _connect(path, read_only)
            break
        except duckdb.Error as error:
            if not _is_locked(error) or time.monotonic() > limit:
                raise _opening_error(path, error) from error
        time.sleep(POLL_S)
    if not read_only:
        _remove_spilled(path)
    return connection


def _connect(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the file; a file of another format, which DuckDB would open in memory, fails.

    The file is not opened here to look at its magic bytes: when a process closes a file, POSIX
    releases all of its locks on it, those of its other connections too.
    """
    connection = duckdb.connect(
        path.absolute().as_posix(),  # `md:run.duckdb` and `:memory:` are files of ours
        read_only=read_only,
        config=TO_READ if read_only else CONFIG,
    )
    [(name, stored)] = connection.execute(
        f"select database_name, path from {BUILT_IN}.duckdb_databases() where not internal"
    ).fetchall()
    if stored is None:
        connection.close()
        raise duckdb.IOException("no DuckDB file")
    if read_only:
        order = f"{BUILT_IN},{identifier(name)}.main".replace("'", "''")
        connection.execute(f"set search_path = '{order}'")
    return connection


def identifier(name: str) -> str:
    """A name as SQL writes it, whatever its characters are."""
    return '"' + name.replace('"', '""') + '"'


def _remove_spilled(path: Path) -> None:
    """Remove the spill files that killed processes left beside the database.

    Call it with the database open for writing, which is exclusive: every other process that has
    spill files there has ended.
    """
    folder = path.with_name(f"{path.name}.tmp")
    for each in folder.glob("duckdb_temp_*"):
        if not each.name.startswith(f"duckdb_temp_{os.getpid()}_"):
            each.unlink(missing_ok=True)
    with suppress(OSError):  # most often there is none
        folder.rmdir()


def is_damage(error: duckdb.Error) -> bool:
    """Whether an error means that the file is damaged."""
    return isinstance(error, DAMAGE) or type(error) is duckdb.Error


def allow_memory(connection: duckdb.DuckDBPyConnection) -> None:
    """Lift the memory limit of a connection that reads and lock its settings, if not yet locked."""
    settings = connection.execute(f"select current_setting('{LOCK}')")
    if settings.fetchall() == [(False,)]:
        connection.execute("reset memory_limit")
        connection.execute(f"set {LOCK} = true")


def check_accessible(path: Path) -> None:
    """Raises `DatabaseError` for a path in a folder that may not be entered."""
    try:
        path.stat()
    except PermissionError as error:
        raise DatabaseError(
            f"{path}: may not be accessed", hint="check the permissions of its folder"
        ) from error
    except OSError:
        return


def _is_locked(error: duckdb.Error) -> bool:
    """Whether the file is in use: by another process, or by this one with other settings."""
    otherwise = isinstance(error, duckdb.ConnectionException)
    return otherwise or re.search(r"\block\b", str(error), re.IGNORECASE) is not None


def _opening_error(path: Path, error: duckdb.Error) -> DatabaseError:
    """The `DatabaseError` for DuckDB's error about a file that it cannot open."""
    text = str(error)
    if _is_locked(error):
        holder = re.search(r"\(PID (\d+)\)", text)
        other = "another process" + (f" (process {holder[1]})" if holder else "")
        user, hint = other, "wait until it is done, or name another --db"
        if isinstance(error, duckdb.ConnectionException):
            user, hint = "this process", "close its other connections to the file, or use Run.sql"
        return DatabaseError(f"{path}: {IN_USE} {user}", hint=hint)
    if not path.parent.is_dir():
        return not_created(path, text)
    if full := disk_full(path, error):
        return full
    if "newer" in text or "version number" in text:
        return DatabaseError(f"{path}: was written by another version of DuckDB", hint=REBUILD_HINT)
    if not path.exists():
        return not_created(path, first_line(error))
    is_damaged = _looks_like_duckdb(path)
    ours = is_damaged or path.suffix == ".duckdb"  # by its name: damaged beyond its first bytes
    hint = REBUILD_HINT if ours else OTHER_FILE_HINT
    return DatabaseError(f"{path}: {'is damaged' if is_damaged else NOT_OURS}", hint=hint)


def not_created(path: Path, why: str) -> DatabaseError:
    """The error for a database that cannot be created."""
    if not os.path.isdir(path.parent):
        return DatabaseError(
            f"{path}: cannot be created, for there is no folder {path.parent}",
            hint="make the folder, or name another file with --db",
        )
    return DatabaseError(
        f"{path}: cannot be created ({why})",
        hint="name a --db in a folder with room where you may write",
    )


def disk_full(path: Path, error: duckdb.Error | OSError) -> DatabaseError | None:
    """The error for a full disk; None if the disk is not full."""
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
