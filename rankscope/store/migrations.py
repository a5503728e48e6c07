"""Databases of older schemas.

Two kinds of change:

- A nullable column is added to a stored table (a new metric, say). The schema version stays. A
  process that writes adds the column to the file. A process that only reads sees a temporary view
  in which the column is null; the file is not touched. A table that is marked as later
  (`Table.is_later`) is handled likewise: the view has no rows.
- Anything else raises `SCHEMA_VERSION`. A database of another version is refused with an error that
  names the reports to read again.
"""

import logging
from collections.abc import Mapping, Sequence

import duckdb

from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.tables import TABLES
from rankscope.store.connection import BUILT_IN, identifier
from rankscope.store.contents import check_columns
from rankscope.store.ddl import SQL_TYPES, add_column, create_table
from rankscope.util.sanitize import sanitized

LONGEST_NAME = 60
"""Most characters of a macro in an error."""

SCHEMA_VERSION = 2
"""The version that this rankscope reads and writes. From 1 to 2: `activities` are stored."""

LEDGER = "fleet_"
"""Prefix of the names of a ledger's tables; a run's database has no such tables."""

LOG = logging.getLogger("rankscope.store")


def present_columns(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], str]:
    """(Table, column) → SQL type, of everything in the file; empty for a computed column."""
    rows = connection.execute(
        "select table_name, column_name, data_type, column_default "
        f"from {BUILT_IN}.duckdb_columns() where not internal and schema_name = 'main'"
    ).fetchall()
    return {
        (str(table), str(column)): "" if default else str(kind).lower()
        for table, column, kind, default in rows
    }


def missing_columns(present: Mapping[tuple[str, str], str]) -> dict[str, list[str]]:
    """Table → columns of the schema that a file lacks; for a later table all of its columns.

    Args:
        present: `present_columns` of the file.

    Raises:
        BadContents: the file lacks a table or a column that may not be null, or a column has
            another type.
    """
    columns: dict[str, dict[str, str]] = {}
    for (table, column), kind in present.items():
        columns.setdefault(table, {})[column] = kind
    missing: dict[str, list[str]] = {}
    for name, described in TABLES.items():
        if described.is_later and name not in columns:
            missing[name] = [*described.columns]
        elif lacking := check_columns(name, described, columns.get(name, {})):
            missing[name] = lacking
    return missing


def foreign_sql(connection: duckdb.DuckDBPyConnection, *, write: bool) -> str | None:
    """Which SQL in the file could run, in words; None: none.

    It is a view in place of a table of ours or, where the file is written to, a macro, which may
    have the name of any function or operator.
    """
    views = connection.execute(
        f"select view_name from {BUILT_IN}.duckdb_views() where not internal"
    )
    ours = {*TABLES, *COMPARED_TABLES}
    for (name,) in views.fetchall():
        if name.lower() in ours or name.lower().startswith(LEDGER):
            return f"its {sanitized(name)} is a view"
    if write:
        macros = connection.execute(
            f"select function_name from {BUILT_IN}.duckdb_functions() where not internal limit 1"
        )
        for (name,) in macros.fetchall():
            return f"it holds the macro {sanitized(name, LONGEST_NAME)}"
    return None


def add_columns(connection: duckdb.DuckDBPyConnection, missing: dict[str, list[str]]) -> None:
    """Add columns to the file; they are null in existing rows."""
    for table, columns in missing.items():
        if len(columns) == len(TABLES[table].columns):
            connection.execute(create_table(table, TABLES[table]))
            LOG.info("table %s is new: empty for reports ingested before", table)
            continue
        for name in columns:
            connection.execute(add_column(table, name, TABLES[table].columns[name]))
            LOG.info("column %s.%s is new: null for reports ingested before", table, name)


def show_columns(
    connection: duckdb.DuckDBPyConnection, missing: Mapping[str, Sequence[str]]
) -> None:
    """Add temporary views in which the columns that a file lacks are null."""
    catalogs = f"select database_name from {BUILT_IN}.duckdb_databases() where not internal"
    [catalog] = connection.execute(catalogs).fetchone() or [""]
    file = identifier(catalog)  # without it, a view would refer to itself
    for table, columns in missing.items():
        nulls = ", ".join(
            f'null::{SQL_TYPES[TABLES[table].columns[name].dtype]} as "{name}"' for name in columns
        )
        source = f"select *, {nulls} from {file}.main.{table}"
        if len(columns) == len(TABLES[table].columns):
            source = f"select {nulls} where false"
        connection.execute(f"create temp view {table} as {source}")
