"""The DuckDB file of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import duckdb
import polars as pl
from msgspec.structs import replace

from rankscope.errors import DatabaseError, UsageError
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.schema import conform
from rankscope.model.tables import PER_RANK, TABLES
from rankscope.store.checked import identity, remember, remembered
from rankscope.store.connection import (
    BUILT_IN,
    LEAST_MEMORY,
    NOT_OURS,
    OTHER_FILE_HINT,
    PATIENCE_S,
    REBUILD_HINT,
    allow_memory,
    check_accessible,
    connect,
    disk_full,
    first_line,
    is_damage,
    not_created,
)
from rankscope.store.ddl import comment_on_column, comment_on_table, ddl
from rankscope.store.door import (
    Known,
    check_table,
    clear_errors,
    damaged,
    enter,
    enter_again,
    facts,
    is_run,
)
from rankscope.store.migrations import SCHEMA_VERSION
from rankscope.store.tables import TableRequest, read_table
from rankscope.util.atomic_io import exists, take_place
from rankscope.util.scratch import scratch_beside
from rankscope.util.wording import and_more

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 122_880
"""Rows of a row group of DuckDB, which writes a batch of this size directly. Smaller batches, such
as one per report, are merged first, which took a quarter of the time of writing."""


def in_row_groups(frame: pl.DataFrame) -> pa.RecordBatchReader:
    """The rows of `frame`, once, in batches that each fill a row group; the last may be smaller.

    Batches are converted one by one: all of them would need as much memory as the frame.
    """
    import pyarrow as pa  # reading does without it

    def batches() -> Iterator[pa.RecordBatch]:
        for part in frame.iter_slices(ROW_GROUP):
            yield from part.rechunk().to_arrow().to_batches()

    return pa.RecordBatchReader.from_batches(frame.clear().to_arrow().schema, batches())


class Database:
    """A run's file; use as a context manager."""

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self.path = path
        self._connection = connection
        self._known = Known()

    @property
    def known(self) -> Known:
        """What was checked of the file, for `reopen`."""
        return self._known

    @classmethod
    def open(cls, path: Path, *, write: bool = False, patience_s: float = PATIENCE_S) -> Self:
        """Open an existing run, read-only unless `write`.

        Args:
            patience_s: how long to wait while another process uses it.

        Raises:
            DatabaseError: missing, locked, damaged, or of another version.
        """
        if not exists(path):
            check_accessible(path)
            raise DatabaseError(f"{path}: no such database", hint=hint_for_missing(path))
        file = identity(path)
        database = cls(path, connect(path, read_only=not write, patience_s=patience_s))
        try:
            with clear_errors(path), database.transaction() if write else nullcontext():
                known = enter(database._connection, path, write=write)
            known.checked.update(dict.fromkeys(remembered(file)))
            database._known = replace(known, file=file)
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def reopen(cls, path: Path, known: Known) -> Self:
        """Open for reading a run that `open` has checked and that has not changed since.

        Raises:
            DatabaseError: missing, locked or damaged.
        """
        database = cls(path, connect(path, read_only=True))
        with clear_errors(path):
            enter_again(database._connection, known)
        database._known = known
        return database

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open the run at `path` for writing; create an empty one if there is none.

        Raises:
            DatabaseError: the folder cannot be written to, or another process uses the run.
        """
        is_new = False
        try:
            with scratch_beside(path) as making, suppress(FileExistsError):
                cls._make(making)
                take_place(making, path)  # nobody ever sees a database without its schema
                is_new = True
        except DatabaseError as error:
            text = error.message.replace(str(making), str(path))
            raise DatabaseError(text, hint=error.hint) from error
        except OSError as error:
            full = disk_full(path, error) if exists(path.parent) else None
            raise full or not_created(path, error.strerror or "") from error
        if not is_new:
            return cls.open(path, write=True)
        file = identity(path)
        database = cls(path, connect(path, read_only=False))
        if database._is_empty():  # else another process wrote to it first
            # only this process adds rows
            database._known = Known(checked=dict.fromkeys(TABLES), file=file)
        return database

    @classmethod
    def _make(cls, path: Path) -> None:
        """Write a new, empty run."""
        with cls(path, connect(path, read_only=False)) as database:
            with database.transaction():
                database._connection.execute(ddl())
                database._connection.execute(
                    "insert into meta values ('schema_version', ?)", [str(SCHEMA_VERSION)]
                )
            database.checkpoint()  # raises an error for a full disk; closing does not

    @classmethod
    def check_replaceable(cls, path: Path) -> None:
        """Raises `DatabaseError` unless `path` is free or a run, even a damaged one, not in use."""
        check_accessible(path)
        if not exists(path) or (path.is_file() and not path.stat().st_size):
            return
        try:
            with cls(path, connect(path, read_only=True)) as database:
                tables = database._tables()
        except DatabaseError as error:
            if error.hint == REBUILD_HINT:
                return
            raise
        if tables and not is_run(tables):
            raise DatabaseError(f"{path}: {NOT_OURS}", hint=OTHER_FILE_HINT)

    @property
    def name(self) -> str:
        """The name of the run."""
        return self.path.name.removesuffix(".duckdb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was checked of it is remembered."""
        known = self._known
        if known.file and known.file == identity(self.path):
            remember(known.file, [name for name, seen in known.checked.items() if seen is None])
        self._connection.close()

    def shrink_cache(self) -> None:
        """Keep as little of the file in memory as DuckDB needs to read."""
        self._connection.execute(f"set memory_limit = '{LEAST_MEMORY}'")

    def checkpoint(self) -> None:
        """Write everything into the one file, so that a copy of it is complete."""
        try:
            self._connection.execute("checkpoint")
        except duckdb.Error as error:
            raise self._write_error(error) from error
        before, now = self._known.file, identity(self.path)
        is_same = before.split()[:2] == now.split()[:2]  # device and inode: none took its place
        self._known = replace(self._known, file=now if is_same else "")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements within it; roll all of them back on an error."""
        self._connection.begin()
        try:
            yield
        except duckdb.Error as error:
            self._connection.rollback()
            raise self._write_error(error) from error
        except BaseException:
            self._connection.rollback()
            raise
        try:
            self._connection.commit()
        except duckdb.Error as error:
            raise self._write_error(error) from error

    def table(self, name: str) -> pl.DataFrame:
        """A whole table of the schema."""
        return self.read(TableRequest(name))

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows of a table: this is a `TableReader`."""
        with clear_errors(self.path):
            try:
                return self._read(request)
            except duckdb.Error as error:
                if not (is_damage(error) or isinstance(error, duckdb.OutOfMemoryException)):
                    raise
                # DuckDB can spill to a folder beside the file, unless that folder is not writable
                allow_memory(self._connection)
            return self._read(request)

    def _read(self, request: TableRequest) -> pl.DataFrame:
        values = request.columns if request.distinct else None
        check_table(self._connection, request.table, self._known, request.iterations, values)
        if request.columns is None:  # a file may have other columns, too, or another order
            columns = (TABLES.get(request.table) or COMPARED_TABLES[request.table]).columns
            request = replace(request, columns=[*columns])
        return read_table(self._connection, request)

    def meta(self) -> dict[str, str]:
        """The table `meta`: key → value."""
        with clear_errors(self.path):
            return facts(self._connection)

    @cached_property
    def compared(self) -> frozenset[str]:
        """The `COMPARED_TABLES` in the file that match its reports. Open for reading only."""
        return frozenset(COMPARED_TABLES).intersection(self._tables() if self.is_finished else ())

    def check_compared(self) -> None:
        """Raises `DatabaseError` if one of the `COMPARED_TABLES` has impossible contents."""
        with clear_errors(self.path):
            for name in sorted(COMPARED_TABLES.keys() & {*self._tables()}):
                check_table(self._connection, name, self._known)

    def comparison_table(self, name: str) -> pl.DataFrame | None:
        """One of `COMPARED_TABLES`; None unless it matches the reports in the database."""
        return self.table(name) if name in self.compared else None

    @staticmethod
    def state(path: Path) -> tuple[int, ...]:
        """A fingerprint that differs after every change of the file; empty while there is none."""
        files = (path, Path(f"{path}.wal"))
        stats = [file.stat() for file in files if exists(file)]
        return tuple(
            each for stat in stats for each in (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        )

    @property
    def is_finished(self) -> bool:
        """Whether `rank_iterations` matches the reports in the database."""
        return "rank_iterations_clock" in self.meta()

    def write(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Write the rows of reports, in place of those that their paths had, in one transaction."""
        with self.transaction():
            self._forget(tables["reports"]["path"].to_list())
            for name, frame in tables.items():
                self._append(name, frame)

    def remove(self, paths: list[str]) -> None:
        """Remove reports and their rows."""
        with self.transaction():
            self._forget(paths)

    def move(self, old: str, new: str) -> None:
        """Change the path of a report that was moved."""
        with self.transaction():
            for table in ("reports", "ranks", "problems"):
                self._connection.execute(f"update {table} set path = ? where path = ?", [new, old])

    def note(self, key: str, value: str) -> None:
        """Set a key of `meta`."""
        with self.transaction():
            self._connection.execute("insert or replace into meta values (?, ?)", [key, value])

    def replace_comparison(
        self, rank_iterations: pl.DataFrame, clock: str, tables: dict[str, pl.DataFrame]
    ) -> None:
        """Store the comparison of the reports in the database.

        Args:
            rank_iterations: the table of this name.
            clock: the clock that its times are on.
            tables: others of `COMPARED_TABLES`; those not in it are dropped.
        """
        allow_memory(self._connection)  # with less, one thread compresses after the other
        with self.transaction():
            replace_tables(self._connection, {"rank_iterations": rank_iterations, **tables})
            checked = {name: seen for name, seen in self._known.checked.items() if name in TABLES}
            self._known = Known(self._known.missing, checked, file=self._known.file)
            self._connection.execute(
                "insert or replace into meta values ('rank_iterations_clock', ?)", [clock]
            )

    def query(self, sql: str) -> pl.DataFrame:
        """The result of a query, as a frame; it can read this database and nothing else.

        DuckDB's default memory limit applies.

        Raises:
            UsageError: the query is wrong.
        """
        allow_memory(self._connection)
        try:
            relation = self._connection.sql(sql)
            frame: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
        except duckdb.Error as error:
            raise UsageError(
                f"query failed: {first_line(error)}",
                hint="tables: " + ", ".join(self._tables()),
            ) from error
        return frame

    def _is_empty(self) -> bool:
        """Whether all tables but `meta` are empty."""
        has_rows = (f'exists(select 1 from "{name}")' for name in TABLES if name != "meta")
        with clear_errors(self.path):
            [row] = self._connection.execute(f"select {' or '.join(has_rows)}").fetchall()
        return not row[0]

    def _tables(self) -> list[str]:
        rows = self._connection.execute(
            f"select table_name from {BUILT_IN}.duckdb_tables()"
        ).fetchall()
        return sorted(str(name) for (name,) in rows)

    def _forget(self, paths: list[str]) -> None:
        """Remove the rows of reports that are stored; the comparison no longer matches."""
        self._connection.execute("delete from meta where key = 'rank_iterations_clock'")
        stored = self._connection.execute(
            "select path from reports where path in (select unnest(?))", [paths]
        ).fetchall()
        if not stored:
            return
        old = [[path for (path,) in stored]]
        ranks_of_reports = "(select rank from ranks where path in (select unnest(?)))"
        for table in PER_RANK:
            self._connection.execute(f"delete from {table} where rank in {ranks_of_reports}", old)
        for table in ("ranks", "problems", "reports"):
            self._connection.execute(f"delete from {table} where path in (select unnest(?))", old)

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        if frame.is_empty():
            return
        self._connection.register("incoming", in_row_groups(frame))
        self._connection.execute(f"insert into {table} by name select * from incoming")
        self._connection.unregister("incoming")

    def _write_error(self, error: duckdb.Error) -> Exception:
        """The error for a full disk or a damaged file; any other error is a bug, unchanged."""
        if full := disk_full(self.path, error):
            return full
        wrong = is_damage(error) or isinstance(error, duckdb.ConstraintException)
        return damaged(self.path, error) if wrong else error


def replace_tables(connection: duckdb.DuckDBPyConnection, tables: dict[str, pl.DataFrame]) -> None:
    """Replace all `COMPARED_TABLES` of a database by `tables`; those not in it are dropped."""
    for name, table in COMPARED_TABLES.items():
        connection.execute(f"drop table if exists {name}")
        if name not in tables:
            continue
        frame = conform(tables[name], table.schema)
        connection.register("incoming", in_row_groups(frame))
        connection.execute(f"create table {name} as select * from incoming")
        connection.unregister("incoming")
        connection.execute(comment_on_table(name, table.meaning))
        for column, described in table.columns.items():
            connection.execute(comment_on_column(name, column, described.meaning))


MOST_NEARBY = 8
"""Most databases that a hint lists."""


def databases_in(folder: Path) -> list[Path]:
    """The databases in a folder, by the endings of their names; none if it cannot be read."""
    try:
        return sorted(each for each in folder.glob("*.duckdb") if each.is_file())
    except OSError:
        return []


def hint_for_missing(path: Path) -> str:
    """A hint for a missing database: the databases in its folder, and how to make one."""
    how_to_make = "make it: rankscope ingest PROFILES --db FILE"
    nearby = databases_in(path.parent)
    if not nearby:
        return how_to_make
    names = and_more([shlex.quote(str(each)) for each in nearby], MOST_NEARBY)
    return f"there {'is' if len(nearby) == 1 else 'are'} {names}; or {how_to_make}"
