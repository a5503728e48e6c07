"""Gloo's collectives in a Kineto trace: work of other threads → waits of the thread that called.

gloo runs a collective on a thread of its own. The caller continues (DDP reduces gradients during
backward) until it needs the result, and that wait has no range. It is the rest of the collective
after the caller's last operator.
"""

import polars as pl

from rankscope.model.schema import GLOO, OPERATORS


def waits_on_callers(ranges: pl.DataFrame) -> pl.DataFrame:
    """`ranges` with each gloo collective as a wait on the thread that called it.

    The waits of a thread are disjoint and in the order of the calls, which is the same on every
    rank; a collective that operators hide completely lasts 1 ns.

    Args:
        ranges: frame of SCHEMAS[RANGE].
    """
    is_gloo = pl.col("name").str.starts_with("gloo:") & (pl.col("domain") == "")
    collectives = ranges.filter(is_gloo).sort("start")
    if collectives.is_empty():
        return ranges
    operators = ranges.filter(pl.col("domain") == OPERATORS).sort("start")
    is_call = pl.col("name").str.starts_with("c10d::")
    calls = operators.filter(is_call).select("start", "process", caller="thread")
    if calls.is_empty():
        return ranges
    busy = (
        operators.filter(~is_call)
        .with_columns(reached=pl.col("end").cum_max().over("process", "thread"))
        .select("process", caller="thread", before="start", reached="reached")
    )
    waits = (
        collectives.join_asof(
            calls, on="start", by="process", strategy="backward", check_sortedness=False
        )
        .with_columns(pl.col("caller").fill_null(pl.col("thread")))
        .sort("end")
        .join_asof(
            busy,
            left_on="end",
            right_on="before",
            by=["process", "caller"],
            strategy="backward",
            check_sortedness=False,
        )
        .sort("start")
    )
    key = ["process", "caller"]
    nth = pl.int_range(pl.len()).over(key)
    waits = waits.with_columns(end=(pl.col("end") - nth).cum_max().over(key) + nth)
    ready = pl.max_horizontal("start", "reached", pl.col("end").shift(1).over(key))
    waits = waits.with_columns(
        start=pl.min_horizontal(ready, pl.col("end") - 1),
        thread="caller",
        domain=pl.lit(GLOO),
    )
    return pl.concat([ranges.filter(~is_gloo), waits.select(ranges.columns)])
