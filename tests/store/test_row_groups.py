"""Rows on their way into DuckDB."""

import duckdb
import polars as pl

from rankscope.store.database import ROW_GROUP, in_row_groups


def test_batches_fill_groups_whatever_frames_the_rows_came_in() -> None:
    parts = [
        pl.DataFrame({"rank": [rank] * 10_000, "name": f"a name of rank {rank}"})
        for rank in range(30)
    ]
    batches = [*in_row_groups(pl.concat(parts))]
    assert [batch.num_rows for batch in batches] == [ROW_GROUP, ROW_GROUP, 300_000 - 2 * ROW_GROUP]
    joined = pl.concat(pl.DataFrame(batch) for batch in batches)
    assert joined.equals(pl.concat(parts))


def test_groups_of_duckdb_are_full_and_hold_the_rows_in_order() -> None:
    rows = pl.DataFrame({"n": range(3 * ROW_GROUP)}, schema={"n": pl.Int64})
    chunked = pl.concat(rows.iter_slices(1000), rechunk=False)
    with duckdb.connect() as connection:
        connection.register("incoming", in_row_groups(chunked))
        connection.execute("create table stored as select * from incoming")
        assert connection.sql("from stored").pl().equals(rows)
        groups = connection.sql(
            "select sum(count) as rows from pragma_storage_info('stored') "
            "where segment_type = 'BIGINT' group by row_group_id"
        ).fetchall()
    assert groups == [(ROW_GROUP,)] * 3


def test_no_rows_are_a_table_with_columns() -> None:
    empty = pl.DataFrame(schema={"rank": pl.Int64, "launches": pl.List(pl.Int32)})
    assert pl.DataFrame(in_row_groups(empty).read_all()).schema == empty.schema
