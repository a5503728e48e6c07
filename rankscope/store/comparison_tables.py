"""Tables of the stored comparison; all are replaced after reports were written."""

from __future__ import annotations

import duckdb
import polars as pl

from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.schema import conform
from rankscope.store.ddl import comment_on_column, comment_on_table
from rankscope.store.row_groups import in_row_groups


def replace_tables(connection: duckdb.DuckDBPyConnection, tables: dict[str, pl.DataFrame]) -> None:
    """Put `tables` in place of those there were; of `COMPARED_TABLES` none other stays."""
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
