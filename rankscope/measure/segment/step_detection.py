"""Steps without ranges around them: the repeating sequence, and the border between steps."""

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.segment.iterations import AUTO, IterationRanges
from rankscope.measure.segment.periodicity import find_period
from rankscope.measure.segment.step_borders import LEAST_STEPS, StepEvents, last_before, step_begins
from rankscope.measure.segment.step_confirmation import are_steps
from rankscope.measure.segment.training_thread import training_thread
from rankscope.model.intervals import Times
from rankscope.model.schema import ITERATIONS, STREAM, conform, ordered
from rankscope.util.numbers import NEVER

SURE = 0.8
"""Steps are accepted if at least this share of a step's events recurs in the next step."""

RANGE_COLUMNS = ("thread", "name", "means")
"""Columns of the signatures of ranges from which steps are detected."""

WORK_COLUMNS = (
    *("process", "start", "end", "launch", "launch_thread", "name", "kind", *STREAM),
    *("communicator", "bytes", "grid", "operation"),
)
"""Columns of device work from which steps are detected."""

LONG_PAUSE = 3
"""Pauses form two groups if the long ones last this many times as long as the short ones."""


class DetectedSteps(Struct, frozen=True):
    """The detected steps, and the confidence in them."""

    iterations: IterationRanges | None  # None where nothing repeats
    confidence: float  # share of a step that recurs in the next
    source: str  # collectives | kernels | ranges
    confirmed: bool = False  # what repeats is a step, and not a part of one

    @property
    def sure(self) -> bool:
        """Whether the steps are used without `--iteration auto`."""
        return self.confirmed and self.confidence >= SURE


def find_steps(
    named: pl.DataFrame,
    device_work: pl.DataFrame,
    duration_ns: int | None = None,
    main_thread: int | None = None,
) -> DetectedSteps:
    """The steps of one process, from the repetition of its collectives, kernels or ranges.

    A step ends with its last event on the host. `BORDERS` lists the ways to find it, in order of
    preference; each gives the same border on every rank. The exact end inside the pause before
    the next event cannot be recovered.

    Args:
        named: start, end and RANGE_COLUMNS of the ranges of the process.
        device_work: WORK_COLUMNS of DEVICE_WORK of the process, in any order.
        duration_ns: end of the capture; a step that ends exactly there was cut off.
        main_thread: key of the process's first thread; None if it is unknown.
    """
    process = _process(named, device_work, main_thread)
    backward = named.filter(means="backward operator")["start"].to_numpy()
    best = DetectedSteps(None, 0.0, "ranges")
    for source, events in _sequences(process):
        kinds = events["kind"].fill_null("")
        distinct = kinds.unique().sort().cast(pl.String)
        numbered = kinds.cast(pl.Enum(distinct)).to_physical()
        names = numbered.to_numpy().astype(np.int64)
        period = find_period(names)
        if period is None or period.match <= best.confidence:
            continue
        if period.length == 1 and source == "kernels":  # no step has a single kernel
            continue
        hosts = events["host"].to_numpy()
        begins = step_begins(process, np.sort(hosts[period.anchors]))
        order = np.argsort(hosts, kind="stable")
        ends = _step_ends(process, begins, hosts[order], names[order], period.length)
        if len(ends) <= LEAST_STEPS:
            continue
        steps = DetectedSteps(
            _iterations(process.thread, ends, duration_ns),
            period.match,
            source,
            are_steps(process.ranges, ends, backward, process.work.filter("computing")),
        )
        if steps.confirmed or not best.confirmed:
            best = steps
        if best.sure:
            break
    return best


def _process(named: pl.DataFrame, device_work: pl.DataFrame, main_thread: int | None) -> StepEvents:
    work = device_work.select(
        *("start", "end", "name", "kind", *STREAM),
        *("launch_thread", "communicator", "bytes", "grid"),
        collective=pl.col("operation").is_not_null(),
        host=pl.coalesce("launch", "start"),
    )
    computing = ~pl.col("collective") & (pl.col("kind") != "copy")
    rows = work.lazy()  # reads only the columns that are needed
    streams = rows.filter(computing).group_by(STREAM).len().sort("len", descending=True).collect()
    main = pl.any_horizontal(
        pl.lit(False),
        *(
            pl.all_horizontal(pl.col(name) == value for name, value in stream.items())
            for stream in streams.select(STREAM).head(1).drop_nulls().iter_rows(named=True)
        ),
    )
    threads = rows.filter(computing, main).select("launch_thread").unique().collect().to_series()
    launched = pl.col("launch_thread").is_in(threads.implode(), nulls_equal=True)
    kind = pl.format(
        "{} {} {}",
        pl.col("name").cast(pl.String),
        pl.coalesce("communicator", pl.format("{} {} {}", *STREAM)),
        pl.coalesce("bytes", "grid").fill_null(0),
    )
    calls = work.filter("collective").select("start", "end", "host", kind=kind)
    work = work.filter(launched | pl.col("collective")).select(
        "start", "end", "host", "name", "collective", main=main, computing=computing
    )
    thread = training_thread(named, threads.drop_nulls(), main_thread)
    lasting = (named["thread"] == thread) & (named["end"] > named["start"])
    ranges = named.select("start", "end", "name", "means").filter(lasting)
    return StepEvents(thread, ordered(ranges, "start"), _by_host(work), _by_host(calls))


