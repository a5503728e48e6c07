"""The files of several windows of one process, joined as if they were one file."""

from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from rankscope.sources.kineto.columns import LAUNCH, RANGE, WORK
from rankscope.sources.kineto.json_stream import About, EventFile

Frames = dict[str, pl.DataFrame]
"""Nature → events, a frame of SCHEMAS."""

APART = 2**40
"""Ids of a window are smaller than this; each window gets its own."""


def in_one(
    windows: Sequence[tuple[EventFile, Frames]],
) -> tuple[EventFile, Frames, list[tuple[int, int]]]:
    """One file with the events of all, on the axis of the first; `is_cut` if the last is.

    Args:
        windows: files of one process and their events, in the order of time.

    Returns:
        the file, its events, and the pauses between the windows (start and end, ns).
    """
    (first, _), (last, _) = windows[0], windows[-1]
    zero = base_time(first.about) or 0
    moved: list[Frames] = []
    for nth, (file, events) in enumerate(windows):
        whole = _until_cut(events) if file.is_cut and file is not last else events
        later = (base_time(file.about) or 0) - zero
        moved.append({nature: _moved(frame, later, nth) for nature, frame in whole.items()})
        if file is not first:
            first.about += file.about
            first.events += file.events
            first.broken += file.broken
            first.strange += file.strange
    first.is_cut = last.is_cut
    spans = [_span(each) for each in moved]
    pauses = [(one[1], max(one[1], later[0])) for one, later in pairwise(spans)]
    frames = {
        nature: pl.concat((each[nature] for each in moved), rechunk=True) for nature in moved[0]
    }
    return first, frames, pauses


def base_time(about: Sequence[About]) -> int | None:
    """The time to add to the times of a file, ns; None where the file does not state it."""
    return next((each.base_time for each in about if isinstance(each.base_time, int)), None)


def _span(events: Frames) -> tuple[int, int]:
    """The first start and the last end of what the host did, ns; 0 without events."""
    host = pl.concat(events[nature].select("start", "end") for nature in (RANGE, LAUNCH))
    first, last = host.select(pl.col("start").min(), pl.col("end").max()).row(0)
    return first or 0, last or 0


def complete_until(launches: pl.DataFrame, work: pl.DataFrame) -> int:
    """The time (ns) up to which a trace that ends amid its events is complete."""
    ends = [frame["end"].max() for frame in (launches, work)]
    return min((end for end in ends if isinstance(end, int)), default=0)


def _until_cut(events: Frames) -> Frames:
    """The events of a file that was cut, without the ranges that last longer than the file."""
    cut = complete_until(events[LAUNCH], events[WORK])
    return events | {RANGE: events[RANGE].filter(pl.col("end") <= cut)}


def _moved(frame: pl.DataFrame, later_ns: int, nth: int) -> pl.DataFrame:
    """Events of a window on the axis of the first, with ids that no other window has."""
    times = [pl.col(name) + later_ns for name in ("start", "end") if name in frame.columns]
    ids = [
        pl.when(pl.col(name) != 0).then(pl.col(name) + nth * APART).otherwise(name).alias(name)
        for name in ("correlation", "external")
        if name in frame.columns
    ]
    return frame.with_columns(*times, *ids)
