"""One rank's side of every collective: arrival, start, end. See METHOD.md#waits."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.measure.ordinals import with_ordinals
from rankscope.model.intervals import Flags, Times
from rankscope.model.schema import COLLECTIVES, conform, empty
from rankscope.util.numbers import NEVER

REDUCTIONS = ("all_reduce", "reduce_scatter")

FEW_BYTES = 64
"""A reduction of at most this size (bytes) sums up some numbers, such as the gradient norm."""

NAMED = "named"
"""First word of communicator names that are the same on every rank."""

CALLS = [
    *("start", "end", "launch", "graph", "window", "phase", "bytes", "sequence"),
    pl.col("operation").cast(pl.Categorical),
    pl.coalesce(
        pl.format("{} {}", pl.lit(NAMED), "communicator"),
        pl.format("device {} stream {}", "device", "stream"),
    )
    .cast(pl.Categorical)
    .alias("communicator"),
]
"""Collectives of the device; the stream stands for the communicator until ranks are matched."""

_ORDERED = pl.Schema((name, COLLECTIVES[name]) for name in COLLECTIVES if name != "gradient")


class ReadyTimes:
    """For each collective, the latest end of compute launched before it."""

    def __init__(self, calls: pl.DataFrame) -> None:
        """Start without any work; `calls` are the collectives to compute ready times for."""
        self._launches = calls["launch"].drop_nulls().unique().sort().to_numpy()
        self._ends = np.full(len(self._launches) + 1, -NEVER)

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        own = part["training"] & part["operation"].is_null() & part["launch"].is_not_null()
        launch, end = (part[name].filter(own).to_numpy() for name in ("launch", "end"))
        after = np.searchsorted(self._launches, launch, side="right")
        np.maximum.at(self._ends, after, end)

    def of(self, calls: pl.DataFrame) -> Times:
        """The latest end of this rank's work launched before each call; `-NEVER` without any.

        Undefined for calls without a launch record.
        """
        launch = calls["launch"].fill_null(-NEVER).to_numpy()
        return np.maximum.accumulate(self._ends)[np.searchsorted(self._launches, launch)]


def collectives(
    calls: pl.DataFrame, ready: ReadyTimes, iterations: pl.DataFrame, marks: pl.DataFrame
) -> pl.DataFrame:
    """Blocking calls of the training thread, then communication kernels.

    Args:
        calls: CALLS from `attribute`; a window is a row of `iterations`.
        ready: the ready times, after all work was added.
        iterations: ITERATIONS.
        marks: MARKS.

    Returns:
        COLLECTIVES; `rank` is null.
    """
    begins = iterations["window_start"].to_numpy()
    sources = (_calls(iterations, marks), _kernels(calls, ready, iterations))
    return pl.concat(_finish(each, begins, marks) for each in sources)


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
            sequence=pl.lit(None, pl.Int64),
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


def _kernels(calls: pl.DataFrame, ready: ReadyTimes, iterations: pl.DataFrame) -> pl.DataFrame:
    """Communication kernels.

    Arrival: min(kernel start, max(launch, latest end of the training threads' own work launched
    before it)). A kernel that queued behind an earlier collective starts late without its rank
    being late. Without a launch record, or inside a CUDA graph, it is the kernel's start.
    """
    if calls.is_empty():
        return calls
    belongs = belonging(calls, iterations)
    direct = pl.col("launch").is_null() | pl.col("graph")
    could = pl.max_horizontal("launch", pl.Series(ready.of(belongs)))
    return belongs.select(
        *("operation", "communicator", "bytes", "sequence", "iteration", "window"),
        arrival_ns=pl.when(direct).then("start").otherwise(pl.min_horizontal("start", could)),
        start_ns="start",
        end_ns="end",
        place=pl.lit("device"),
        in_forward=pl.col("phase") == "forward",
        launch=pl.coalesce("launch", "start"),
    )


def belonging(work: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """Operations inside iterations, with the `iteration` of their launch, else of their start.

    Args:
        work: rows from `attribute`; a window is a row of `iterations`.
        iterations: ITERATIONS.
    """
    start = work["start"].to_numpy()
    at = np.searchsorted(iterations["window_start"].to_numpy(), start, side="right") - 1
    inside = (at >= 0) & (start < iterations["window_end"].to_numpy()[at])
    started_in = pl.when(pl.Series(inside)).then(pl.Series(at))
    belongs = work.with_columns(window=pl.coalesce("window", started_in)).drop_nulls("window")
    return belongs.with_columns(iteration=iterations["iteration"].gather(belongs["window"]))


def _before_optimizer(in_order: pl.DataFrame, begins: Times, marks: pl.DataFrame) -> Flags:
    """Whether calls are launched after a backward range begins and before the next optimizer range.

    Both in the window of the call, which may hold several steps. Ranges that zero the gradients
    may precede backward; only optimizer ranges after it count.
    """
    launch, begin = in_order["launch"].to_numpy(), begins[in_order["window"].to_numpy()]

    def latest(label: str) -> Times:
        start = marks["start"].filter(marks["label"] == label).sort().to_numpy()
        before = np.concatenate(([-NEVER], start))[np.searchsorted(start, launch, side="right")]
        return np.where(before >= begin, before, -NEVER)

    backward = latest("backward")
    return np.asarray((backward > -NEVER) & (latest("optimizer") < backward))


def _finish(placed: pl.DataFrame, begins: Times, marks: pl.DataFrame) -> pl.DataFrame:
    """COLLECTIVES with ordinals; `gradient` marks gradient reductions."""
    if placed.is_empty():
        return empty(COLLECTIVES)
    in_order = with_ordinals(placed.sort("launch", "start_ns")).with_columns(
        forward_too=pl.col("in_forward").fill_null(False).any().over("communicator"),
    )
    between = _before_optimizer(in_order, begins, marks)
    optional = ("rank", "bytes")  # the caller knows the rank; blocking calls do not say their size
    every = conform(in_order, _ORDERED, optional=optional, drop_others=True)
    few = (pl.col("bytes") <= FEW_BYTES).fill_null(False)
    candidate = pl.col("operation").is_in(REDUCTIONS) & ~in_order["forward_too"] & ~few
    return conform(_with_gradient(every, candidate & pl.Series(between)), COLLECTIVES)


def _with_gradient(every: pl.DataFrame, candidate: pl.Expr) -> pl.DataFrame:
    """_ORDERED with `gradient`: the candidates on the communicator that carries most of them.

    Most bytes; where a size is unknown, most transfer time, which is what each of the calls took in
    the iteration in which it was fastest.
    """
    asked = every.filter(candidate)
    length = pl.col("end_ns") - pl.col("arrival_ns")
    fastest = length.min().over("communicator", "operation", "ordinal")
    carried = fastest if asked["bytes"].null_count() else pl.col("bytes")
    totals = asked.group_by("communicator", maintain_order=True).agg(carried=carried.sum())
    most = totals.top_k(1, by="carried")["communicator"]
    return every.with_columns(gradient=candidate & pl.col("communicator").is_in(most.implode()))
