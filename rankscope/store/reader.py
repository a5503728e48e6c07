"""Tables out of the database: whole, in part, and in narrow columns where there are many rows."""

from __future__ import annotations

from collections.abc import Collection

import duckdb
import polars as pl

from rankscope.store.tables import narrowed

BATCH, TOGETHER = 100_000, 16
"""Rows of a batch and batches that are converted at once: of many rows never all are there in both
forms."""


def read_table(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    columns: Collection[str] | None = None,
    ranks: Collection[int] | None = None,
    iterations: Collection[int] | None = None,
    narrow: bool = False,
) -> pl.DataFrame:
    """A table of the schema, as `frames.Source` says.

    Args:
        connection: to the database.
        table: its name.
        columns: those wanted; None: all.
        ranks: only rows of these; None: of all.
        iterations: the same.
        narrow: give the columns of `NARROW` in those types.
    """
    names = "*" if columns is None else ", ".join(f'"{name}"' for name in columns)
    wanted = {"rank": ranks, "iteration": iterations}
    limits = {name: list(values) for name, values in wanted.items() if values is not None}
    places = [
        f"{name} in (select unnest(${place}::bigint[]))" for place, name in enumerate(limits, 1)
    ]
    where = f" where {' and '.join(places)}" if places else ""
    relation = connection.sql(f'select {names} from "{table}"{where}', params=[*limits.values()])
    if not narrow:
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
