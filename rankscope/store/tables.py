"""The tables of a run, each loaded when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import polars as pl
from msgspec import Struct

from rankscope.model.columns import OF_SUMS
from rankscope.model.tables import TABLES
from rankscope.store.ddl import quoted

if TYPE_CHECKING:
    import duckdb

SHORT = pl.Categorical(pl.Categories("rankscope kinds", physical=pl.UInt8))
LONG = pl.Categorical(pl.Categories("rankscope names"))

NARROW: dict[str, pl.DataType] = {
    "rank": pl.Int32(),
    "ordinal": pl.Int32(),
    "place": SHORT,
    "operation": SHORT,
    "clock": SHORT,
    "communicator": LONG,
    "phase": SHORT,
    "kind": SHORT,
    "state": SHORT,
    "name": LONG,
}
"""Columns with few different values, and the small types that hold them."""


class TableRequest(Struct, frozen=True):
    """Which columns and rows of a table to read; None: all.

    `narrow`: the columns of `NARROW` have those types. `clock`: only rows on this clock.
    `distinct`: each row once. `sums`: other columns, added up over rows that are equal in these.
    """

    table: str
    columns: Collection[str] | None = None
    ranks: Collection[int] | None = None
    iterations: Collection[int] | None = None
    narrow: bool = False
    clock: str | None = None
    distinct: bool = False
    sums: Collection[str] = ()


class TableReader(Protocol):
    """A source of the tables of a run."""

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows of a table."""
        ...


class LoadedTables(Struct, frozen=True):
    """A `TableReader` of tables that are in memory."""

    tables: dict[str, pl.DataFrame]

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows."""
        return requested(self.tables[request.table], request)


class RunTables:
    """The tables of a run by name, each read when it is first needed.

    Can be pickled if its reader can; loaded tables are left out.
    """

    def __init__(self, name: str, reader: TableReader) -> None:
        self.name = name
        self.reader = reader
        self._loaded: dict[str, pl.DataFrame] = {}

    @property
    def database(self) -> Path | None:
        """The database that the tables come from; None: from memory."""
        path = getattr(self.reader, "path", None)
        return path if isinstance(path, Path) else None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_loaded": {}}

    def read(
        self,
        table: str,
        columns: Collection[str] | None = None,
        *,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
        clock: str | None = None,
        distinct: bool = False,
        sums: Collection[str] = (),
    ) -> pl.DataFrame:
        """A part of a table, which is not kept; the arguments are those of `TableRequest`."""
        request = TableRequest(table, columns, ranks, iterations, narrow, clock, distinct, sums)
        return self.reader.read(request)

    def kept_open(self) -> AbstractContextManager[None]:
        """Within it, a database is opened once for all reads."""
        kept: Callable[[], AbstractContextManager[None]]
        kept = getattr(self.reader, "kept_open", nullcontext)
        return kept()

    def table(self, name: str) -> pl.DataFrame:
        """A whole table, which stays loaded."""
        if name not in self._loaded:
            # else each `group_by` joins the chunks of all columns
            self._loaded[name] = self.read(name).rechunk()
        return self._loaded[name]

    @property
    def reports(self) -> pl.DataFrame:
        """A row per report."""
        return self.table("reports")

    @property
    def ranks(self) -> pl.DataFrame:
        """A row per rank."""
        return self.table("ranks")

    @property
    def iterations(self) -> pl.DataFrame:
        """RANK_ITERATIONS."""
        return self.table("iterations")

    @property
    def collectives(self) -> pl.DataFrame:
        """COLLECTIVES."""
        return self.table("collectives")

    @property
    def problems(self) -> pl.DataFrame:
        """path, code, message, ranks."""
        return self.table("problems")


def requested(frame: pl.DataFrame, request: TableRequest) -> pl.DataFrame:
    """The requested columns and rows of `frame`, which is the whole table."""
    for name, values in (("rank", request.ranks), ("iteration", request.iterations)):
        if values is not None:
            frame = frame.filter(pl.col(name).is_in(list(values)))
    if request.clock is not None:
        frame = frame.filter(clock=request.clock)
    if request.sums:
        return frame.group_by(request.columns).agg(pl.col(request.sums).sum())
    frame = frame if request.columns is None else frame.select(request.columns)
    frame = frame.unique() if request.distinct else frame
    return narrowed(frame) if request.narrow else frame


def narrowed(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `NARROW` in those types."""
    wide = {name: kind for name, kind in NARROW.items() if frame.schema.get(name, kind) != kind}
    return frame.with_columns(pl.col(name).cast(wide[name]) for name in wide) if wide else frame


