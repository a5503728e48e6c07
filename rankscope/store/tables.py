"""The tables of a run, each loaded when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

SHORT = pl.Categorical(pl.Categories("rankscope kinds", physical=pl.UInt8))
LONG = pl.Categorical(pl.Categories("rankscope names"))

NARROW: dict[str, pl.DataType] = {
    "rank": pl.Int32(),
    "ordinal": pl.Int32(),
    "place": SHORT,
    "operation": SHORT,
    "clock": SHORT,
    "communicator": LONG,
}
"""Columns with few different values, and what they fit into."""


ROWS_AT_ONCE = 1_000_000
"""Of many rows about so many are looked at together: memory is bounded by it."""


class TableReader(Protocol):
    """Where tables come from."""

    def __call__(
        self,
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        """A table: some of its columns, and of its rows those of some ranks and iterations.

        `narrow`: numbers and names with few values come in types that are as small.
        """
        ...


class RunTables:
    """What the reports of a run became; the tables of its database, by name."""

    def __init__(self, name: str, source: TableReader) -> None:
        self.name = name
        self.some = source
        self._loaded: dict[str, pl.DataFrame] = {}

    def table(self, name: str) -> pl.DataFrame:
        """A whole table; `some` gives a part of it, or the whole for a single use."""
        if name not in self._loaded:
            self._loaded[name] = self.some(name)
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
    def measures(self) -> pl.DataFrame:
        """MEASURES."""
        return self.table("measures")

    @property
    def collectives(self) -> pl.DataFrame:
        """COLLECTIVES."""
        return self.table("collectives")

    @property
    def activities(self) -> pl.DataFrame:
        """ACTIVITIES."""
        return self.table("activities")

    @property
    def problems(self) -> pl.DataFrame:
        """path, code, message, ranks."""
        return self.table("problems")


def measured(
    frames: RunTables, clock: str, columns: Collection[str], numbers: Collection[int] | None = None
) -> pl.DataFrame:
    """Columns of MEASURES on a clock, in some iterations; None: all.

    Args:
        frames: the run.
        clock: host or gpu.
        columns: their names, none of text.
        numbers: iterations.
    """
    rows = frames.some("measures", [*columns, "clock"], None, numbers, narrow=True)
    wide = [name for name in ("rank", "iteration") if name in columns]
    return rows.filter(clock=clock).select(columns).with_columns(pl.col(wide).cast(pl.Int64))


def columns_by_rank(
    frame: pl.DataFrame, columns: tuple[str, ...]
) -> Callable[[int], list[NDArray[Any]]]:
    """Gives the columns of a rank's rows, in the order in which they are."""
    ranks = frame["rank"].to_numpy()
    arrays = [frame[name].to_numpy() for name in columns]
    if (np.diff(ranks) < 0).any():
        order = np.argsort(ranks, kind="stable")
        ranks, arrays = ranks[order], [each[order] for each in arrays]

    def of(rank: int) -> list[NDArray[Any]]:
        low, high = np.searchsorted(ranks, (rank, rank + 1))
        return [each[low:high] for each in arrays]

    return of


def selected_rows(
    frame: pl.DataFrame,
    columns: Collection[str] | None = None,
    ranks: Collection[int] | None = None,
    iterations: Collection[int] | None = None,
    narrow: bool = False,
) -> pl.DataFrame:
    """What a `TableReader` gives of a table that is at hand."""
    for name, wanted in (("rank", ranks), ("iteration", iterations)):
        if wanted is not None:
            frame = frame.filter(pl.col(name).is_in(list(wanted)))
    frame = frame if columns is None else frame.select(columns)
    return narrowed(frame) if narrow else frame


def narrowed(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `NARROW` in those types."""
    return frame.with_columns(
        pl.col(name).cast(dtype) for name, dtype in NARROW.items() if name in frame.columns
    )


def reader_of(tables: dict[str, pl.DataFrame]) -> TableReader:
    """A `TableReader` of tables that are at hand."""

    def source(
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        return selected_rows(tables[table], columns, ranks, iterations, narrow)

    return source
