"""The gpu clock: every instant of a device's window has one owner (method section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.intervals import Times
from rankscope.measure.host import merged
from rankscope.measure.stretches import LENGTHS, account, stretches
from rankscope.schema import SEGMENTS, empty, ordered

NEVER = np.iinfo(np.int64).max


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
        DEVICE_WORK in the order of the starts, with `operation`, `phase` (an Enum of PARTS) and
        `window` of the launch (null outside all windows), and `training`: launched by the thread
        of the iterations, or by another onto a stream that it uses (autograd's); without a launch
        record, run on such a stream.
    """
    device_work = ordered(device_work, "start")
    launch = device_work["launch"].fill_null(NEVER).to_numpy()
    at = np.searchsorted(host["start"].to_numpy(), launch, side="right") - 1
    inside = (at >= 0) & (launch < host["end"].to_numpy()[at])
    place = pl.Series(at).set(pl.Series(~inside), None)
    phase = pl.col("phase")
    unrecorded = pl.col("launch_thread").is_null()
    return (
        device_work.lazy()
        .with_columns(phase=host["label"].gather(place), window=host["window"].gather(place))
        .with_columns(
            # A blocking call has no work of its own; a graph launched under no phase spans them.
            phase=pl.when(phase == "exposed_communication")
            .then(pl.lit("other", SEGMENTS["label"]))
            .when(pl.col("graph") & ~phase.is_in(["forward", "backward", "optimizer"]))
            .then(None)
            .otherwise(phase),
            on_own_stream=(pl.col("launch_thread") == thread).any().over("device", "stream"),
        )
        .with_columns(
            training=pl.when(unrecorded)
            .then("on_own_stream")
            .otherwise(pl.col("on_own_stream").any().over("launch_thread"))
        )
        .drop("on_own_stream")
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
    parts = [account(each, known, host, blocking) for each in stretches(work, known)]
    lengths = np.zeros((len(LENGTHS), known.height), dtype=np.int64)
    compute, communication, busy, training, unphased = sum(
        (each.lengths for each in parts), lengths
    )
    return DeviceTimeline(
        segments=merged(pl.concat([empty(SEGMENTS), *(each.segments for each in parts)])),
        windows=windows,
        usage=known.select(
            "window",
            compute=pl.Series(compute),
            communication=pl.Series(communication),
            idle=pl.col("window_end") - pl.col("window_start") - pl.Series(busy),
        ),
        idle=_idling(pl.concat([empty(SEGMENTS), *(each.idle for each in parts)])),
        work=work,
        unphased=known.select("window", share=pl.Series(unphased / np.maximum(training, 1))),
    )


def _idling(pieces: pl.DataFrame) -> pl.DataFrame:
    """How often and how long a phase idles, by window."""
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
    own = (
        work.lazy()
        .filter(pl.col("training") & pl.col("operation").is_null())
        .select("window", "end")
        .drop_nulls()
        .collect()
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


def _times(frame: pl.DataFrame, name: str) -> Times:
    return frame[name].to_numpy().astype(np.int64)
