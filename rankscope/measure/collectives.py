"""One rank's side of every collective: arrival, start, end. See METHOD.md#waits."""

import numpy as np
import polars as pl

from rankscope.measure.ordinals import with_ordinals
from rankscope.model.arrays import added_up, codes, filled, holds, is_null, places, rows_of, taken
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.intervals import Flags, Times
from rankscope.model.schema import COLLECTIVES, conform, constant, empty, ordered
from rankscope.util.numbers import NEVER

REDUCTIONS = ("all_reduce", "reduce_scatter")

FEW_BYTES = 64
"""A reduction of at most this size (bytes) is of a few numbers, such as the gradient norm."""

NAMED = "named"
"""First word of communicator names that are the same on every rank."""

CALLS = [
    *("start", "end", "launch", "graph", "window", "phase", "bytes", "sequence"),
    pl.col("operation").cast(pl.Categorical),
    pl.coalesce(  # pl.format panics where columns have chunks of their own (polars 2.1)
        pl.concat_str(pl.lit(f"{NAMED} "), "communicator"),
        pl.concat_str(pl.lit("device "), "device", pl.lit(" stream "), "stream"),
    )
    .cast(pl.Categorical)
    .alias("communicator"),
]
"""Collectives of the device; the stream stands for the communicator until ranks are matched."""


class ReadyTimes:
    """For each collective, the latest end of compute launched before it."""

    def __init__(self, calls: pl.DataFrame) -> None:
        """Start without any work; `calls` are the collectives to compute ready times for."""
        self._launches = np.unique(calls["launch"].to_numpy()[~is_null(calls["launch"])])
        self._ends = np.full(len(self._launches) + 1, -NEVER)

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        own = part["training"].to_numpy() & is_null(part["operation"]) & ~is_null(part["launch"])
        launch, end = (part[name].to_numpy()[own] for name in ("launch", "end"))
        after = np.searchsorted(self._launches, launch, side="right")
        np.maximum.at(self._ends, after, end)

    def of(self, calls: pl.DataFrame) -> Times:
        """The latest end of this rank's work launched before each call; `-NEVER` without any.

        Undefined for calls without a launch record.
        """
        launch = filled(calls["launch"], -NEVER)
        return np.maximum.accumulate(self._ends)[np.searchsorted(self._launches, launch)]


def collectives(
    calls: pl.DataFrame,
    ready: ReadyTimes,
    iterations: pl.DataFrame,
    marks: pl.DataFrame,
    lacking: Flags,
) -> pl.DataFrame:
    """Blocking calls of the training thread, then communication kernels.

    Args:
        calls: CALLS from `attribute`; a window is a row of `iterations`.
        ready: the ready times, after all work was added.
        iterations: ITERATIONS.
        marks: MARKS.
        lacking: for each window whether records of the device are missing.

    Returns:
        COLLECTIVES; `rank` is null.
    """
    begins = iterations["window_start"].to_numpy()
    sources = (_calls(iterations, marks), _kernels(calls, ready, iterations, lacking))
    return stacked(_finish(each, begins, marks) for each in sources)


def _calls(iterations: pl.DataFrame, marks: pl.DataFrame) -> pl.DataFrame:
    """Calls of the training thread: they arrive when they are called."""
    calls, forward = (
        rows_of(marks, (marks["label"] == label).to_numpy())
        for label in ("exposed_communication", "forward")
    )
    forward = ordered(forward, "start")
    calls = with_series(calls, pl.Series("start", filled(calls["called"], calls["start"])))
    calls = belonging(with_series(calls, constant("window", None, calls.height)), iterations)
    start, end = calls["start"], calls["end"]
    last = np.searchsorted(forward["start"].to_numpy(), start.to_numpy(), side="right")
    return framed(
        {
            **{name: calls[name] for name in ("operation", "iteration", "window")},
            "communicator": calls["source"],
            "bytes": constant("bytes", None, calls.height).cast(pl.Int64),
            "sequence": constant("sequence", None, calls.height).cast(pl.Int64),
            **{"arrival_ns": start, "start_ns": start, "end_ns": end, "launch": start},
            "place": constant("place", "host", calls.height),
            "in_forward": start.to_numpy() < np.append(-NEVER, forward["end"].to_numpy())[last],
        }
    )


def _kernels(
    calls: pl.DataFrame, ready: ReadyTimes, iterations: pl.DataFrame, lacking: Flags
) -> pl.DataFrame:
    """Communication kernels.

    Arrival: min(kernel start, max(launch, latest end of the training threads' own work launched
    before it)). A kernel that queued behind an earlier collective starts late without its rank
    being late. Without a launch record, inside a CUDA graph, or where records are missing, it is
    the kernel's start.
    """
    belongs = belonging(calls, iterations)
    start = belongs["start"].to_numpy()
    launch = filled(belongs["launch"], belongs["start"])
    direct = is_null(belongs["launch"]) | belongs["graph"].to_numpy()
    direct |= lacking[belongs["window"].to_numpy()]
    arrival = np.minimum(start, np.maximum(launch, ready.of(belongs)))
    same = ("operation", "communicator", "bytes", "sequence", "iteration", "window")
    return framed(
        {
            **{name: belongs[name] for name in same},
            **{"arrival_ns": np.where(direct, start, arrival), "start_ns": start},
            **{"end_ns": belongs["end"], "launch": launch},
            "place": constant("place", "device", belongs.height),
            "in_forward": holds(belongs["phase"] == "forward"),
        }
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
    window = filled(work["window"], pl.Series(np.where(inside, at, -1)))
    belongs, window = rows_of(work, window >= 0), window[window >= 0]
    return with_series(belongs, pl.Series("window", window), taken(iterations["iteration"], window))


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
    order = np.lexsort((placed["start_ns"].to_numpy(), placed["launch"].to_numpy()))
    calls = with_ordinals(taken(placed, order))
    # DDP sends buffers in forward, on the communicator of its gradients
    in_forward = calls["in_forward"].to_numpy() & ~holds(calls["operation"].is_in(["rooted"]))
    group = codes(calls[["communicator"]])
    candidate = _before_optimizer(calls, begins, marks) & ~np.isin(group, group[in_forward])
    candidate &= ~holds(calls["bytes"] <= FEW_BYTES)
    candidate &= holds(calls["operation"].is_in(REDUCTIONS))
    candidate[candidate] = _carry_most(rows_of(calls, candidate), group[candidate])
    calls = with_series(calls, pl.Series("gradient", candidate))
    return conform(calls, COLLECTIVES, optional=("rank",), drop_others=True)


def _carry_most(calls: pl.DataFrame, group: Times) -> Flags:
    """Whether each call is of the communicator that carries most of them.

    Most bytes; where a size is unknown, most transfer time, which is what each of the calls took in
    the iteration in which it was fastest.
    """
    if calls.is_empty():
        return np.zeros(0, np.bool_)
    carried = filled(calls["bytes"], 0)
    if calls["bytes"].has_nulls():
        length = (calls["end_ns"] - calls["arrival_ns"]).to_numpy()
        kind, firsts = places(codes(calls[["communicator", "operation", "ordinal"]]))
        fastest = np.full(len(firsts), NEVER)
        np.minimum.at(fastest, kind, length)
        carried = fastest[kind]
    _, first, place = np.unique(group, return_index=True, return_inverse=True)
    totals = added_up(carried[None], place, len(first))[0]
    return np.asarray(place == np.lexsort((first, -totals))[0])
