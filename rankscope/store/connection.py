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
"""Magic bytes of DuckDB files and their place."""

LEAST_FREE = 2**20
"""With less room than this left, what failed failed for want of room."""

REBUILD_HINT = "ingest the reports again with --rebuild"

DAMAGE = (
    duckdb.IOException,
    duckdb.SerializationException,
    duckdb.FatalException,
    duckdb.InternalException,
)
"""What DuckDB raises when it reads a damaged file. Its other errors are bugs of rankscope, but for
those of no class: a checksum that is wrong."""


PATIENCE_S, POLL_S = 3.0, 0.1
"""Seconds to wait for a database that another process uses, and between two attempts."""

AFTERWARDS_S = 60.0
"""The same for a process that has read reports, which it stores or shows."""

LOCK = "lock_configuration"
"""The setting after which no SQL can change settings."""

BUILT_IN = "system.main"
"""Where DuckDB's own functions are. A file may hold macros of the same names, operators among them:
a connection that reads finds the built-in ones first, and a file with macros is not written to."""

LEAST_MEMORY = "128MB"
"""What DuckDB may keep of a file where memory is wanted for the frames that are read from it."""

CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "threads": cores_to_use(),  # each one holds memory
}
"""Settings of every connection: SQL in somebody else's file reads and loads nothing else."""

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
        raise DatabaseError(f"{path}: is a folder", hint="name a file with --db")
    if path.exists() and not path.is_file():
        raise DatabaseError(f"{path}: is no regular file", hint="name a file with --db")
    if path.exists() and not os.access(path, os.R_OK):
        raise DatabaseError(f"{path}: may not be read", hint="check its permissions")
    limit = time.monotonic() + patience_s
    while True:
        try:
            connection = _connected(path, read_only)
            break
        except duckdb.Error as error:
            if not _is_locked(error) or time.monotonic() > limit:
                raise _translated(path, error) from error
        time.sleep(POLL_S)
    if not read_only:
        _remove_spilled(path)
    return connection


def _connected(path: Path, read_only: bool) -> duckdb.DuckDBPyConnection:
    """A connection to the file; of other formats DuckDB opens some, but in memory.

    The file itself is not opened to see what it is: when a process closes a file, the system
    takes back all locks on it, those of its other connections as well.
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
    """Remove what did not fit into the memory of processes that were killed.

    DuckDB keeps it beside the file. Who opened the file to write to it is alone with it: what
    others keep there is of processes that have ended.
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
    """Take back the limit of a connection that reads; its settings are locked from then on."""
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
    """Whether somebody uses the file: a process, or this one in another way."""
    otherwise = isinstance(error, duckdb.ConnectionException)
    return otherwise or re.search(r"\block\b", str(error), re.IGNORECASE) is not None


def _translated(path: Path, error: duckdb.Error) -> DatabaseError:
    """DuckDB's error about a file that it cannot open, in plain words."""
    text = str(error)
    if _is_locked(error):
        holder = re.search(r"\(PID (\d+)\)", text)
        other = "another process" + (f" (process {holder[1]})" if holder else "")
        who = "this process" if isinstance(error, duckdb.ConnectionException) else other
        return DatabaseError(
            f"{path}: {IN_USE} {who}", hint="wait until it is done, or name another --db"
        )
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
    hint = REBUILD_HINT if ours else "name another file with --db"
    return DatabaseError(f"{path}: {'is damaged' if is_damaged else NOT_OURS}", hint=hint)


def not_created(path: Path, why: str) -> DatabaseError:
    """The error for a database that cannot be made."""
    if not os.path.isdir(path.parent):
        return DatabaseError(
            f"{path}: cannot be created, for there is no folder {path.parent}",
            hint="make the folder, or name another file with --db",
        )
    return DatabaseError(
        f"{path}: cannot be created ({why})", hint="may you write to its folder, and is there room?"
    )


def disk_full(path: Path, error: duckdb.Error | OSError) -> DatabaseError | None:
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
