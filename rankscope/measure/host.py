"""The host clock: every instant of the training thread has one owner. See METHOD.md#host-clock."""

from collections.abc import Callable

import numpy as np
import polars as pl

from rankscope.measure.segment import PhaseRanges
from rankscope.model.arrays import taken
from rankscope.model.frames import framed
from rankscope.model.intervals import Times, cells, owners, union
from rankscope.model.schema import SEGMENTS
from rankscope.util.numbers import NEVER


def host_timeline(
    iterations: pl.DataFrame,
    marks: PhaseRanges,
    computing: Callable[[], Times] = lambda: np.zeros(0, dtype=np.int64),
) -> pl.DataFrame:
    """The windows cut into disjoint SEGMENTS that fill them.

    Of nested marks the innermost owns the instant. Where no range fetches data,
    loading also owns the gap before an iteration's range and the time from the range's start to
    its first mark, less foreign ranges there. The rest is `other`.

    Args:
        iterations: ITERATIONS.
        marks: the marks on the training thread.
        computing: gives the sorted launches of computation. Called if nothing tells where forward
            begins: loading then ends with the first of them.
    """
    edges = window_edges(iterations)
    inner_first = marks.frame.sort("start", "end", descending=[True, False])
    loading, foreign = _implicit_loading(iterations, marks, computing)
    parts = (inner_first, foreign, loading)
    start, end = (
        np.concatenate([part[name].to_numpy() for part in parts]) for name in ("start", "end")
    )
    labels = (
        inner_first["label"].to_list()
        + ["other"] * foreign.height
        + ["load"] * loading.height
        + ["other"]
    )
    low, high = edges[0], edges[-1]
    start, end = np.clip(start, low, high), np.clip(end, low, high)
    points = cells(start, end, edges)
    owner = owners(points, start, end)
    return segments(points, edges, taken(pl.Series(labels, dtype=pl.String), owner))


def segments(points: Times, edges: Times, labels: pl.Series) -> pl.DataFrame:
    """Labelled cells as SEGMENTS: cut at the windows' edges, equal neighbours merged."""
    window = np.searchsorted(edges, points[:-1], side="right") - 1
    return merged(
        framed({"start": points[:-1], "end": points[1:], "window": window, "label": labels})
    )


def merged(frame: pl.DataFrame) -> pl.DataFrame:
    """SEGMENTS with adjacent rows of the same window and label merged.

    Args:
        frame: SEGMENTS in time order, without gaps inside a window.
    """
    label = frame["label"].cast(SEGMENTS["label"])
    start, end, window = (frame[name].to_numpy() for name in ("start", "end", "window"))
    part = label.to_physical().to_numpy()
    border = np.flatnonzero((window[1:] != window[:-1]) | (part[1:] != part[:-1]))
    first, last = np.append(0, border + 1), np.append(border, len(part) - 1)
    first, last = first[: len(part)], last[: len(part)]  # none of no rows
    times = {"start": start[first], "end": end[last], "window": window[first]}
    return framed({**times, "label": taken(label, first)})


def _before_phases(iterations: pl.DataFrame, phases: Times) -> pl.DataFrame:
    """start and end of the time before the phases of each iteration.

    Phases in the gap before an iteration's range (validation) do not end its loading, unless all
    of its phases are there: then the range only marks the end of the iteration.

    Args:
        iterations: ITERATIONS.
        phases: sorted starts of marks.
    """
    opened, begin, until = (
        iterations[name].to_numpy() for name in ("window_start", "start", "window_end")
    )
    starts = np.append(phases, NEVER)
    inside = starts[np.searchsorted(starts, begin)]  # at or after the range's start
    if not (inside[inside < until] > begin[inside < until]).any():
        first_of_window = starts[np.searchsorted(starts, opened)]
        inside = np.minimum(first_of_window, inside)
    end = np.where(inside < until, inside, begin)
    return framed({"start": opened, "end": end})


def window_edges(iterations: pl.DataFrame) -> Times:
    """The n + 1 edges of n adjacent windows."""
    ends = iterations["window_end"].to_numpy()
    return np.concatenate((iterations["window_start"].to_numpy()[:1], ends)).astype(np.int64)


def _implicit_loading(
    iterations: pl.DataFrame, marks: PhaseRanges, computing: Callable[[], Times]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Intervals that count as loading because no range names them, and foreign ranges in them.

    Both are frames of start, end. Foreign ranges that overlap are one.
    """
    nothing = pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64})
    if marks.fetches or not marks.phases:
        return nothing, nothing
    phases = marks.frame.filter(pl.col("label") != "exposed_communication")
    stretches = _before_phases(iterations, phases["start"].sort().to_numpy())
    if "forward" not in marks.phases:
        launches = np.append(computing(), NEVER)
        begins = stretches["start"].to_numpy()
        first = pl.Series(launches[np.searchsorted(launches, begins)])
        stretches = stretches.with_columns(end=pl.min_horizontal("end", first))
    stretches = stretches.filter(pl.col("end") > pl.col("start"))
    opened = stretches.rename({"end": "until"})
    foreign = marks.foreign.map(
        lambda part: (
            part.sort("start")
            .join_asof(opened, on="start", strategy="backward")
            .filter(pl.col("end") <= pl.col("until"))
            .select("start", "end")
        )
    )
    start, end = union(*(each.to_numpy() for each in foreign.whole))
    return stretches, framed({"start": start, "end": end})
