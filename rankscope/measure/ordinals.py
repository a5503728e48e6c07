"""The number of a collective in its iteration: the same on all ranks. See METHOD.md#waits."""

import numpy as np
import polars as pl

from rankscope.model.arrays import codes, is_null, places
from rankscope.model.frames import with_series
from rankscope.model.intervals import Times

IN_PAIRS = ("point_to_point", "grouped", "wait")
"""Operations that are not numbered together with the collectives of their communicator."""

MOST = 2**31 - 1
"""The largest number that the columns of matching hold."""


def with_ordinals(calls: pl.DataFrame) -> pl.DataFrame:
    """`ordinal` of collectives: by their sequence numbers where a communicator's calls have them.

    A call whose record is missing leaves a gap in the sequence numbers, and shifts no other. The
    number of the iteration's first call is subtracted. If iterations have equally many calls, that
    number is known even where the first call is missing; in a single iteration it is not, and
    nothing is subtracted. Other calls are counted in each iteration.

    Args:
        calls: communicator, operation, iteration and sequence of a rank's calls, in their order.
    """
    key = ["communicator", "operation", "iteration"]
    counted = with_series(calls, pl.Series("ordinal", _nth(places(codes(calls[key]))[0])))
    if is_null(calls["sequence"]).all():
        return counted
    alone = pl.col("operation").cast(pl.String).is_in(IN_PAIRS)
    known = pl.col("sequence").is_not_null().all().over("communicator")
    numbered = counted.with_row_index("row").filter(known, ~alone)
    if numbered.is_empty():
        return counted
    firsts = _firsts(numbered.group_by("communicator", "iteration").agg(pl.col("sequence").min()))
    by_sequence = (
        numbered.join(firsts, on=["communicator", "iteration"])
        .with_columns(nth=pl.col("sequence") - pl.col("first"))
        .filter(
            pl.col("nth").is_between(0, MOST).all().over("communicator"),
            pl.struct(*key, "nth").is_unique().all().over("communicator"),
        )
    )
    with_rows = counted.with_row_index("row").join(
        by_sequence.select("row", "nth"), on="row", how="left", maintain_order="left"
    )
    return with_rows.with_columns(ordinal=pl.coalesce("nth", "ordinal")).drop("row", "nth")


def _nth(group: Times) -> Times:
    """How many rows before each have the same number."""
    order = np.argsort(group, kind="stable")
    nth = np.empty_like(group)
    nth[order] = np.arange(len(group)) - np.searchsorted(group[order], group[order])
    return nth


def _firsts(smallest: pl.DataFrame) -> pl.DataFrame:
    """communicator, iteration, and `first`: the sequence number that stands for 0.

    Args:
        smallest: communicator, iteration, and the smallest sequence number there.
    """
    parts = smallest.sort("communicator", "iteration").partition_by("communicator")
    return pl.concat(
        part.select(
            "communicator",
            "iteration",
            first=pl.Series(_first(part["iteration"].to_numpy(), part["sequence"].to_numpy())),
        )
        for part in parts
    )


def _first(iterations: Times, smallest: Times) -> Times:
    """The sequence number of the first call of each iteration, whether its record is there or not.

    Args:
        iterations: their numbers, ascending.
        smallest: the smallest sequence number in each.
    """
    if len(iterations) == 1:
        return np.zeros_like(smallest)
    usual = _most_frequent(np.diff(smallest) // np.diff(iterations))[0]
    origin, count = _most_frequent(smallest - usual * iterations)
    return origin + usual * iterations if 2 * count > len(iterations) else smallest


def _most_frequent(numbers: Times) -> tuple[int, int]:
    """The number that comes most often, and how often."""
    values, counts = np.unique(numbers, return_counts=True)
    best = int(counts.argmax())
    return int(values[best]), int(counts[best])
