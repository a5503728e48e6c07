"""The tables of a run, with the iteration numbers of some ranks shifted."""

from collections.abc import Iterator

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.store.tables import RunTables, TableReader, TableRequest, requested
from rankscope.util.grouping import grouped

NUMBERED = ("iterations", "measures", "collectives", "exposed", "activities")
"""Tables that hold iteration numbers as given by their reports."""


class _ShiftedTables(Struct, frozen=True):
    """A `TableReader` that shifts the iteration numbers of some ranks."""

    reader: TableReader
    shifts: dict[int, int]

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows; iterations are those after the shift."""
        if request.table not in NUMBERED:
            return self.reader.read(request)
        if request.sums:
            parts = pl.concat(map(self.reader.read, self._by_shift(request)))
            return requested(parts, replace(request, ranks=None, iterations=None))
        frame = self.reader.read(replace(request, columns=None, iterations=None))
        return requested(
            with_shifts(frame, self.shifts), replace(request, ranks=None, narrow=False)
        )

    def _by_shift(self, request: TableRequest) -> Iterator[TableRequest]:
        """Requests of the same rows by their stored numbers, for the ranks of each shift."""
        ranks = request.ranks
        if ranks is None:
            ranks = self.reader.read(TableRequest("ranks", ["rank"]))["rank"]
        numbers = request.iterations
        for by, members in grouped((self.shifts.get(rank, 0), rank) for rank in ranks).items():
            stored = None if numbers is None else [number - by for number in numbers]
            yield replace(request, ranks=members, iterations=stored)


def with_shifts(frame: pl.DataFrame, shifts: dict[int, int]) -> pl.DataFrame:
    """`frame` with the numbers of the iterations of some ranks shifted."""
    by = pl.col("rank").replace_strict(shifts, default=0, return_dtype=pl.Int64)
    return frame.with_columns(iteration=(pl.col("iteration") + by).cast(frame.schema["iteration"]))


def renumbered(tables: RunTables, shifts: dict[int, int]) -> RunTables:
    """The tables with the iteration numbers of some ranks shifted.

    Args:
        shifts: rank → how far its iterations are shifted.
    """
    if not shifts:
        return tables
    return RunTables(tables.name, _ShiftedTables(tables.reader, shifts))
