"""Tables of the stored comparison; all are replaced after reports were written."""

from __future__ import annotations

import duckdb
import polars as pl

from rankscope.model.tables import COMPARED_TABLES, compared_meaning
from rankscope.store.ddl import comment_on_column, comment_on_table
from rankscope.store.row_groups import in_row_groups


def replace_tables(connection: duckdb.DuckDBPyConnection, tables: dict[str, pl.DataFrame]) -> None:
    """Put `tables` in place of those there were; of `COMPARED_TABLES` none other stays."""
    for table, meaning in COMPARED_TABLES.items():
        connection.execute(f"drop table if exists {table}")
        if table not in tables:
            continue
        connection.register("incoming", in_row_groups(tables[table]))
        connection.execute(f"create table {table} as select * from incoming")
        connection.unregister("incoming")
        connection.execute(comment_on_table(table, meaning))
        for name in tables[table].columns:
            connection.execute(comment_on_column(table, name, compared_meaning(name)))
