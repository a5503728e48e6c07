"""Host ranges that launch communication tell what the kernels they launched do."""

from __future__ import annotations

import polars as pl

from rankscope.model.schema import OPERATION

AROUND = pl.Schema(
    {"start": pl.Int64(), "end": pl.Int64(), "thread": pl.Int64(), "around": OPERATION}
)
"""Ranges that launch communication: disjoint on a thread, by start."""

INEXACT = ("grouped", "point_to_point")
"""Operations of kernels that run other collectives as well."""


def calls_around(meaningful: pl.DataFrame) -> pl.DataFrame:
    """AROUND: the outermost ranges of each thread that launch one known kind of communication.

    Args:
        meaningful: RANGES of one process, with the columns of MEANINGS joined on.
    """
    launching = meaningful.filter(
        pl.col("means") == "collective",
        ~pl.col("blocking").fill_null(False),
        pl.col("operation").is_in(OPERATION.categories.to_list()),
        pl.col("end") > pl.col("start"),
    ).sort("start", "end", descending=[False, True])
    before = pl.col("end").cum_max().shift(1, fill_value=-1).over("thread")
    outer = launching.filter(pl.col("start") >= before)
    return outer.select(
        "start", "end", "thread", around=pl.col("operation").cast(OPERATION)
    ).match_to_schema(AROUND)


def with_calls_around(work: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_WORK whose `operation` also follows from the ranges around the launches.

    A kernel that may run any collective runs the one of the range. A kernel that is not known as
    communication is if it is the only kernel that the range launched.

    Args:
        work: DEVICE_WORK of one process.
        calls: AROUND of it.
    """
    if calls.is_empty() or work.is_empty():
        return work
    launched = (
        work.select("launch", "launch_thread", "kind", "operation")
        .with_row_index("row")
        .drop_nulls(["launch", "launch_thread"])
        .filter(pl.col("kind") == "kernel")
        .sort("launch")
        .join_asof(
            calls.with_row_index("call").with_columns(begin="start"),
            left_on="launch",
            right_on="start",
            by_left="launch_thread",
            by_right="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("launch") < pl.col("end"))
    )
    inexact = pl.col("operation").is_in(INEXACT)
    alone = pl.col("operation").is_null() & (pl.len().over("call") == 1)
    stated = launched.filter(inexact | alone).select("row", "around")
    if stated.is_empty():
        return work
    every = work.with_row_index("row").join(stated, on="row", how="left", maintain_order="left")
    operation = pl.coalesce("around", "operation")
    return every.with_columns(operation=operation).drop("row", "around")