def _by_host(events: pl.DataFrame) -> pl.DataFrame:
    """Events in the order of `host`, those of one launch in that of their starts."""
    return events[np.lexsort((events["start"].to_numpy(), events["host"].to_numpy()))]


def _sequences(process: StepEvents) -> Iterator[tuple[str, pl.DataFrame]]:
    """Candidate sequences, the most informative first: frames with `kind` and `host`, in order."""
    by_source: dict[str, pl.DataFrame] = {}
    for source, sequence in SEQUENCES.items():
        by_source[source] = events = sequence(process)
        if events["kind"].n_unique() > 1:
            yield source, events
    for source, events in by_source.items():
        if events.height:
            yield source, _with_pauses(events)


def _kernels(process: StepEvents) -> pl.DataFrame:
    kernels = process.work.filter("main", ~pl.col("collective"))
    return ordered(kernels.select("start", "end", "host", kind="name"), "start")


def _ranges(process: StepEvents) -> pl.DataFrame:
    kind = pl.col("name").cast(pl.String).str.replace_all(r"\d+", "")
    return process.ranges.select("start", "end", host="start", kind=kind)


SEQUENCES: dict[str, Callable[[StepEvents], pl.DataFrame]] = {
    "collectives": lambda process: process.collectives,
    "kernels": _kernels,
    "ranges": _ranges,
}
"""The sources in which steps are looked for, the most informative first."""


def _with_pauses(events: pl.DataFrame) -> pl.DataFrame:
    """Events whose kind says whether a long pause precedes them, where pauses form two groups."""
    if events.height < 2 * LEAST_STEPS:
        return events
    pauses = (events["start"] - events["end"].shift(1)).clip(lower_bound=1)
    pause = pauses.fill_null(int(pauses[1:].to_numpy().max()))  # first: unknown
    ordered = np.sort(np.log(pause.to_numpy()))
    short = np.arange(1, len(ordered))
    total, below = ordered.sum(), np.cumsum(ordered)[:-1]
    distance = (total - below) / (len(ordered) - short) - below / short  # of group means
    split = int(np.argmax(short * (len(ordered) - short) * distance**2))  # Otsu's threshold
    if distance[split] < np.log(LONG_PAUSE) or len(ordered) - split - 1 < LEAST_STEPS:
        return events
    long = (pause > np.exp(ordered[split]) + 0.5).alias("long")
    return events.with_columns(kind=pl.format("{} {}", pl.col("kind").cast(pl.String), long))


def _step_ends(
    process: StepEvents, begins: Times, hosts: Times, names: Times, length: int
) -> Times:
    """Host times at which steps end, including the outer edges of the first and last step.

    Args:
        begins: host times at which steps begin; the first step may be missing.
        hosts: host times of the repeating events, sorted.
        names: their kinds.
        length: events in a step.
    """
    ends = last_before(process, begins)
    first, last = np.searchsorted(hosts, begins[[0, -1]])

    def alike(at: int) -> bool:
        """Whether a whole step like the others begins at an event."""
        if at < 0 or at + length > len(names):
            return False
        kinds = int(names.max()) + 1
        step, usual = (np.bincount(names[i : i + length], minlength=kinds) for i in (at, first))
        return bool(np.minimum(step, usual).sum() >= SURE * length)

    if alike(first - length):  # a whole step precedes the first border
        ends = np.append(min(hosts[first - length], ends[0] - 1), ends)
    if alike(last):  # a whole step follows the last border
        waited = ends[-len(begins) :] > last_before(process, begins, waiting=False)
        after = np.append(hosts, NEVER)[[last + length]]
        final = last_before(process, after, waiting=bool(np.mean(waited) > 0.5))
        ends = np.append(ends, final)
    return np.unique(ends)


def _iterations(thread: int, ends: Times, duration_ns: int | None) -> IterationRanges:
    frame = pl.DataFrame({"start": ends[:-1], "end": ends[1:]}).with_columns(
        iteration=pl.int_range(pl.len()),
        number=pl.int_range(pl.len()),
        epoch=0,
        window_start="start",
        window_end="end",
        complete=pl.lit(True) if duration_ns is None else pl.col("end") != duration_ns,
    )
    return IterationRanges(conform(frame, ITERATIONS), thread, numbered=False, row=AUTO)
