"""The DuckDB file of a run. The only importer of duckdb."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb
import polars as pl

from rankscope.errors import DatabaseError, UsageError
from rankscope.store.comparison_tables import replace_derived
from rankscope.store.reader import read_table

SCHEMA_VERSION = 2

IN_USE = "is in use by another process"
NOT_OURS = "is no rankscope database"

MAGIC, MAGIC_AT = b"DUCK", 8
"""What stands where in every DuckDB file."""

LEAST_FREE = 2**20
"""With less room than this left, what failed failed for want of room."""

LEAST_MEMORY = "256MB"
"""What DuckDB works in where memory is wanted for other things."""

REBUILD_HINT = "ingest the reports again with --rebuild"


class Database:
    """A run's file; use as a context manager."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path, *, write: bool = False) -> Self:
        """Open an existing run, read-only unless `write`.

        Raises:
            DatabaseError: missing, locked, damaged, or of another version.
        """
        if not path.exists():
            raise DatabaseError(
                f"{path}: no such database", hint="make it: rankscope ingest PROFILES --db FILE"
            )
        database = cls(path, _connect(path, read_only=not write))
        database._check_version()
        return database

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new, empty run at `path`, which must not exist.

        Raises:
            DatabaseError: the folder cannot be written to.
        """
        making = path.with_name(f"{path.name}.{os.getpid()}.new")
        making.unlink(missing_ok=True)
        schema = files(__package__).joinpath("schema.sql").read_text("utf-8")
        try:
            database = cls(making, _connect(making, read_only=False))
            with database:
                with database.transaction():
                    database._connection.execute(schema)
                    database._connection.execute(
                        "insert into meta values ('schema_version', ?)", [str(SCHEMA_VERSION)]
                    )
                database.settle()  # closing says nothing of a full disk
            making.rename(path)  # so that a database without its schema is never seen
        except DatabaseError as error:
            told = error.message.replace(str(making), str(path))
            raise DatabaseError(told, hint=error.hint) from error
        finally:
            making.unlink(missing_ok=True)
            making.with_name(f"{making.name}.wal").unlink(missing_ok=True)
        return cls.open(path, write=True)

    @classmethod
    def check_replaceable(cls, path: Path) -> None:
        """Raises `DatabaseError` unless `path` is free, a run, or a damaged one nobody uses."""
        if not path.exists() or (path.is_file() and not path.stat().st_size):
            return
        try:
            with cls(path, _connect(path, read_only=False)) as database:
                tables = database._tables()
        except DatabaseError as error:
            if error.hint == REBUILD_HINT:
                return
            raise
        if tables and "rank_iterations" not in tables and "reports" not in tables:
            raise DatabaseError(f"{path}: {NOT_OURS}", hint="name another file with --db")

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.path.name.removesuffix(".rebuild").removesuffix(".duckdb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def keep_little(self) -> None:
        """Let others have the memory: from now on no more of the file stays there than must."""
        self._connection.execute(f"set memory_limit = '{LEAST_MEMORY}'")

    def settle(self) -> None:
        """Bring everything into the one file, so that a copy of it is whole."""
        try:
            self._connection.execute("checkpoint")
        except duckdb.Error as error:
            raise self._unwritten(error) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._connection.begin()
        try:
            yield
        except duckdb.Error as error:
            self._connection.rollback()
            raise self._unwritten(error) from error
        except BaseException:
            self._connection.rollback()
            raise
        try:
            self._connection.commit()
        except duckdb.Error as error:
            raise self._unwritten(error) from error

    def table(self, name: str) -> pl.DataFrame:
        """A whole table of the schema."""
        return self.some(name)

    def some(
        self,
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        """A table of the schema, or a part of it: a `frames.Source`."""
        try:
            return read_table(self._connection, table, columns, ranks, iterations, narrow)
        except duckdb.Error as error:
            raise self._damaged(error) from error

    def meta(self) -> dict[str, str]:
        """What the file says about itself."""
        return dict(self.table("meta").iter_rows())

    def derived(self, name: str) -> pl.DataFrame | None:
        """A table of `derived.TABLES`; None unless it speaks of the reports as they are."""
        return self.table(name) if self.is_finished and name in self._tables() else None

    @staticmethod
    def state(path: Path) -> tuple[int, ...]:
        """Numbers that are others after every change; also while there is no file."""
        files = (path, path.with_name(path.name + ".wal"))
        stats = [file.stat() for file in files if file.exists()]
        return tuple(
            each for stat in stats for each in (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        )

    @property
    def is_finished(self) -> bool:
        """Whether `rank_iterations` speaks of the reports as they are."""
        return "rank_iterations_clock" in self.meta()

    def write(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Put rows of reports in, in place of what their paths had, whole or not at all.

        Args:
            tables: table → its rows, those of `reports` among them.
        """
        with self.transaction():
            self._forget(tables["reports"]["path"].to_list())
            self._connection.execute("delete from meta where key = 'rank_iterations_clock'")
            for name, frame in tables.items():
                self._append(name, frame)

    def move(self, old: str, new: str) -> None:
        """Note that a report now lies elsewhere."""
        with self.transaction():
            for table in ("reports", "ranks", "problems"):
                self._connection.execute(f"update {table} set path = ? where path = ?", [new, old])

    def replace_derived(
        self, wide: pl.DataFrame, clock: str, tables: dict[str, pl.DataFrame]
    ) -> None:
        """Store what comparing all ranks gave, made anew after every change.

        Args:
            wide: `rank_iterations`.
            clock: that its times are on.
            tables: others of `derived.TABLES`; those that are not among them are dropped.
        """
        with self.transaction():
            replace_derived(self._connection, {"rank_iterations": wide, **tables})
            self._connection.execute(
                "insert or replace into meta values ('rank_iterations_clock', ?)", [clock]
            )

    def query(self, sql: str) -> pl.DataFrame:
        """The result of a query, as a frame; it can read this database and nothing else.

        Raises:
            UsageError: the query is wrong.
        """
        try:
            self._connection.execute("set enable_external_access = false")
            relation = self._connection.sql(sql)
            frame: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
        except duckdb.Error as error:
            raise UsageError(
                f"query failed: {_first_line(error)}",
                hint="tables: " + ", ".join(self._tables()),
            ) from error
        return frame

    def _tables(self) -> list[str]:
        rows = self._connection.execute("select table_name from duckdb_tables()").fetchall()
        return sorted(str(name) for (name,) in rows)

    def _forget(self, paths: list[str]) -> None:
        """Remove what reports had, where they are there."""
        known = self._connection.execute(
            "select path from reports where path in (select unnest(?))", [paths]
        ).fetchall()
        if not known:
            return
        old = [[path for (path,) in known]]
        for table in ("iterations", "measures", "collectives", "exposed", "activities"):
            self._connection.execute(
                f"delete from {table} where rank in "
                "(select rank from ranks where path in (select unnest(?)))",
                old,
            )
        for table in ("ranks", "problems", "reports"):
            self._connection.execute(f"delete from {table} where path in (select unnest(?))", old)

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        if frame.is_empty():
            return
        self._connection.register("incoming", frame)
        self._connection.execute(f"insert into {table} by name select * from incoming")
        self._connection.unregister("incoming")

    def _check_version(self) -> None:
        try:
            version = self.meta().get("schema_version")
        except DatabaseError:
            self._connection.close()
            raise
        if version != str(SCHEMA_VERSION):
            self._connection.close()
            newer = version is not None and version.isdigit() and int(version) > SCHEMA_VERSION
            raise DatabaseError(
                f"{self.path}: has schema version {version}, this rankscope uses {SCHEMA_VERSION}",
                hint="use a newer rankscope" if newer else REBUILD_HINT,
            )

    def _unwritten(self, error: duckdb.Error) -> Exception:
        """A full disk in our words; anything else is a bug and stays as it is."""
        return _full(self.path, error) or error

    def _damaged(self, error: duckdb.Error) -> DatabaseError:
        return DatabaseError(
            f"{self.path}: is damaged or no rankscope database ({_first_line(error)})",
            hint=REBUILD_HINT,
        )


def _connect(path: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
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
    if full := _full(path, error):
        return full
    if "newer" in text or "version number" in text:
        return DatabaseError(f"{path}: was written by another version of DuckDB", hint=REBUILD_HINT)
    if not path.exists():
        return DatabaseError(
            f"{path}: cannot be created ({_first_line(error)})",
            hint="may you write to its folder?",
        )
    return DatabaseError(f"{path}: is damaged", hint=REBUILD_HINT)


def _full(path: Path, error: duckdb.Error) -> DatabaseError | None:
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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
