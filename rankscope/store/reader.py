"""Tables out of the database: whole, in part, and in narrow columns where there are many rows."""

from __future__ import annotations

from collections.abc import Collection

import duckdb
import polars as pl

from rankscope.store.tables import NARROW, TableRequest, narrowed

MOST_NAMES = 64
"""Largest number of different names for which DuckDB returns their places instead of texts."""


def read_table(connection: duckdb.DuckDBPyConnection, request: TableRequest) -> pl.DataFrame:
    """The requested columns and rows of a table of the database."""
    table, where = f'"{request.table}"', _where(request)
    select = "select distinct" if request.distinct else "select"
    columns = request.columns
    if not request.narrow:
        listed = "*" if columns is None else ", ".join(f'"{each}"' for each in columns)
        frame: pl.DataFrame = connection.sql(f"{select} {listed} from {table}{where}").pl()
        return frame
    if columns is None:
        columns = connection.sql(f"from {table} limit 0").columns
    names: dict[str, list[str]] = {}
    for name in columns:
        if isinstance(NARROW.get(name), pl.Categorical):
            distinct = f'select distinct "{name}" from {table}{where} limit {MOST_NAMES + 1}'
            found = [each for (each,) in connection.sql(distinct).fetchall() if each is not None]
            if len(found) <= MOST_NAMES:
                names[name] = found
    listed = ", ".join(_expression(name, names.get(name)) for name in columns)
    rows: pl.DataFrame = connection.sql(f"{select} {listed} from {table}{where}").pl()
    texts = (
        pl.Series(name, found, dtype=pl.String).cast(NARROW[name]).gather(rows[name])
        for name, found in names.items()
    )
    return narrowed(rows.with_columns(*texts))


def _where(request: TableRequest) -> str:
    """The condition of the wanted rows."""
    limits = [
        _one_of(name, values)
        for name, values in (("rank", request.ranks), ("iteration", request.iterations))
        if values is not None
    ]
    if request.clock is not None:
        limits.append(f"clock = '{request.clock}'")
    return f" where {' and '.join(limits)}" if limits else ""


def _one_of(name: str, values: Collection[int]) -> str:
    """The condition that a column is one of some numbers; those without gaps are found sooner."""
    numbers = sorted({int(value) for value in values})
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{name} between {numbers[0]} and {numbers[-1]}"
    return f"{name} in (select unnest({numbers}::bigint[]))"


def _expression(name: str, names: list[str] | None) -> str:
    """A narrow column in SQL: of a text the place of its name, if these are all there are."""
    if names is not None:
        listed = ", ".join("'" + each.replace("'", "''") + "'" for each in names)
        return f'(list_position([{listed}]::varchar[], "{name}") - 1)::utinyint as "{name}"'
    if NARROW.get(name) == pl.Int32:
        return f'"{name}"::int as "{name}"'
    return f'"{name}"'
