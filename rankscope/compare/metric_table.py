"""The wide table: a row per rank and iteration with every metric."""

from __future__ import annotations

import polars as pl

from rankscope.model.metrics import METRICS, Scope, columns_of, compared_metrics
from rankscope.model.tables import metric_dtype


def wide_of(
    complete: pl.DataFrame,
    ranks: pl.DataFrame,
    measures: pl.DataFrame,
    waits: pl.DataFrame | None,
    blind: tuple[int, ...],
) -> pl.DataFrame:
    """rank, iteration, epoch, number, host, role and the column of every metric.

    A row per rank and complete iteration; null is unknown.

    Args:
        complete: RANK_ITERATIONS of complete iterations.
        ranks: rank, host, role.
        measures: MEASURES on one clock, without its name.
        waits: `Waits.by_iteration`; None where ranks are missing that may have been waited for.
        blind: ranks whose collectives are not seen.
    """
    frame = (
        complete.select("rank", "iteration", "epoch", "number")
        .join(ranks, on="rank")
        .join(measures, on=["rank", "iteration"], how="left")
    )
    if waits is None:
        frame = frame.with_columns(
            pl.lit(None, metric_dtype(each)).alias(each.column) for each in compared_metrics()
        )
    else:
        exposed = pl.col("exposed_communication_ns")
        frame = frame.join(waits, on=["rank", "iteration"], how="left").with_columns(
            wait_ns=pl.when(exposed.is_null())
            .then(None)
            .when(exposed == 0)
            .then(0)
            .otherwise("wait_ns")
        )
    if blind:
        frame = frame.with_columns(
            pl.when(~pl.col("rank").is_in(blind)).then(each.column).alias(each.column)
            for each in METRICS.values()
            if each.scope is not Scope.RANK
        )
    for each in METRICS.values():
        if each.column not in frame.columns:
            raise ValueError(
                f"metric {each.name}: nothing computes its column {each.column}; the docstring of "
                "rankscope/model/metrics.py says where to"
            )
    order = ["rank", "iteration", "epoch", "number", "host", "role"]
    return frame.select(*order, *columns_of(METRICS)).sort("rank", "iteration")
