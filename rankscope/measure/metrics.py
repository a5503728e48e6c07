"""Timelines → the metrics of one rank, a row per iteration and clock. See METHOD.md#metrics.

Most metrics come out of one sweep over a timeline: lengths of phases (SEGMENTS), and the columns of
`DeviceTimeline.usage`, which bear the names of metrics. The others have a function each in
`FUNCTIONS`: that is where a new metric goes. Every metric of `measured_metrics()` must come from
one of these, on the host clock only those that need no device work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from rankscope.measure.device import DeviceTimeline
from rankscope.measure.host import merged
from rankscope.model.intervals import length_before
from rankscope.model.kinds import COMPUTING_PHASES, NAMED_PHASES, PARTS, Clock
from rankscope.model.metrics import METRICS, Need, column_of, measured_metrics
from rankscope.model.schema import MEASURES, SEGMENTS, conform
from rankscope.model.tables import metric_dtype
from rankscope.util.numbers import NEVER

UNPHASED_LIMIT = 0.05
"""Share of an iteration's computing time that may lack a phase before its phases are unknown."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """One rank on one clock."""

    measures: pl.DataFrame  # MEASURES without `rank`
    exposed: pl.DataFrame  # EXPOSED without `rank`


@dataclass(frozen=True, slots=True)
class MetricInputs:
    """What a metric of one rank and clock can be computed from."""

    clock: Clock
    windows: pl.DataFrame  # iteration, window_start_ns and the metrics of the sweep, a row each
    exposed: pl.DataFrame  # EXPOSED without `rank`
    collectives: pl.DataFrame  # COLLECTIVES of the rank


MetricFunction = Callable[[MetricInputs], pl.Series]
"""A metric's values in the order of `MetricInputs.windows`; null is unknown."""


def host_numbers(
    iterations: pl.DataFrame,
    segments: pl.DataFrame,
    phases: frozenset[str],
    collectives: pl.DataFrame,
    waits_visible: bool,
) -> Numbers:
    """Numbers on the host clock.

    Args:
        iterations: ITERATIONS.
        segments: SEGMENTS of the host timeline.
        phases: phases that have ranges; the others are unknown rather than 0.
        collectives: COLLECTIVES of this rank.
        waits_visible: false where waits hide inside phases (device communication that the host
            merely launches); then exposed communication and work are unknown.
    """
    parts = _parts(host_segments(segments, waits_visible), iterations.height)
    known = phases | ({"load"} if (segments["label"] == "load").any() else set())
    frame = pl.concat(
        [
            iterations.select("iteration", window_start_ns="window_start", end="window_end"),
            parts,
        ],
        how="horizontal",
    ).with_columns(iteration_ns=pl.col("end") - pl.col("window_start_ns"))
    unknown = [phase for phase in NAMED_PHASES if phase not in known]
    if not waits_visible:
        unknown.append("exposed_communication")
    frame = _without_first_load(frame).with_columns(
        pl.lit(None, pl.Int64).alias(column_of(part)) for part in unknown
    )
    exposed = _exposed(segments, iterations, "host")
    return Numbers(_finish(MetricInputs(Clock.HOST, frame, exposed, collectives)), exposed)


def gpu_numbers(
    iterations: pl.DataFrame,
    device: DeviceTimeline,
    phases: frozenset[str],
    collectives: pl.DataFrame,
) -> Numbers:
    """Numbers on the gpu clock; unknown in windows without any launch."""
    unnamed = pl.col("label").is_in([*{*COMPUTING_PHASES} - phases])
    parts = _parts(_as_other(device_segments(device), unnamed), iterations.height)
    known = phases | ({"load"} if (device.segments["label"] == "load").any() else set())
    if device.opaque:
        parts = parts.with_columns(exposed_communication_ns=pl.lit(None, pl.Int64))
    enough = pl.col("share") <= UNPHASED_LIMIT
    launched = pl.col("iteration_ns").is_not_null()
    frame = (
        pl.concat([iterations.select("iteration"), device.windows, parts], how="horizontal")
        .lazy()
        .rename({"window_start": "window_start_ns", "window_end": "end"})
        .with_columns(iteration_ns=pl.col("end") - pl.col("window_start_ns"))
        .join(device.usage.lazy(), on="window", how="left")
        .rename({name: column_of(name) for name in device.usage.columns if name != "window"})
        .join(device.unphased.lazy(), on="window", how="left")
        .sort("window")
        .collect()
        .pipe(_without_first_load)
        .with_columns(
            pl.when(launched, enough, pl.lit(phase in known))
            .then(column_of(phase))
            .alias(column_of(phase))
            for phase in NAMED_PHASES
        )
        .with_columns(
            pl.when(launched).then(part).alias(part)
            for part in ("other_ns", "exposed_communication_ns")
        )
    )
    exposed = _exposed(device.segments, iterations, "gpu")
    return Numbers(_finish(MetricInputs(Clock.GPU, frame, exposed, collectives)), exposed)


def host_segments(segments: pl.DataFrame, waits_visible: bool) -> pl.DataFrame:
    """The host's SEGMENTS, with hidden time relabelled `other`.

    Where waits hide inside phases, the visible rest of them is `other`. So is the visible part of
    the first iteration's loading.
    """
    label = pl.col("label")
    hidden = (label == "exposed_communication") & (not waits_visible)
    return _as_other(segments, hidden | _first_load())


