"""The timeline of one rank, on the axis of its report."""

from __future__ import annotations

import polars as pl

from rankscope.measure.collectives import belonging
from rankscope.measure.host_states import state_intervals
from rankscope.measure.metrics import device_segments, host_segments
from rankscope.measure.rank import RankDetail
from rankscope.model.host_events import HostEvents
from rankscope.model.kinds import HostState
from rankscope.model.schema import (
    TIMELINE_OPERATIONS,
    TIMELINE_PHASES,
    TIMELINE_STATES,
    conform,
)


def phases_of(detail: RankDetail, rank: int, shift: int) -> pl.DataFrame:
    """TIMELINE_PHASES of one rank, on its report's axis."""
    clocks = {"host": host_segments(detail.host, not detail.hidden)}
    if detail.has_device:
        clocks["gpu"] = device_segments(detail.device)
    number = detail.found.frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), pl.col("iteration") + shift
    )
    segments = pl.concat(
        frame.join(number, on="window").with_columns(clock=pl.lit(clock))
        for clock, frame in clocks.items()
    )
    named = segments.with_columns(rank=pl.lit(rank), start_ns="start", end_ns="end", phase="label")
    return conform(named, TIMELINE_PHASES, drop_others=True)


def states_of(
    detail: RankDetail,
    rank: int,
    shift: int,
    numbers: tuple[int, ...],
    host_of: HostEvents | None,
) -> pl.DataFrame:
    """TIMELINE_STATES of one rank in some iterations, on its report's axis."""
    windows = detail.found.frame.with_columns(pl.col("iteration") + shift).filter(
        pl.col("iteration").is_in(numbers)
    )
    if host_of is None or windows.is_empty():
        return pl.DataFrame(schema=TIMELINE_STATES)
    thread = detail.found.thread
    span = windows["window_start"].to_numpy().min(), windows["window_end"].to_numpy().max()
    events = host_of({thread: span})[thread]
    parts = [
        state_intervals(events, begin, until).with_columns(iteration=number)
        for number, begin, until in windows.select(
            "iteration", "window_start", "window_end"
        ).iter_rows()
    ]
    known = pl.concat(parts).filter(pl.col("state") != HostState.UNKNOWN)
    named = known.with_columns(rank=pl.lit(rank), start_ns="start", end_ns="end")
    return conform(named, TIMELINE_STATES, drop_others=True)


def operations_of(detail: RankDetail, rank: int, shift: int) -> pl.DataFrame:
    """TIMELINE_OPERATIONS of one rank, on its report's axis."""
    work = pl.concat(belonging(part, detail.found.frame) for part in detail.work.parts())
    collective = pl.col("operation").is_not_null()
    kind, name = (pl.col(each).cast(pl.String) for each in ("kind", "name"))
    named = work.with_columns(
        pl.col("iteration") + shift,
        rank=pl.lit(rank),
        start_ns="start",
        end_ns="end",
        launch_ns="launch",
        kind=pl.when(collective).then(pl.lit("collective")).otherwise(kind),
        name=pl.when(name == "").then(kind).otherwise(name),
        phase=pl.when("training").then("phase"),
    )
    return conform(named, TIMELINE_OPERATIONS, drop_others=True)
