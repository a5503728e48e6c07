"""The gpu clock: every instant of a device's window has one owner (method section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.intervals import Flags, Times, cells, covered, length_before, owners, union
from rankscope.measure.host import segments
from rankscope.schema import SEGMENTS, empty

KIND_ORDER = {"kernel": 0, "graph": 0, "set": 1, "copy": 2}
"""Of operations that run at once a kernel owns the instant before a copy does."""


@dataclass(frozen=True, slots=True)
class DeviceTimeline:
    """One rank's device, accounted for."""

    segments: pl.DataFrame  # SEGMENTS; `window` counts the windows, gaps between them left out
    windows: pl.DataFrame  # window, window_start, window_end; null where nothing was launched
    usage: pl.DataFrame  # window, compute, communication, idle
    idle: pl.DataFrame  # window, phase, kind (`idle`), name (""), count, total_ns
    work: pl.DataFrame  # attributed operations, see `attribute`
    unphased: pl.DataFrame  # window, share of its computing time without a phase

    @property
    def opaque(self) -> bool:
        """Whether some work is CUDA graphs traced as a whole, which hide what waits in them."""
        return (self.work["kind"] == "graph").any()


def attribute(device_work: pl.DataFrame, host: pl.DataFrame, thread: int) -> pl.DataFrame:
    """Operations of one process with what the host did when it launched them.

    Args:
        device_work: DEVICE_WORK of one process with `operation`, null for computation.
        host: SEGMENTS of the host timeline.
        thread: the thread of the iteration ranges.

    Returns:
        DEVICE_WORK with `operation`, `phase` and `window` of the launch (null outside all
        windows), and `training`: launched by the thread of the iterations, or by another onto a
        stream that it uses (autograd's); without a launch record, run on such a stream.
    """
    inside = pl.col("launch") < pl.col("until")
    phase = pl.when(inside).then("phase")
    unrecorded = pl.col("launch_thread").is_null()
    return (
        device_work.lazy()
        .sort("launch", nulls_last=True)
        .join_asof(
            host.lazy().select("start", phase="label", window="window", until="end"),
            left_on="launch",
            right_on="start",
            strategy="backward",
            coalesce=True,
        )
        .with_columns(
            # A blocking call has no work of its own; a graph launched under no phase spans them.
            phase=pl.when(phase == "exposed_communication")
            .then(pl.lit("other"))
            .when(pl.col("graph") & ~phase.is_in(["forward", "backward", "optimizer"]))
            .then(None)
            .otherwise(phase),
            window=pl.when(inside).then("window"),
            on_own_stream=(pl.col("launch_thread") == thread).any().over("device", "stream"),
        )
        .with_columns(
            training=pl.when(unrecorded)
            .then("on_own_stream")
            .otherwise(pl.col("on_own_stream").any().over("launch_thread"))
        )
        .drop("until", "on_own_stream")
        .sort("launch", "start", nulls_last=True)
        .collect()
    )


def device_timeline(
    work: pl.DataFrame, host: pl.DataFrame, iterations: pl.DataFrame, blocking: pl.DataFrame
) -> DeviceTimeline:
    """The device's windows cut into disjoint SEGMENTS that fill them.

    (1) Running training work owns the instant, kernels before copies, then the earliest
    launched; (2) else a running collective makes it exposed communication; (3) else the device
    idles: until the next operation is launched the phase open on the host owns it, from launch
    to start that operation's phase.

    Args:
        work: what `attribute` returned.
        host: SEGMENTS of the host timeline.
        iterations: ITERATIONS.
        blocking: start, end of host calls that communicate and block (MPI).
    """
    windows = _windows(work, iterations)
    known = windows.drop_nulls()
    if known.is_empty():
        nothing = pl.DataFrame(
            schema=dict.fromkeys(["window", "compute", "communication", "idle"], pl.Int64)
        )
        share = pl.DataFrame(schema={"window": pl.Int64, "share": pl.Float64})
        return DeviceTimeline(
            empty(SEGMENTS), windows, nothing, _idling(empty(SEGMENTS)), work, share
        )
    edges = np.unique(np.concatenate([_times(known, "window_start"), _times(known, "window_end")]))
    training = work.filter(pl.col("training")).with_columns(
        kind=pl.col("kind").replace_strict(KIND_ORDER, return_dtype=pl.Int64)
    )
    computing = training.filter(pl.col("operation").is_null()).sort(
        "kind", "launch", "start", nulls_last=True
    )
    collectives = work.filter(pl.col("operation").is_not_null())
    start, end = _clipped(computing, edges)
    busy_start, busy_end = _clipped(
        pl.concat([collectives.select("start", "end"), blocking.select("start", "end")]), edges
    )
    launches = np.clip(_times(training.drop_nulls("launch"), "launch"), edges[0], edges[-1])
    host_starts = np.clip(_times(host, "start"), edges[0], edges[-1])
    points = cells(edges, start, end, busy_start, busy_end, launches, host_starts)
    owner = owners(points, start, end)
    communicating = covered(points, busy_start, busy_end)
    labels = (
        pl.concat([computing["phase"].fill_null("other"), pl.Series(["other"])])
        .gather(owner)
        .rename("running")
    )
    idle = _idle_owner(points, training, host)
    who = pl.DataFrame({"running": labels, "idle": idle}).with_columns(
        computes=pl.Series(owner < len(start)), talks=pl.Series(communicating)
    )
    told = who.select(
        label=pl.when("computes")
        .then("running")
        .when("talks")
        .then(pl.lit("exposed_communication"))
        .otherwise("idle"),
        starves=pl.when(~pl.col("computes") & ~pl.col("talks")).then("idle"),
    )
    return DeviceTimeline(
        segments=_placed(segments(points, edges, told["label"]), known),
        windows=windows,
        usage=_usage(work, known),
        idle=_idling(_placed(segments(points, edges, told["starves"]), known).drop_nulls("label")),
        work=work,
        unphased=_unphased(points, computing, owner, known),
    )


