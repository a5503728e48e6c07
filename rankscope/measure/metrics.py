"""Timelines → the metrics of one rank, a row per iteration and clock. See METHOD.md#metrics.

Most metrics come out of one sweep over a timeline: lengths of phases (SEGMENTS), and the columns of
`DeviceTimeline.usage`, which bear the names of metrics. The others have a function each in
`FUNCTIONS`: that is where a new metric goes. Every metric of `measured_metrics()` must come from
one of these, on the host clock only those that need no device work.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.device import DeviceTimeline
from rankscope.measure.device_sweep import EXPOSED, LABELS, OTHER, Codes
from rankscope.measure.host import merged, window_edges
from rankscope.model.arrays import filled, is_null, known_if, rows_of, taken
from rankscope.model.frames import framed, with_series
from rankscope.model.intervals import Times, length_before
from rankscope.model.kinds import COMPUTING_PHASES, NAMED_PHASES, PARTS, Clock
from rankscope.model.metrics import Need, column_of, measured_metrics
from rankscope.model.schema import MEASURES, conform, constant
from rankscope.util.numbers import NEVER

UNPHASED_LIMIT = 0.05
"""Share of an iteration's computing time that may lack a phase before its phases are unknown."""


class Numbers(Struct, frozen=True):
    """One rank on one clock."""

    measures: pl.DataFrame  # MEASURES; `rank` is null
    exposed: pl.DataFrame  # EXPOSED without `rank`


class MetricInputs(Struct, frozen=True):
    """The input of the metrics of one rank and clock."""

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
    begin = iterations["window_start"]
    columns = {
        "iteration": iterations["iteration"],
        "window_start_ns": begin,
        "iteration_ns": iterations["window_end"] - begin,
        **_parts(segments, _host_labels(segments, waits_visible), iterations.height),
    }
    known = _known(phases, segments) | ({"exposed_communication"} if waits_visible else set())
    never = np.zeros(iterations.height, dtype=np.bool_)
    for column in map(column_of, {*NAMED_PHASES, "exposed_communication"} - known):
        columns[column] = known_if(columns[column], never)
    return _numbers(Clock.HOST, iterations, columns, segments, collectives)


def gpu_numbers(
    iterations: pl.DataFrame,
    device: DeviceTimeline,
    phases: frozenset[str],
    collectives: pl.DataFrame,
    waits: tuple[Times, Times] | None,
) -> Numbers:
    """Numbers on the gpu clock; unknown in windows without any launch.

    `waits`: disjoint sorted intervals in which the host waits; None: unknown.
    """
    labels = _device_labels(device)
    labels[np.isin(labels, [PARTS.index(phase) for phase in {*COMPUTING_PHASES} - phases])] = OTHER
    begin = device.windows["window_start"]
    launched = ~is_null(begin)
    enough = launched.copy()
    enough[launched] = (device.unphased["share"] <= UNPHASED_LIMIT).to_numpy()
    known = _known(phases, device.segments)
    never = np.zeros_like(launched)
    knowable = {phase: enough if phase in known else never for phase in NAMED_PHASES}
    if device.opaque:
        knowable["exposed_communication"] = never
    columns = {
        "iteration": iterations["iteration"],
        "window_start_ns": begin,
        "iteration_ns": device.windows["window_end"] - begin,
    }
    parts = _parts(device.segments, labels, iterations.height)
    for name in PARTS:
        column = column_of(name)
        columns[column] = known_if(parts[column], knowable.get(name, launched))
    edges = window_edges(iterations)
    waited = np.zeros_like(edges) if waits is None else length_before(*waits, edges)
    host = np.diff(edges) - np.diff(waited)
    columns["host_ns"] = known_if(pl.Series(host), launched & (waits is not None))
    for name in device.usage.columns:
        if name != "window":
            used = np.zeros(iterations.height, dtype=np.int64)
            used[launched] = device.usage[name].to_numpy()
            columns[column_of(name)] = known_if(pl.Series(used), launched)
    return _numbers(Clock.GPU, iterations, columns, device.segments, collectives)


def host_segments(segments: pl.DataFrame, waits_visible: bool) -> pl.DataFrame:
    """The host's SEGMENTS, with hidden time relabelled `other`.

    Where waits hide inside phases, the visible rest of them is `other`. So is the visible part of
    the first iteration's loading.
    """
    return _relabelled(segments, _host_labels(segments, waits_visible))


def device_segments(device: DeviceTimeline) -> pl.DataFrame:
    """The device's SEGMENTS, with unknown phases relabelled `other`.

    Visible waits are `other` too where more waits hide in CUDA graphs traced as a whole.
    """
    return _relabelled(device.segments, _device_labels(device))


def without(numbers: Numbers, windows: pl.Series) -> Numbers:
    """The numbers, unknown in some windows.

    Args:
        numbers: on one clock.
        windows: Boolean for each window.
    """
    if not windows.any():
        return numbers
    kept, known = ("iteration", "clock"), ~windows.to_numpy()
    blank = (each if each.name in kept else known_if(each, known) for each in numbers.measures)
    return Numbers(framed(blank), numbers.exposed)


