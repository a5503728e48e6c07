"""One rank's side of every collective: when it arrived, started, ended (method section 6)."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.intervals import Flags, Times
from rankscope.schema import COLLECTIVES, conform, empty

REDUCTIONS = ("all_reduce", "reduce_scatter")

NAMED = "named"
"""First word of a communicator's name that means the same on every rank."""

NEVER = np.iinfo(np.int64).max


def collectives(work: pl.DataFrame, iterations: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Blocking calls of the training thread, then communication kernels.

    Args:
        work: what `attribute` returned, windows being rows of `iterations`.
        iterations: ITERATIONS.
        marks: MARKS.

    Returns:
        COLLECTIVES, `rank` being null.
    """
    between = _gradients_between(iterations, marks)
    every = (_calls(iterations, marks), _kernels(work, iterations))
    return pl.concat(_finish(each, *between) for each in every)


def _calls(iterations: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Blocking calls of the training thread: the arrival is the call's start."""
    calls = marks.filter(pl.col("label") == "exposed_communication")
    if calls.is_empty():
        return calls
    inside = (
        calls.sort("start")
        .with_columns(
            arrival_ns="start",
            start_ns="start",
            end_ns="end",
            launch="start",
            communicator="source",
            place=pl.lit("host"),
        )
        .join_asof(
            iterations.select(
                "window_start",
                "window_end",
                "iteration",
                window=pl.int_range(pl.len(), dtype=pl.Int64),
            ),
            left_on="start",
            right_on="window_start",
            strategy="backward",
        )
        .filter(pl.col("start") < pl.col("window_end"))
    )
    forward = marks.filter(pl.col("label") == "forward").select("start", until="end").sort("start")
    in_forward = pl.col("start") < pl.col("until").fill_null(pl.col("start"))
    return inside.join_asof(forward, on="start", strategy="backward").with_columns(
        in_forward=in_forward
    )


def _kernels(work: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Communication kernels, a stream of the device standing for a communicator.

    Arrival: min(kernel start, max(launch, latest end of the training threads' own work launched
    before it)). A kernel that queued behind an earlier collective starts late without its rank
    being late. Without a launch record, or inside a CUDA graph, it is the kernel's start.
    """
    told = ["start", "end", "launch", "graph", "window", "phase", "operation", "bytes"]
    whose = ["communicator", "device", "stream"]
    communication = work.select(*told, *whose).filter(pl.col("operation").is_not_null())
    if communication.is_empty():
        return communication
    own = (
        work.lazy()
        .filter(pl.col("training") & pl.col("operation").is_null() & pl.col("launch").is_not_null())
        .sort("launch")
        .select("launch", ready=pl.col("end").cum_max())
    )
    direct = pl.col("launch").is_null() | pl.col("graph")
    ready = pl.max_horizontal("launch", "ready")
    return (
        belonging(communication, iterations)
        .lazy()
        .with_columns(before=pl.col("launch") - 1)
        .sort("before", nulls_last=True)
        .join_asof(own, left_on="before", right_on="launch", strategy="backward", coalesce=True)
        .with_columns(
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
        .collect()
    )


def belonging(work: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Operations with the `iteration` they were launched in, or else start in; no others.

    Args:
        work: what `attribute` returned, windows being rows of `iterations`.
        iterations: ITERATIONS.
    """
    spans = iterations.lazy().select(
        "window_start",
        "window_end",
        "iteration",
        started_in=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    started_in = pl.when(pl.col("start") < pl.col("window_end")).then("started_in")
    return (
        work.lazy()
        .sort("start")
        .join_asof(
            spans.drop("iteration"),
            left_on="start",
            right_on="window_start",
            strategy="backward",
        )
        .with_columns(window=pl.coalesce("window", started_in))
        .drop("window_start", "window_end", "started_in")
        .join(spans.select("iteration", window="started_in"), on="window", maintain_order="left")
        .collect()
    )


def _gradients_between(iterations: pl.DataFrame, marks: pl.DataFrame) -> tuple[Times, Times]:
    """For each iteration when gradients begin, and when they are made use of; or `NEVER`.

    From backward to the optimizer: zeroing the gradients may come first, the optimizer's own
    work comes after backward.
    """
    begins, ends = (iterations[name].to_numpy() for name in ("window_start", "window_end"))

    def earliest(label: str, after: Times) -> Times:
        start = marks["start"].filter(marks["label"] == label).to_numpy()
        window = np.searchsorted(begins, start, side="right") - 1
        inside: Flags = (window >= 0) & (start < ends[window]) & (start > after[window])
        first = np.full(len(begins), NEVER)
        np.minimum.at(first, window[inside], start[inside])
        return first

    backward = earliest("backward", np.full(len(begins), -NEVER))
    return backward, earliest("optimizer", backward)


def _finish(placed: pl.DataFrame, backward: Times, optimizer: Times) -> pl.DataFrame:
    """COLLECTIVES with ordinals, and whether they reduce gradients."""
    if placed.is_empty():
        return empty(COLLECTIVES)
    like = ["communicator", "operation", "iteration"]
    ordered = placed.sort("launch", "start").with_columns(
        ordinal=pl.int_range(pl.len()).over(like),
        forward_too=pl.col("in_forward").fill_null(False).any().over("communicator"),
    )
    window, launch = ordered["window"].to_numpy(), ordered["launch"].to_numpy()
    between = (launch >= backward[window]) & (launch < optimizer[window])
    gradient = pl.col("operation").is_in(REDUCTIONS) & pl.Series(between) & ~pl.col("forward_too")
    return conform(ordered.with_columns(gradient=gradient), COLLECTIVES)