def _placed(pieces: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """SEGMENTS with `window` counting all windows; pieces between known windows go."""
    position = np.searchsorted(_times(known, "window_start"), _times(pieces, "start"), "right") - 1
    inside = _times(pieces, "end") <= _times(known, "window_end")[position]
    return pieces.with_columns(window=known["window"].gather(position)).filter(pl.Series(inside))


def _idling(pieces: pl.DataFrame) -> pl.DataFrame:
    return pieces.group_by("window", phase="label").agg(
        kind=pl.lit("idle"),
        name=pl.lit(""),
        count=pl.len().cast(pl.Int64),
        total_ns=(pl.col("end") - pl.col("start")).sum(),
    )


def _windows(work: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """From the end of the last training work launched in one iteration to that of the next.

    The first window starts at its own range.
    A window in which nothing was launched is unknown; the next then starts at the end of its
    range on the host.
    """
    own = work.filter(
        pl.col("training") & pl.col("operation").is_null() & pl.col("window").is_not_null()
    )
    never = np.iinfo(np.int64).min
    last = np.full(iterations.height, never)
    np.maximum.at(last, _times(own, "window"), _times(own, "end"))
    reached = np.where(last > never, last, _times(iterations, "window_end"))
    reached = np.maximum.accumulate(reached)
    begin = np.append(iterations["start"][0], reached[:-1])
    known = pl.lit(pl.Series(last > begin))
    return pl.select(
        window=pl.Series(np.arange(len(last))),
        window_start=pl.when(known).then(pl.Series(begin)),
        window_end=pl.when(known).then(pl.Series(reached)),
    )


def _idle_owner(points: Times, training: pl.DataFrame, host: pl.DataFrame) -> pl.Series:
    """For each cell who owns it if the device idles there."""
    upcoming = training.sort("start").select("start", "launch", "phase")
    begin = points[:-1]
    index = np.searchsorted(_times(upcoming, "start"), begin, side="left")
    there = index < upcoming.height
    following = upcoming[np.minimum(index, max(upcoming.height - 1, 0)).tolist()]
    launch = following["launch"].fill_null(following["start"]).to_numpy()
    launched = there & (launch <= begin)
    position = np.searchsorted(_times(host, "start"), begin, side="right") - 1
    on_host = host["label"].gather(np.maximum(position, 0))
    return (
        pl.DataFrame({"phase": following["phase"], "host": on_host})
        .with_columns(launched=pl.Series(launched))
        .select(pl.when("launched").then(pl.col("phase").fill_null("other")).otherwise("host"))
        .to_series()
    )


def _usage(work: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Unions over the device per window: computing, communicating, neither."""
    low, high = _times(windows, "window_start"), _times(windows, "window_end")

    def inside(part: pl.DataFrame) -> Times:
        start, end = union(_times(part, "start"), _times(part, "end"))
        return length_before(start, end, high) - length_before(start, end, low)

    is_collective = pl.col("operation").is_not_null()
    return windows.select(
        "window",
        compute=pl.Series(inside(work.filter(~is_collective))),
        communication=pl.Series(inside(work.filter(is_collective))),
        idle=pl.Series(high - low - inside(work)),
    )


def _unphased(
    points: Times, computing: pl.DataFrame, owner: Times, windows: pl.DataFrame
) -> pl.DataFrame:
    """Share of each window's computing time whose phase is unknown."""
    unknown = np.append(computing["phase"].is_null().to_numpy(), False)[owner]
    runs: Flags = owner < computing.height
    low, high = _times(windows, "window_start"), _times(windows, "window_end")

    def inside(chosen: Flags) -> Times:
        start, end = points[:-1][chosen], points[1:][chosen]
        return length_before(start, end, high) - length_before(start, end, low)

    total = inside(runs)
    return windows.select("window", share=pl.Series(inside(unknown & runs) / np.maximum(total, 1)))


def _times(frame: pl.DataFrame, name: str) -> Times:
    return frame[name].to_numpy().astype(np.int64)


def _clipped(frame: pl.DataFrame, edges: Times) -> tuple[Times, Times]:
    low, high = edges[0], edges[-1]
    return np.clip(_times(frame, "start"), low, high), np.clip(_times(frame, "end"), low, high)