def _host_labels(segments: pl.DataFrame, waits_visible: bool) -> Codes:
    """The label of each segment, by its place in PARTS, as `host_segments` has them."""
    labels = _labels(segments)
    if not waits_visible:
        labels[labels == EXPOSED] = OTHER
    return labels


def _device_labels(device: DeviceTimeline) -> Codes:
    """The label of each segment, by its place in PARTS, as `device_segments` has them."""
    labels = _labels(device.segments)
    blind = (device.unphased["share"] > UNPHASED_LIMIT).to_numpy()
    communicates = labels == EXPOSED
    window = device.segments["window"].to_numpy()
    labels[np.isin(window, device.unphased["window"].to_numpy()[blind]) & ~communicates] = OTHER
    if device.opaque:
        labels[communicates] = OTHER
    return labels


def _labels(segments: pl.DataFrame) -> Codes:
    """Labels by their places in PARTS; loading of the first iteration, which began before the
    capture, is `other`."""
    labels = segments["label"].to_physical().to_numpy().copy()
    labels[(segments["window"].to_numpy() == 0) & (labels == PARTS.index("load"))] = OTHER
    return labels


def _relabelled(segments: pl.DataFrame, labels: Codes) -> pl.DataFrame:
    return merged(with_series(segments, taken(LABELS, labels).alias("label")))


def _parts(segments: pl.DataFrame, labels: Codes, windows: int) -> dict[str, pl.Series]:
    """Length of each part per window: `<part>_ns` → a value per window."""
    lengths = np.zeros((len(PARTS), windows), dtype=np.int64)
    length = segments["end"] - segments["start"]
    np.add.at(lengths, (labels, segments["window"].to_numpy()), length.to_numpy())
    return {column_of(name): pl.Series(row) for name, row in zip(PARTS, lengths, strict=True)}


def _known(phases: frozenset[str], segments: pl.DataFrame) -> frozenset[str]:
    """The phases whose time is known: those of ranges, and loading where there is any."""
    return phases | ({"load"} if (segments["label"] == "load").any() else set())


def _numbers(
    clock: Clock,
    iterations: pl.DataFrame,
    columns: dict[str, pl.Series],
    segments: pl.DataFrame,
    collectives: pl.DataFrame,
) -> Numbers:
    """Numbers of the metrics of the sweep; the first iteration's loading is unknown."""
    columns["load_ns"] = known_if(columns["load_ns"], np.arange(iterations.height) > 0)
    exposed = _exposed(segments, iterations, clock)
    inputs = MetricInputs(clock, framed(columns), exposed, collectives)
    return Numbers(_finish(inputs), exposed)


def _exposed(segments: pl.DataFrame, iterations: pl.DataFrame, clock: Clock) -> pl.DataFrame:
    """EXPOSED without `rank`, in time order."""
    waits = rows_of(segments, (segments["label"] == "exposed_communication").to_numpy())
    return framed(
        {
            "iteration": taken(iterations["iteration"], waits["window"].to_numpy()),
            "clock": constant("clock", clock.value, waits.height),
            "start_ns": waits["start"],
            "end_ns": waits["end"],
        }
    )


def _finish(inputs: MetricInputs) -> pl.DataFrame:
    """MEASURES, `rank` null: the metrics of the sweep and those of `FUNCTIONS`.

    Raises:
        ValueError: nothing computes a metric of the registry.
    """
    columns = {each.name: each for each in inputs.windows}
    columns["clock"] = constant("clock", inputs.clock.value, inputs.windows.height)
    for name, function in FUNCTIONS.items():
        columns[column_of(name)] = function(inputs)
    missing = [metric for metric in measured_metrics() if metric.column not in columns]
    for metric in missing:
        if inputs.clock is Clock.GPU or metric.needs is not Need.DEVICE_WORK:
            raise ValueError(
                f"metric {metric.name}: nothing computes its column {metric.column}; see "
                "the recipe of a metric in .github/CONTRIBUTING.md"
            )
    unknown = ("rank", *(metric.column for metric in missing))
    return conform(framed(columns), MEASURES, optional=unknown, drop_others=True)


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
    begin = filled(windows["window_start_ns"], 0)
    arrival = np.full(len(begin), NEVER if which == "first" else -NEVER)
    (np.minimum if which == "first" else np.maximum).at(arrival, window, arrivals)
    moment = np.maximum(arrival, begin)
    start, end = inputs.exposed["start_ns"].to_numpy(), inputs.exposed["end_ns"].to_numpy()
    between = length_before(start, end, moment) - length_before(start, end, begin)
    unknown = is_null(windows["window_start_ns"]) | is_null(windows["exposed_communication_ns"])
    return known_if(pl.Series(moment - begin - between), (np.abs(arrival) < NEVER) & ~unknown)


FUNCTIONS: dict[str, MetricFunction] = {
    "work": lambda of: of.windows["iteration_ns"] - of.windows["exposed_communication_ns"],
    "time_to_all_reduce": partial(_ready_time, which="last"),
    "time_to_first_all_reduce": partial(_ready_time, which="first"),
}
"""Metric → the function that computes it."""
