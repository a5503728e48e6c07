"""The tables of a run, with the iteration numbers of some ranks shifted."""

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.store.tables import RunTables, TableReader, TableRequest, requested

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
        frame = self.reader.read(replace(request, columns=None, iterations=None, sums=()))
        return requested(
            with_shifts(frame, self.shifts), replace(request, ranks=None, narrow=False)
        )


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
