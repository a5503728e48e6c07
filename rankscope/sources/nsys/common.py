"""Access to the tables of Nsight Systems exports, and conventions that all of them share."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.model.arrays import filled, is_null, known_or, rows_of, taken
from rankscope.model.frames import framed
from rankscope.model.reports import Process
from rankscope.sources.columns.request import Columns

PROCESS_BITS = 24
PROCESS = 2**PROCESS_BITS
"""A thread or process id of nsys, floor-divided by this, is the process key."""


def process_of(key: int) -> Process:
    """The process of a key: its lowest bits are the pid; a thread adds its own id to the key."""
    pid = key % PROCESS
    return Process(pid, key * PROCESS + pid)


PUSH_POP, START_END = 59, 60
RANGE_TYPES = (PUSH_POP, START_END)
"""NVTX event types of ranges (ENUM_NSYS_EVENT_TYPE)."""


def without_nulls(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """The rows without nulls in some columns; if there are none, nothing is copied."""
    nulls = [is_null(rows[name]) for name in columns if rows[name].has_nulls()]
    return rows_of(rows, ~np.logical_or.reduce(nulls)) if nulls else rows


def require(file: Columns, table: str, *columns: str) -> None:
    """Raises `UnreadableReport` if an existing table lacks columns that nsys writes."""
    if not file.has(table, *columns):
        raise UnreadableReport(
            f"{file.path}: its table {table} lacks one of the columns {', '.join(columns)}",
            hint="export it again: nsys export -f true -t sqlite REPORT.nsys-rep",
        )


SPARSE = 4
"""Ids up to this multiple of their count are looked up by index instead of by a join."""


class Strings:
    """The string pool of an export: it is looked up by id, never searched."""

    def __init__(self, pool: pl.DataFrame, places: int | None = None) -> None:
        """Lay out a pool.

        Args:
            pool: id and value; of several values for an id, the first known one counts.
            places: ids below this are looked up by index.
        """
        pool = without_nulls(pool, "id", "value")
        # Ids are nearly row numbers of the pool, so that most lookups need no join.
        most = SPARSE * pool.height if places is None else places - 1
        ids = pool["id"].to_numpy()
        is_dense = (ids >= 0) & (ids <= most)
        size = ids[is_dense].max(initial=-1) + 1
        # an id without a string gets the null at the end, as does the last place
        row = np.full(size + 1, pool.height)
        dense = np.flatnonzero(is_dense)[::-1]
        row[ids[dense]] = dense  # of equal ids the last one, which is the first of the pool, stays
        nothing = pl.Series([None], dtype=pool["value"].dtype)
        self._dense = taken(pl.concat([pool["value"], nothing]), row)
        self._others = rows_of(pool, ~is_dense)
        if self._others.height:
            self._others = self._others.unique("id", keep="first", maintain_order=True)

    @classmethod
    def read(cls, file: Columns) -> Strings:
        """The pool of an export, which may lack it."""
        if not file.has("StringIds", "id", "value"):
            return cls(pl.DataFrame(schema={"id": pl.Int64, "value": pl.String}))
        return cls(file.read("StringIds", ["id"], ["value"]))

    @property
    def is_empty(self) -> bool:
        """Whether the pool has no strings."""
        return len(self._dense) == 1 and self._others.is_empty()

    def of(self, ids: pl.Series) -> pl.Series:
        """Strings by their ids; null for ids that the pool lacks."""
        last = len(self._dense) - 1
        places = filled(ids, last).view(np.uint64)  # numbers below 0 are the highest
        texts = taken(self._dense, np.minimum(places, last))
        if self._others.is_empty():
            return texts
        others = ids.to_frame("id").join(self._others, on="id", how="left", maintain_order="left")
        return known_or(texts, others["value"])

    def of_values(self, ids: pl.Series, values: pl.Series) -> Strings:
        """Other values for ids of this pool."""
        return Strings(framed({"id": ids, "value": values}), len(self._dense) - 1)
