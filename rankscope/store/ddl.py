"""The SQL that creates a run's tables, from `model/tables.py`.

`python -m tests.store.schema_file` writes it to `schema.sql`, for readers and reviewers; databases
are created from `ddl()` itself.
"""

import polars as pl

from rankscope.model.columns import Column, Table
from rankscope.model.tables import TABLES

SQL_TYPES = {
    pl.Int64(): "bigint",
    pl.Float64(): "double",
    pl.String(): "varchar",
    pl.Boolean(): "boolean",
    pl.List(pl.Int64()): "bigint[]",
    pl.List(pl.Int32()): "integer[]",
    pl.UInt32(): "uinteger",
}
"""Dtype → its type in DuckDB."""

_HEAD = """\
-- One run: the reports of one profiled job, reduced to what comparing its ranks needs.
-- Written by `python -m tests.store.schema_file` from rankscope/model/tables.py: edit that.
-- Times are nanoseconds on the report's own axis (0 = its session start) unless said otherwise.
"""


def ddl() -> str:
    """The statements that create every stored table, with a comment on each table and column."""
    return "\n".join([_HEAD, *(create_table(name, table) for name, table in TABLES.items())])


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def comment_on_table(table: str, meaning: str) -> str:
    """The statement that comments a table."""
    return f"comment on table {table} is {quoted(meaning)};"


def comment_on_column(table: str, column: str, meaning: str) -> str:
    """The statement that comments a column."""
    return f'comment on column {table}."{column}" is {quoted(meaning)};'


def add_column(table: str, name: str, column: Column) -> str:
    """The statements that add a column to a table that lacks it; its values are null."""
    type_ = SQL_TYPES[column.dtype]
    return (
        f'alter table {table} add column "{name}" {type_};\n'
        f"{comment_on_column(table, name, column.meaning)}"
    )


def create_table(name: str, table: Table) -> str:
    """The statements that create a table with its comments."""
    columns = ",\n".join(
        f'    "{each}" {SQL_TYPES[column.dtype]}{_constraint(table, each)}'
        for each, column in table.columns.items()
    )
    comments = "\n".join(
        comment_on_column(name, each, column.meaning) for each, column in table.columns.items()
    )
    return (
        f"create table {name} (\n{columns}\n);\n{comment_on_table(name, table.meaning)}\n"
        f"{comments}\n"
    )


def _constraint(table: Table, column: str) -> str:
    if table.key == (column,):
        return " primary key"
    return "" if table.columns[column].is_nullable else " not null"
