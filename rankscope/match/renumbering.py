"""The tables of a run, with the iteration numbers of some ranks shifted."""

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.model.tables import PER_RANK
from rankscope.store.tables import RunTables, TableReader, TableRequest, requested
from rankscope.util.grouping import grouped


class _ShiftedTables(Struct, frozen=True):
    """A `TableReader` that shifts the iteration numbers of some ranks."""

    reader: TableReader
    shifts: dict[int, int]

    def read(self, request: TableRequest) -> pl.DataFrame:
        """The requested columns and rows; iterations are those after the shift."""
        if request.table not in PER_RANK:
            return self.reader.read(request)
        ranks = request.ranks
        if ranks is None:
            ranks = self.reader.read(TableRequest("ranks", ["rank"]))["rank"]
        by_shift = grouped((self.shifts.get(rank, 0), rank) for rank in ranks) or {0: []}
        frame = pl.concat(self._shifted(request, each, by_shift[each]) for each in by_shift)
        if "rank" in frame.columns:
            frame = frame.sort("rank", maintain_order=True)
        rest = replace(request, ranks=None, iterations=None, clock=None, narrow=False)
        return requested(frame, rest)

    def _shifted(self, request: TableRequest, shift: int, ranks: list[int]) -> pl.DataFrame:
        """What is requested of ranks that have one shift."""
        stored = request.iterations
        if stored is not None:
            stored = [number - shift for number in stored]
        frame = self.reader.read(replace(request, ranks=ranks, iterations=stored))
        if "iteration" not in frame.columns:
            return frame
        return frame.with_columns(pl.col("iteration") + shift)


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
