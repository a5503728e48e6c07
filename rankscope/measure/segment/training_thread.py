"""The training thread of a process without iteration ranges."""

import polars as pl

from rankscope.model.kinds import PHASES


def training_thread(named: pl.DataFrame, launching: pl.Series, main_thread: int | None) -> int:
    """The thread with most phases, then most collectives; on a tie the process's first thread.

    Phases come first because autograd's thread, which launches the gradient reductions, may have
    more collectives; so does a thread whose operators are none of autograd's.

    Args:
        named: thread and means of the ranges of the process.
        launching: threads that launched its computation.
        main_thread: its first thread, if known.
    """
    means, thread = pl.col("means"), pl.col("thread")
    ranked = (
        named.lazy()
        .select(
            "thread",
            phases=means.is_in(PHASES),
            collectives=means == "collective",
            operators=means == "operator",
            backward=means == "backward operator",
        )
        .group_by("thread")
        .agg(
            pl.col("phases", "collectives").sum(),
            forward=pl.col("operators").any() & ~pl.col("backward").any(),
            rows=pl.len(),
        )
        .with_columns(
            first=thread.eq(pl.lit(main_thread, pl.Int64)).fill_null(False),
            launches=thread.is_in(launching.implode()),
        )
        .with_columns(pl.col("forward") & pl.col("launches"))
        .filter(  # ranges of helper threads do not make them training threads
            (pl.col("phases") + pl.col("collectives") > 0)
            | pl.any_horizontal("first", "launches", pl.lit(launching.is_empty()))
        )
        .sort(
            *("phases", "forward", "collectives", "first", "launches", "rows", "thread"),
            descending=True,
        )
        .collect()
    )
    threads = [*ranked["thread"], *launching.sort()]
    return int(threads[0]) if threads else main_thread or 0
