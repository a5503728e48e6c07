"""Times of an export on the axis of its session, whose time 0 is `utcEpochNs`.

`nsys export --ts-normalize=true` and `--ts-shift=NS` add a number of ns to all times, and write it
to META_DATA_EXPORT. It is taken off again, so that times are those of the report, as the GUI shows
them, and the session's UTC start and duration hold.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.sources.columns.request import ColumnRequest, Columns

TABLE, SHIFT = "META_DATA_EXPORT", "EXPORT_CONFIG_TIME_SHIFT"
"""Table, and name of the row with the number of ns that were added to all times."""

TIMES = ("start", "end", "startedAt", "endedAt", "timestamp")
"""The time columns of events."""


def on_session_axis(file: Columns) -> Columns:
    """The export with its times on the session's axis.

    Raises:
        UnreadableReport: the shift is not a number.
    """
    if not file.has(TABLE, "name", "value"):
        return file
    rows = file.read(TABLE, [], ["name", "value"])
    stated = rows["value"].filter(rows["name"] == SHIFT).drop_nulls()
    if stated.is_empty():
        return file
    shift = stated.cast(pl.Int64, strict=False)[0]
    if shift is None:
        raise UnreadableReport(
            f"{file.path}: {SHIFT} is {stated[0]!r}, not a number of ns",
            hint="export it again, without --ts-shift and --ts-normalize",
        )
    return file if shift == 0 else _ShiftedColumns(file, shift)


class _ShiftedColumns(Columns):
    """The tables of an export; `shift_ns` is subtracted from their times."""

    def __init__(self, file: Columns, shift_ns: int) -> None:
        self.path = file.path
        self.limits = file.limits
        self._file = file
        self._shift_ns = shift_ns

    @property
    def bytes(self) -> int:
        """The size of the export."""
        return self._file.bytes

    def has(self, table: str, *columns: str) -> bool:
        """Whether the export has `table` with all of `columns`."""
        return self._file.has(table, *columns)

    def rows(self, table: str, wanted: ColumnRequest) -> pl.DataFrame:
        """The requested columns and rows."""
        return self._unshifted(self._file.rows(table, wanted), wanted)

    def chunks(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """The requested columns and rows in chunks."""
        for piece in self._file.chunks(table, wanted, chosen):
            yield self._unshifted(piece, wanted)

    def _unshifted(self, rows: pl.DataFrame, wanted: ColumnRequest) -> pl.DataFrame:
        times = [name for name in TIMES if name in wanted.integers]
        return rows.with_columns(pl.col(times) - self._shift_ns) if times else rows
