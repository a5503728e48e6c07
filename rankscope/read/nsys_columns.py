"""What the tables of every Nsight Systems export have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import polars as pl

from rankscope.errors import UnreadableReport

PROCESS = 2**24
"""A thread or process id of nsys, floor-divided by this, is the process key."""


PUSH_POP, START_END = 59, 60
RANGE_TYPES = (PUSH_POP, START_END)
"""NVTX event types of ranges (ENUM_NSYS_EVENT_TYPE)."""


class Columns(Protocol):
    """Tables of one export, whatever file format holds them."""

    path: Path

    def has(self, table: str, *columns: str) -> bool:
        """Whether the export has `table` with all of `columns`."""

    def read(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table as Int64, String and (raw) Binary; absent ones are null.

        `only` keeps the rows whose integer column has one of the values.
        """

    def pieces(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """What `read` gives, piece by piece where the format can; at least one piece.

        `chosen` are numbers, rising from 0, of the pieces to read of those that an earlier call
        without it gave: whatever columns it was for, they hold the same rows.
        """


def require(file: Columns, table: str, *columns: str) -> None:
    """Raises where a table that is there is not as nsys writes it."""
    if not file.has(table, *columns):
        raise UnreadableReport(
            f"{file.path}: its table {table} lacks one of the columns {', '.join(columns)}",
            hint="export it again: nsys export -t sqlite REPORT.nsys-rep",
        )


def strings(file: Columns) -> pl.DataFrame:
    """The string pool, to be joined on `textId`; never to be searched."""
    if not file.has("StringIds", "id", "value"):
        return pl.DataFrame(schema={"textId": pl.Int64, "string": pl.String})
    pool = file.read("StringIds", ["id"], ["value"])
    return pool.rename({"id": "textId", "value": "string"})


def in_order(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """The rows of all `parts` by their start; takes the columns out of `parts` one by one.

    So it needs room for a column more than the frame, where sorting would need it twice.
    """
    start = pl.concat([part["start"] for part in parts])
    order = None if start.is_sorted() else start.arg_sort()
    columns = []
    for name in parts[0].columns:
        column = pl.concat([part.drop_in_place(name) for part in parts])
        columns.append(column if order is None else column.gather(order))
    return pl.DataFrame(columns)
