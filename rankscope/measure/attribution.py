"""Device work joined with the phase and iteration of its launch. See METHOD.md#gpu-clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from rankscope.measure.calls_around import AROUND, with_calls_around
from rankscope.measure.collectives import CALLS
from rankscope.model.device_work import DeviceWork
from rankscope.model.intervals import Times
from rankscope.model.kinds import COMPUTING_PHASES
from rankscope.model.schema import SEGMENTS, STREAM
from rankscope.util.numbers import NEVER

ALIKE = [*STREAM, "launch_thread", "kind", "talks", "window", "phase"]
"""Columns by which the survey groups operations."""

OTHER = pl.lit("other", SEGMENTS["label"])

TALKS = pl.col("operation").is_not_null()


@dataclass(frozen=True, slots=True)
class HostSide:
    """The host timeline of one process."""

    process: int
    timeline: pl.DataFrame  # SEGMENTS
    thread: int  # of the iteration ranges
    launchless: bool = False  # no work has a launch record: it is placed by its starts
    calls: pl.DataFrame = field(default_factory=AROUND.to_frame)  # ranges that launch communication


class _Places:
    """The host timeline of one process, to look up moments in."""

    def __init__(self, host: HostSide) -> None:
        self._process = host.process
        self._calls = host.calls
        self._launchless = host.launchless
        self._begins = host.timeline["start"].to_numpy()
        self._ends = np.append(host.timeline["end"].to_numpy(), -NEVER)
        label = pl.col("label")
        blocking = label == "exposed_communication"
        known = host.timeline.select(
            "window",
            # A blocking call has no work of its own; a graph launched under no phase spans them.
            phase=pl.when(~blocking).then(label).otherwise(OTHER),
            spanned=pl.when(label.is_in(COMPUTING_PHASES)).then(label).when(blocking).then(OTHER),
        )
        known = pl.concat([known, known.clear(1)])  # null where no phase is open
        self._window, self._phase, self._spanned = known

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """DEVICE_WORK of the process with `phase` and `window`; ranges tell more operations."""
        own = part["process"] == self._process
        work = with_calls_around(part if own.all() else part.filter(own), self._calls)
        if self._launchless:
            rows = pl.Series(self._rows(work["start"]))
            other = pl.repeat("other", work.height, dtype=SEGMENTS["label"], eager=True)
            return work.with_columns(phase=other, window=self._window.gather(rows))
        rows = pl.Series(self._rows(work["launch"]))
        phase, window = self._phase.gather(rows), self._window.gather(rows)
        if work["graph"].any():
            phase = phase.zip_with(~work["graph"], self._spanned.gather(rows))
        return work.with_columns(phase=phase, window=window)

    def _rows(self, launches: pl.Series) -> Times:
        """Row of the timeline at each launch; the last row where there is no launch record."""
        launch = launches.fill_null(NEVER).to_numpy()
        # Launches are nearly sorted, so the search covers few rows.
        edges = launch.min(initial=NEVER), launch.max(initial=-NEVER)
        low, high = np.searchsorted(self._begins, edges, side="right")
        row: Times = np.searchsorted(self._begins[low:high], launch, side="right")
        row += low - 1
        row[launch >= self._ends[row]] = self._begins.size
        return row


@dataclass(frozen=True, slots=True)
class Attributed:
    """The device work of one process with the phase and iteration it was launched in."""

    events: DeviceWork  # of the report
    host: HostSide
    survey: pl.DataFrame  # ALIKE, `training` and the last `end`: a row per group of operations
    calls: pl.DataFrame  # CALLS: the collectives among the operations
    sync_calls: pl.DataFrame  # SYNC_CALLS of the training threads
    training: pl.Expr
    placed: Callable[[pl.DataFrame], pl.DataFrame]
    earlier_end: int | None = None  # of training work that was launched before the iterations

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """The rows of this process in a chunk of `events`, as `attribute` describes them."""
        return self.placed(part).with_columns(training=self.training)

    def parts(self) -> Iterator[pl.DataFrame]:
        """Yield chunks in order of their starts."""
        return map(self.of, self.events.parts())


def attribute(work: DeviceWork, hosts: Iterable[HostSide]) -> list[Attributed]:
    """The operations of each process with the phase and window they were launched in.

    Their rows are DEVICE_WORK in order of their starts, with `operation` also from the ranges that
    launched them, `phase` (an Enum of PARTS) and `window` of the launch (null outside all windows),
    and `training`: launched by the thread of the iterations, or by another onto a stream that it
    uses (autograd's); without a launch record, run on such a stream. Where no work has a launch
    record, all of it counts, is `other`, and belongs to the window of its start.

    Args:
        work: device work of the report; read once.
        hosts: the host timeline of each process.
    """
    looks = [_Look(host) for host in hosts]
    for part in work.first_look():
        for look in looks:
            look.at(part)
    return [look.result(work) for look in looks]


class _Look:
    """The survey of one process: what groups of operations it has."""

    def __init__(self, host: HostSide) -> None:
        self._host = host
        self._placed = _Places(host).of
        self._alike: list[pl.DataFrame] = []
        self._calls: list[pl.DataFrame] = []
        self._earlier = _EarlierWork(host.timeline["start"].min())

    def at(self, part: pl.DataFrame) -> None:
        """Add a chunk of the report's work."""
        work = self._placed(part).with_columns(talks=TALKS)
        self._alike.append(_counted_together(_runs(work)))
        self._calls.append(work.filter("talks").select(CALLS))
        if not self._host.launchless:
            self._earlier.add(work)

    def result(self, events: DeviceWork) -> Attributed:
        """The result, once all chunks have been added."""
        by_host = pl.col("launch_thread") == self._host.thread
        own = by_host.any().over(STREAM) | self._host.launchless
        survey = _counted_together(pl.concat(self._alike)).with_columns(own_stream=own)
        by_thread = pl.col("own_stream").any().over("launch_thread")
        earlier_end = self._earlier.end(survey.filter("own_stream").select(STREAM).unique())
        survey = survey.with_columns(
            training=pl.when(pl.col("launch_thread").is_null())
            .then("own_stream")
            .otherwise(by_thread)
        ).drop("own_stream")
        threads = survey.filter("training")["launch_thread"].drop_nulls().unique()
        sync_calls = events.sync_calls.filter(
            pl.col("process") == self._host.process,
            (pl.col("thread") == self._host.thread) | pl.col("thread").is_in(threads.implode()),
        )
        calls, training = pl.concat(self._calls), _training(survey)
        return Attributed(
            events, self._host, survey, calls, sync_calls, training, self._placed, earlier_end
        )


class _EarlierWork:
    """Finds the work that was launched before the first iteration.

    A stream runs its work in the order of the launches. So what it runs without a launch record,
    before anything with one and before the first recorded launch at all, was launched before the
    capture.
    """

    def __init__(self, begin: object) -> None:
        """None yet; `begin` is when the first iteration begins (ns), if there is one."""
        self._begin = begin if isinstance(begin, int) else -NEVER
        self._launched: list[pl.DataFrame] = []
        self._outside: list[pl.DataFrame] = []
        self._unlaunched: list[pl.DataFrame] = []

    def add(self, work: pl.DataFrame) -> None:
        """Add a chunk of work."""
        first = pl.col("start", "launch").min()
        self._launched.append(work.drop_nulls("launch").group_by(STREAM).agg(first))
        before = pl.col("launch") < self._begin
        for rows, of in ((self._outside, before), (self._unlaunched, pl.col("launch").is_null())):
            found = work.filter(of, ~pl.col("talks"))
            if not found.is_empty():
                rows.append(found.select(*STREAM, "start", "end"))

    def end(self, streams: pl.DataFrame) -> int | None:
        """The end of that work on some streams; None: there is none."""
        found = [*self._outside, *self._heads()]
        if not found:
            return None
        own = pl.concat(found).join(streams, on=STREAM, how="semi", nulls_equal=True)
        latest = own["end"].max()
        return latest if isinstance(latest, int) else None

    def _heads(self) -> Iterator[pl.DataFrame]:
        """The work that was launched before the capture, on any stream."""
        if not self._unlaunched or not self._launched:
            return
        first = pl.concat(self._launched).group_by(STREAM).agg(pl.col("start", "launch").min())
        begin = first["launch"].min()
        if begin is None:
            return
        yield (
            pl.concat(self._unlaunched)
            .join(first.drop("launch"), on=STREAM, suffix="_first", nulls_equal=True)
            .filter(pl.col("start") < pl.col("start_first"))
            .filter(  # a single one may as well have lost its launch record
                pl.col("start").min().over(STREAM) < begin,
                pl.len().over(STREAM) > 1,
            )
            .select(*STREAM, "start", "end")
        )


def _counted_together(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by(ALIKE).agg(pl.col("end").max())


def _runs(work: pl.DataFrame) -> pl.DataFrame:
    """ALIKE and `end`; consecutive equal operations become one row."""
    alike = pl.col(ALIKE)
    fresh = work.select(pl.any_horizontal(alike.ne_missing(alike.shift()))).to_series()
    first = fresh.arg_true()
    if first.is_empty():
        return work.select(*ALIKE, "end")
    last = np.maximum.reduceat(work["end"].to_numpy(), first.to_numpy())
    return work.select(pl.col(ALIKE).gather(first), end=pl.Series(last))


def _training(survey: pl.DataFrame) -> pl.Expr:
    """Whether the training threads launched an operation."""
    own = survey.filter("training")
    threads = own["launch_thread"].drop_nulls().unique()
    streams = own.filter(pl.col("launch_thread").is_null()).select(STREAM).unique()
    thread = pl.col("launch_thread")
    unrecorded = pl.any_horizontal(
        pl.lit(False),
        *(
            pl.all_horizontal(
                pl.col(name).eq_missing(value) for name, value in zip(STREAM, stream, strict=True)
            )
            for stream in streams.iter_rows()
        ),
    )
    return pl.when(thread.is_null()).then(unrecorded).otherwise(thread.is_in(threads.implode()))
