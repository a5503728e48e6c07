"""The ledger of a fleet: a file that keeps the findings about hardware after runs are deleted.

Several processes may add to it: DuckDB lets one of them write at a time, and the others wait.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl
from msgspec.structs import replace

from rankscope.errors import DatabaseError
from rankscope.model.columns import Table
from rankscope.store.connection import IN_USE, REBUILD_HINT, connect, disk_full, first_line
from rankscope.store.contents import check_columns, check_rows
from rankscope.store.ddl import SQL_TYPES
from rankscope.store.door import clear_errors
from rankscope.store.migrations import LEDGER, foreign_sql, present_columns
from rankscope.store.tables import fetched

WAIT_S = 60.0
"""Time that a process waits for the others before it gives up, s."""

PAUSE_S = 0.05
"""Time between two attempts, s."""

UNFINISHED_BYTES = 4096
"""A smaller file may be one that another process is still creating."""

OTHER_HINT = "name another file with --store"


class Ledger:
    """A ledger: tables of rows that belong to runs; each has a column `run`."""

    def __init__(self, path: Path, tables: Mapping[str, Table], wait_s: float = WAIT_S) -> None:
        """The ledger at `path`, which need not exist yet.

        Args:
            tables: name → table of the ledger.
            wait_s: how long to wait for other processes, s.
        """
        self.path = path
        self._tables = {f"{LEDGER}{name}": table for name, table in tables.items()}
        self._wait_s = wait_s

    def add(self, tables: Mapping[str, pl.DataFrame]) -> None:
        """Write rows, in place of those that their runs had, in one transaction.

        Raises:
            DatabaseError: it cannot be written, is no ledger, or stays in use for too long.
        """
        with self._opened(read_only=False) as connection:
            try:
                connection.begin()
                for name, table in self._tables.items():
                    self._prepare(connection, name, table.schema)
                for name, frame in tables.items():
                    connection.register("incoming", frame)
                    connection.execute(
                        f"delete from {LEDGER}{name} where run in (select run from incoming)"
                    )
                    connection.execute(f"insert into {LEDGER}{name} by name from incoming")
                    connection.unregister("incoming")
                connection.commit()
            except duckdb.Error as error:
                full = disk_full(self.path, error)
                raise full or DatabaseError(
                    f"{self.path}: cannot be written ({first_line(error)})",
                    hint=OTHER_HINT,
                ) from error

    def read(self) -> dict[str, pl.DataFrame]:
        """Its tables; a column that an older rankscope did not write is null.

        Raises:
            DatabaseError: there is none, it is no ledger, or it stays in use for too long.
        """
        if not self.path.exists():
            raise DatabaseError(
                f"{self.path}: no such ledger",
                hint=f"make it: rankscope fleet --store {self.path.name} add RUN.duckdb",
            )
        with self._opened(read_only=True) as connection, clear_errors(self.path, OTHER_HINT):
            present = present_columns(connection)
            return {
                name.removeprefix(LEDGER): _read(connection, name, table, present)
                for name, table in self._tables.items()
            }

    @contextmanager
    def _opened(self, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection, once no other process writes to the file."""
        until = time.monotonic() + self._wait_s
        while True:
            try:
                connection = connect(self.path, read_only=read_only)
                break
            except DatabaseError as error:
                begun = self.path.exists() and self.path.stat().st_size < UNFINISHED_BYTES
                if time.monotonic() > until or not (IN_USE in error.message or begun):
                    hint = OTHER_HINT if error.hint == REBUILD_HINT else error.hint
                    raise DatabaseError(error.message, hint=hint) from error
            time.sleep(PAUSE_S)
        try:
            self._check(connection, write=not read_only)
            yield connection
        finally:
            connection.close()

    def _check(self, connection: duckdb.DuckDBPyConnection, *, write: bool) -> None:
        """Raises `DatabaseError` if the file is no ledger."""
        with clear_errors(self.path, OTHER_HINT):
            names = {table for table, _ in present_columns(connection)}  # and of views
            foreign = foreign_sql(connection, write=write)
        if foreign or (names and not names >= {*self._tables}):
            raise DatabaseError(f"{self.path}: is no ledger of a fleet", hint=OTHER_HINT)

    def _prepare(self, connection: duckdb.DuckDBPyConnection, name: str, schema: pl.Schema) -> None:
        columns = {each: SQL_TYPES[dtype] for each, dtype in schema.items()}
        listed = ", ".join(f'"{each}" {type_}' for each, type_ in columns.items())
        connection.execute(f"create table if not exists {name} ({listed})")
        for each, type_ in columns.items():
            connection.execute(f'alter table {name} add column if not exists "{each}" {type_}')


def _read(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: Table,
    present: Mapping[tuple[str, str], str],
) -> pl.DataFrame:
    """A table, checked; nullable columns that the file lacks are null.

    Raises:
        BadContents: the table holds something that no rankscope writes.
    """
    columns = {column: kind for (owner, column), kind in present.items() if owner == name}
    missing = check_columns(name, table, columns)
    stored = {column: each for column, each in table.columns.items() if column not in missing}
    check_rows(connection, name, replace(table, columns=stored))
    listed = ", ".join(f'"{column}"' for column in stored)
    rows = fetched(connection.sql(f"select {listed} from {name}"))
    nulls = (pl.lit(None, table.schema[column]).alias(column) for column in missing)
    return rows.with_columns(*nulls).select(table.schema.names())