def fetched(relation: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    """The rows of a query; DuckDB's `pl()` would import pyarrow, which can take longer."""
    try:
        return pl.DataFrame(relation)
    except pl.exceptions.ComputeError:
        frame: pl.DataFrame = relation.pl()  # raises DuckDB's own error
        return frame


MOST_NAMES = 64
"""Most different names of a column that DuckDB returns as indices instead of texts."""


def read_table(connection: duckdb.DuckDBPyConnection, request: TableRequest) -> pl.DataFrame:
    """The requested columns and rows of a table of the database."""
    table, where = f'"{request.table}"', _where(request)
    select = "select distinct" if request.distinct else "select"
    columns = request.columns
    if not request.narrow:
        listed = "*" if columns is None else ", ".join(f'"{each}"' for each in columns)
        # sums that no run has, as those of a hostile file, are no error
        listed += "".join(f', least(coalesce(sum("{each}"), 0), {OF_SUMS[1]})::bigint as "{each}"'
                          for each in request.sums)  # fmt: skip
        by = " group by all" if request.sums else ""
        return fetched(connection.sql(f"{select} {listed} from {table}{where}{by}"))
    if columns is None:
        columns = connection.sql(f"from {table} limit 0").columns
    described = TABLES[request.table].columns
    known: dict[str, pl.Series] = {}
    for name in columns:
        if isinstance(NARROW.get(name), pl.Categorical):
            names = described[name].names or _few_names(connection, name, f"{table}{where}")
            if names is not None:
                known[name] = pl.Series(name, names, dtype=pl.String).cast(NARROW[name])
    listed = ", ".join(_expression(name, known.get(name)) for name in columns)
    rows = fetched(connection.sql(f"{select} {listed} from {table}{where}"))
    return narrowed(rows.with_columns(each.gather(rows[name]) for name, each in known.items()))


def _few_names(connection: duckdb.DuckDBPyConnection, column: str, rows: str) -> list[str] | None:
    """The different texts of a column; None if they are more than `MOST_NAMES`."""
    distinct = f'select distinct "{column}" from {rows} limit {MOST_NAMES + 1}'
    names = [each for (each,) in connection.sql(distinct).fetchall() if each is not None]
    return names if len(names) <= MOST_NAMES else None


def _where(request: TableRequest) -> str:
    """The condition of the requested rows, with `where`; empty: all rows."""
    limits = [
        one_of(name, values)
        for name, values in (("rank", request.ranks), ("iteration", request.iterations))
        if values is not None
    ]
    if request.clock is not None:
        limits.append(f"clock = {quoted(request.clock)}")
    return f" where {' and '.join(limits)}" if limits else ""


def one_of(name: str, values: Collection[int]) -> str:
    """The condition that a column is one of `values`; without gaps a range, which is faster."""
    numbers = sorted({int(value) for value in values})
    if numbers and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{name} between {numbers[0]} and {numbers[-1]}"
    return f"{name} in (select unnest({numbers}::bigint[]))"


def _expression(name: str, names: pl.Series | None) -> str:
    """A narrow column in SQL: of a text its index in `names`, if these are all of its names."""
    if names is not None:
        listed = ", ".join(map(quoted, names.cast(pl.String)))
        return f'(list_position([{listed}]::varchar[], "{name}") - 1)::utinyint as "{name}"'
    if NARROW.get(name) == pl.Int32:
        return f'"{name}"::int as "{name}"'
    return f'"{name}"'
