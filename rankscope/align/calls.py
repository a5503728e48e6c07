"""All calls of a run's collectives, gathered some ranks at a time, and sorted into instances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.communicators import Streams
from rankscope.align.point_to_point import OPERATION, pair_peers
from rankscope.store.tables import narrowed

SPLITTABLE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that no rank can leave before all ranks have arrived."""

INSTANCE = ["group", "operation", "iteration", "ordinal"]
"""Columns that all calls of an instance share."""

OWN = ["rank", "gradient", "arrival_ns", "end_ns", "bytes"]
"""Columns that differ between the calls of an instance."""

KEPT = [name for name in (*INSTANCE, *OWN) if name not in ("group", "rank")]

FAR_APART = 2**20
"""Widest span of a column that is packed as it is; wider columns are numbered, so that all
columns together fit into 63 bits."""


class Calls:
    """Collects COLLECTIVES, some ranks at a time, and keeps the columns that matching needs."""

    def __init__(self, links: list[tuple[int, int]]) -> None:
        """`links`: pairs of ranks that send to each other."""
        self._links = links
        self._streams = Streams()
        self._parts: list[pl.DataFrame] = []
        self._sent: list[pl.DataFrame] = []
        self._counts: list[pl.DataFrame] = []
        self._unrooted = self._split = 0

    def add(self, part: pl.DataFrame) -> None:
        """Add all rows of some ranks."""
        operation = part["operation"]
        split = operation.is_in(SPLITTABLE)
        self._split += int(split.sum())
        self._unrooted += int((~operation.is_in(["rooted"])).sum())
        sent = part.filter(operation.is_in([OPERATION]))
        self._counts.append(sent.group_by("iteration").agg(calls=pl.len()))
        if self._links:
            self._sent.append(sent)
        rows = narrowed(part if split.all() else part.filter(split))
        kept = rows.select(self._streams.numbered(rows), *KEPT)
        unknown = kept["bytes"].null_count() == kept.height
        self._parts.append(kept.drop("bytes") if unknown else kept)

    @property
    def pipelined(self) -> bool:
        """Whether ranks also send to and receive from each other."""
        return self._split < self._unrooted

    def peers(self) -> pl.DataFrame | None:
        """The result of `pair_peers`; None where no transfer was paired."""
        paired = pair_peers(pl.concat(self._sent), self._links) if self._sent else None
        return None if paired is None or paired.is_empty() else paired

    def sent(self) -> pl.DataFrame:
        """iteration and calls: the number of calls of transfers between two ranks."""
        return pl.concat(self._counts).group_by("iteration").agg(pl.col("calls").sum())

    def streams(self) -> pl.DataFrame:
        """The streams with their labels."""
        return self._streams.labelled()

    def taken(self) -> pl.DataFrame:
        """stream and `KEPT` of all calls that can be split; `bytes` where any are known.

        The caller takes ownership, because memory does not allow a second copy.
        """
        parts, self._parts = self._parts, []
        return pl.concat(parts, how="diagonal")


def together(
    columns: dict[str, pl.Series],
) -> tuple[pl.DataFrame, pl.DataFrame, NDArray[np.int64]]:
    """The calls sorted by INSTANCE, then rank; the instances; the number of calls of each.

    All key columns are packed into one integer, which is sorted.

    Args:
        columns: INSTANCE and OWN; emptied, so that memory is freed column by column.

    Returns:
        OWN of the calls, INSTANCE of the instances, and sizes.
    """
    number = np.zeros(len(columns["rank"]), dtype=np.int64)
    steps: dict[str, _Step] = {}
    for name in (*INSTANCE, "rank"):
        values, names = _counted(columns[name])
        low = int(values.min(initial=0)) if len(values) else 0
        span = int(values.max(initial=0)) - low + 1
        number *= span
        number += values
        number -= low
        steps[name] = _Step(columns[name].dtype, low, span, names)
        del values
        if name != "rank":
            del columns[name]  # unpacked from the integer
    order = None
    if (np.diff(number) < 0).any():
        order = pl.Series(number).arg_sort()
        number = number[order.to_numpy()]
    number //= steps["rank"].span
    starts = np.flatnonzero(np.diff(number, prepend=number[:1] - 1))
    size = np.diff(starts, append=len(number))
    number = number[starts]
    unpacked_columns: dict[str, pl.Series] = {}
    for name in reversed(INSTANCE):
        number, code = np.divmod(number, steps[name].span)
        unpacked_columns[name] = steps[name].values(name, code)
    shared = pl.DataFrame([unpacked_columns[name] for name in INSTANCE])
    rows = []
    for name in OWN:
        if name in columns:
            column = columns.pop(name)
            rows.append(column if order is None else column.rechunk().gather(order))
    return pl.DataFrame(rows), shared, size


class _Step(NamedTuple):
    """The digits of one column in the packed integer."""

    dtype: pl.DataType
    low: int
    span: int
    names: pl.Series | None

    def values(self, name: str, code: NDArray[np.int64]) -> pl.Series:
        """The column's values, unpacked."""
        if self.names is None:
            return pl.Series(name, code + self.low, dtype=self.dtype)
        return self.names.gather(code + self.low).cast(self.dtype).alias(name)


def _counted(values: pl.Series) -> tuple[NDArray[np.int64], pl.Series | None]:
    """Integers in the order of the values, and the values where they had to be numbered."""
    if isinstance(values.dtype, pl.Categorical):
        names = values.unique().cast(pl.String).sort()
        there = pl.DataFrame({"name": names}).with_columns(
            code=pl.col("name").cast(values.dtype).to_physical().cast(pl.Int64)
        )
        table = np.zeros(int(there["code"].max() or 0) + 1, dtype=np.int64)  # type: ignore[arg-type]
        table[there["code"].to_numpy()] = np.arange(there.height)
        return table[values.to_physical().to_numpy()], names
    numbers = values.to_numpy().astype(np.int64)
    if len(numbers) and int(numbers.max()) - int(numbers.min()) >= FAR_APART:
        distinct, place = np.unique(numbers, return_inverse=True)
        return place, pl.Series(distinct)
    return numbers, None
