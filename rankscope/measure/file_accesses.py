"""Files that the training thread used in each phase. See METHOD.md#causes."""

import numpy as np
import polars as pl

from rankscope.measure.host_states import LONGEST_NAME, MINOR_NS
from rankscope.model.host_events import ThreadEvents
from rankscope.model.schema import FILE_ACCESSES, conform, empty

MOST_FILES = 12
"""Names of files stored for a rank: those with most time."""


def file_accesses(
    iterations: pl.DataFrame, host: pl.DataFrame, events: ThreadEvents
) -> pl.DataFrame:
    """Accesses to files by the phase on the host clock in which they begin.

    Args:
        iterations: ITERATIONS.
        host: SEGMENTS of the host timeline.
        events: the events of its thread.

    Returns:
        FILE_ACCESSES; `rank` is null; no rows where nothing is recorded.
    """
    if events.files is None or events.files.is_empty() or host.is_empty():
        return empty(FILE_ACCESSES)
    uses = events.files
    segment = np.searchsorted(host["start"].to_numpy(), uses["start"].to_numpy(), side="right") - 1
    place = host.select("window", phase=pl.col("label").cast(pl.String))[segment]
    length = pl.col("end") - pl.col("start")
    sums = (
        uses.hstack(place)
        .group_by("window", "phase", "call", pl.col("file").str.slice(0, LONGEST_NAME))
        .agg(
            count=pl.len().cast(pl.Int64),
            bytes=pl.when(pl.col("bytes").count() > 0).then(pl.col("bytes").sum()),
            total_ns=length.sum(),
        )
    )
    leading = sums.group_by("file").agg(pl.col("total_ns").sum()).sort("total_ns", "file")
    minor = ~pl.col("file").is_in(leading["file"].tail(MOST_FILES).implode())
    number = iterations.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), "iteration")
    return conform(
        sums.with_columns(
            file=pl.when(minor | (pl.col("total_ns") < MINOR_NS)).then(pl.lit("")).otherwise("file")
        )
        .group_by("window", "phase", "call", "file")
        .agg(
            pl.col("count", "total_ns").sum(),
            bytes=pl.when(pl.col("bytes").count() > 0).then(pl.col("bytes").sum()),
        )
        .join(number, on="window")
        .sort("iteration", "phase", "call", "file"),
        FILE_ACCESSES,
        optional=("rank",),
        drop_others=True,
    )
