"""One rank's side of every collective: when it arrived, started, ended (method section 6)."""

from __future__ import annotations

import polars as pl

from rankscope.schema import COLLECTIVES, conform

REDUCTIONS = ("all_reduce", "reduce_scatter")

NAMED = "named"
"""First word of a communicator's name that means the same on every rank."""


def host_collectives(iterations: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Blocking calls of the training thread: the arrival is the call's start.

    Returns:
        COLLECTIVES without `rank`; `gradient` is null where a phase it needs has no ranges.
    """
    calls = (
        marks.filter(pl.col("label") == "exposed_communication")
        .sort("start")
        .with_columns(
            arrival_ns="start",
            start_ns="start",
            end_ns="end",
            launch="start",
            communicator="source",
            place=pl.lit("host"),
        )
    )
    inside = calls.join_asof(
        iterations.select("window_start", "window_end", "iteration"),
        left_on="start",
        right_on="window_start",
        strategy="backward",
    ).filter(pl.col("start") < pl.col("window_end"))
    forward = marks.filter(pl.col("label") == "forward").select("start", until="end").sort("start")
    in_forward = pl.col("start") < pl.col("until").fill_null(pl.col("start"))
    placed = inside.join_asof(forward, on="start", strategy="backward").with_columns(
        in_forward=in_forward
    )
    return _finish(placed, iterations, marks)


def device_collectives(
    work: pl.DataFrame, iterations: pl.DataFrame, marks: pl.DataFrame
) -> pl.DataFrame:
    """Communication kernels, a stream of the device standing for a communicator.

    Arrival: min(kernel start, max(launch, latest end of the training threads' own work launched
    before it)). A kernel that queued behind an earlier collective starts late without its rank
    being late. Without a launch record, or inside a CUDA graph, it is the kernel's start.

    Args:
        work: what `attribute` returned, windows being rows of `iterations`.
        iterations: ITERATIONS.
        marks: MARKS.

    Returns:
        COLLECTIVES without `rank`.
    """
    own = (
        work.filter(
            pl.col("training") & pl.col("operation").is_null() & pl.col("launch").is_not_null()
        )
        .sort("launch")
        .select("launch", ready=pl.col("end").cum_max())
    )
    kernels = (
        belonging(work.filter(pl.col("operation").is_not_null()), iterations)
        .with_columns(before=pl.col("launch") - 1)
        .sort("before", nulls_last=True)
        .join_asof(own, left_on="before", right_on="launch", strategy="backward", coalesce=True)
    )
    direct = pl.col("launch").is_null() | pl.col("graph")
    ready = pl.max_horizontal("launch", "ready")
    placed = kernels.with_columns(
        arrival_ns=pl.when(direct).then("start").otherwise(pl.min_horizontal("start", ready)),
        start_ns="start",
        end_ns="end",
        communicator=pl.coalesce(
            pl.format("{} {}", pl.lit(NAMED), "communicator"),
            pl.format("device {} stream {}", "device", pl.col("stream") % 2**32),
        ),
        place=pl.lit("device"),
        in_forward=pl.col("phase") == "forward",
        launch=pl.coalesce("launch", "start"),
    )
    return _finish(placed, iterations, marks)


def belonging(work: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Operations with the `iteration` they were launched in, or else start in; no others.

    Args:
        work: what `attribute` returned, windows being rows of `iterations`.
        iterations: ITERATIONS.
    """
    spans = iterations.select(
        "window_start", "window_end", started_in=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    return (
        work.sort("start")
        .join_asof(spans, left_on="start", right_on="window_start", strategy="backward")
        .with_columns(
            window=pl.coalesce(
                "window", pl.when(pl.col("start") < pl.col("window_end")).then("started_in")
            )
        )
        .drop("window_start", "window_end", "started_in")
        .join(iterations.select(pl.int_range(pl.len()).alias("window"), "iteration"), on="window")
    )


def _finish(placed: pl.DataFrame, iterations: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Ordinals and gradient reductions."""
    like = ["communicator", "operation", "iteration"]
    ordered = placed.sort("launch", "start").with_columns(
        ordinal=pl.int_range(pl.len()).over(like),
        forward_too=pl.col("in_forward").fill_null(False).any().over("communicator"),
    )
    spans = iterations.select("iteration", "window_start", "window_end").sort("window_start")
    starts = (
        marks.sort("start")
        .join_asof(spans, left_on="start", right_on="window_start", strategy="backward")
        .filter(pl.col("start") < pl.col("window_end"))
    )
    backward = (
        starts.filter(pl.col("label") == "backward")
        .group_by("iteration")
        .agg(backward=pl.col("start").min())
    )
    # Zeroing the gradients may come first; the optimizer's own work comes after backward.
    optimizer = (
        starts.filter(pl.col("label") == "optimizer")
        .join(backward, on="iteration")
        .filter(pl.col("start") > pl.col("backward"))
        .group_by("iteration")
        .agg(optimizer=pl.col("start").min())
    )
    timed = ordered.join(backward, on="iteration", how="left").join(
        optimizer, on="iteration", how="left"
    )
    gradient = (
        pl.col("operation").is_in(REDUCTIONS)
        & (pl.col("launch") >= pl.col("backward")).fill_null(False)
        & (pl.col("launch") < pl.col("optimizer")).fill_null(True)
        & ~pl.col("forward_too")
    )
    return conform(timed.with_columns(gradient=gradient), COLLECTIVES)