def device_segments(device: DeviceTimeline) -> pl.DataFrame:
    """The device's SEGMENTS, with unknown phases relabelled `other`.

    Visible waits are `other` too where more waits hide in CUDA graphs traced as a whole.
    """
    blind = device.unphased.filter(pl.col("share") > UNPHASED_LIMIT)["window"]
    communicates = pl.col("label") == "exposed_communication"
    unphased = pl.col("window").is_in(blind.implode()) & ~communicates
    hidden = communicates & device.opaque
    return _as_other(device.segments, unphased | hidden | _first_load())


def without(numbers: Numbers, windows: pl.Series) -> Numbers:
    """Numbers of which some windows are unknown.

    Args:
        numbers: on one clock.
        windows: Boolean for each window.
    """
    if not windows.any():
        return numbers
    measures = numbers.measures
    names = [name for name in measures.columns if name not in ("iteration", "clock")]
    blank = measures.with_columns(pl.when(~pl.lit(windows)).then(pl.col(names)))
    return Numbers(blank, numbers.exposed)


def _first_load() -> pl.Expr:
    """Whether a row is loading of the first iteration, which began before the capture."""
    return (pl.col("window") == 0) & (pl.col("label") == "load")


def _as_other(segments: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    label = pl.when(where).then(pl.lit("other", SEGMENTS["label"])).otherwise("label")
    return merged(segments.with_columns(label=label))


def _parts(segments: pl.DataFrame, windows: int) -> pl.DataFrame:
    """Length of each part per window: columns `<part>_ns`, a row per window."""
    lengths = np.zeros((len(PARTS), windows), dtype=np.int64)
    part = segments["label"].cast(pl.Enum(PARTS)).to_physical().to_numpy()
    length = segments["end"] - segments["start"]
    np.add.at(lengths, (part, segments["window"].to_numpy()), length.to_numpy())
    return pl.DataFrame({column_of(name): row for name, row in zip(PARTS, lengths, strict=True)})


def _without_first_load(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the first iteration's loading set to null."""
    return frame.with_columns(load_ns=pl.when(pl.int_range(pl.len()) > 0).then("load_ns"))


def _exposed(segments: pl.DataFrame, iterations: pl.DataFrame, clock: str) -> pl.DataFrame:
    """EXPOSED without `rank`, in time order."""
    waits = segments.filter(pl.col("label") == "exposed_communication")
    return waits.select(
        iterations["iteration"].gather(waits["window"]),
        clock=pl.lit(clock, pl.String),
        start_ns="start",
        end_ns="end",
    )


def _finish(inputs: MetricInputs) -> pl.DataFrame:
    """MEASURES without `rank`: the metrics of the sweep and those of `FUNCTIONS`.

    Raises:
        ValueError: nothing computes a metric of the registry.
    """
    own = [(METRICS[name], function) for name, function in FUNCTIONS.items()]
    frame = inputs.windows.with_columns(
        function(inputs).cast(metric_dtype(metric)).alias(metric.column) for metric, function in own
    ).with_columns(clock=pl.lit(inputs.clock.value))
    for metric in measured_metrics():
        if metric.column not in frame.columns:
            if inputs.clock is Clock.GPU or metric.needs is not Need.DEVICE_WORK:
                raise ValueError(
                    f"metric {metric.name}: nothing computes its column {metric.column}; see "
                    "the recipe of a metric in .github/CONTRIBUTING.md"
                )
            unknown = pl.lit(None, metric_dtype(metric)).alias(metric.column)
            frame = frame.with_columns(unknown)
    return conform(frame, MEASURES, optional=("rank",), drop_others=True).drop("rank")


def _work(inputs: MetricInputs) -> pl.Series:
    """The window's length less exposed communication."""
    return inputs.windows["iteration_ns"] - inputs.windows["exposed_communication_ns"]


def _ready_time(inputs: MetricInputs, which: str) -> pl.Series:
    """From the window's start to the first or last gradient reduction, less communication.

    The time is that to the arrival; exposed communication before it is subtracted. Null where the
    window, its exposed communication or the reduction is unknown.
    """
    windows, gradient = inputs.windows, inputs.collectives["gradient"]
    iteration, arrivals = (
        inputs.collectives[name].filter(gradient).to_numpy() for name in ("iteration", "arrival_ns")
    )
    window = np.searchsorted(windows["iteration"].to_numpy(), iteration)
    begin = windows["window_start_ns"].fill_null(0).to_numpy()
    arrival = np.full(len(begin), NEVER if which == "first" else -NEVER)
    (np.minimum if which == "first" else np.maximum).at(arrival, window, arrivals)
    moment = np.maximum(arrival, begin)
    start, end = inputs.exposed["start_ns"].to_numpy(), inputs.exposed["end_ns"].to_numpy()
    between = length_before(start, end, moment) - length_before(start, end, begin)
    without = pl.Series(np.abs(arrival) == NEVER)
    unknown = windows["window_start_ns"].is_null() | windows["exposed_communication_ns"].is_null()
    return pl.Series(moment - begin - between).set(unknown | without, None)


FUNCTIONS: dict[str, MetricFunction] = {
    "work": _work,
    "time_to_all_reduce": partial(_ready_time, which="last"),
    "time_to_first_all_reduce": partial(_ready_time, which="first"),
}
"""Metric → the function that computes it."""
