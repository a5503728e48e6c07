"""Tables out of the database: whole, in part, and in narrow columns where there are many rows."""

from __future__ import annotations

import duckdb
import polars as pl

from rankscope.store.tables import TableRequest, narrowed

BATCH, TOGETHER = 100_000, 16
"""Rows of a batch and batches that are converted at once: of many rows never all are there in both
forms."""


def read_table(connection: duckdb.DuckDBPyConnection, request: TableRequest) -> pl.DataFrame:
    """The requested columns and rows of a table of the database."""
    names = "*" if request.columns is None else ", ".join(f'"{each}"' for each in request.columns)
    wanted = {"rank": request.ranks, "iteration": request.iterations}
    limits = {name: list(values) for name, values in wanted.items() if values is not None}
    places = [
        f"{name} in (select unnest(${place}::bigint[]))" for place, name in enumerate(limits, 1)
    ]
    where = f" where {' and '.join(places)}" if places else ""
    relation = connection.sql(
        f'select {names} from "{request.table}"{where}', params=[*limits.values()]
    )
    if not request.narrow:
        frame: pl.DataFrame = relation.pl()
        return frame
    nothing: pl.DataFrame = relation.limit(0).pl()
    parts = [narrowed(nothing)]
    fresh: list[pl.DataFrame] = []
    for batch in relation.to_arrow_reader(BATCH):
        fresh.append(narrowed(pl.DataFrame(batch)))
        if len(fresh) == TOGETHER:
            parts.append(_copied(fresh))
            fresh.clear()
    return pl.concat([*parts, *([_copied(fresh)] if fresh else [])])


def _copied(batches: list[pl.DataFrame]) -> pl.DataFrame:
    """The batches as one: else a column keeps all those alive that it came with."""
    return pl.concat(batches, rechunk=True)
