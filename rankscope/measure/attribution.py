"""Device work joined with the phase and iteration of its launch. See METHOD.md#gpu-clock."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct, field

from rankscope.measure.calls_around import AROUND, with_calls_around
from rankscope.measure.collectives import CALLS
from rankscope.model.arrays import (
    codes,
    filled,
    holds,
    is_null,
    known_if,
    places,
    rows_of,
    summed,
    taken,
    with_latest,
)
from rankscope.model.device_work import DeviceWork, InMemoryWork
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.intervals import Flags, Times
from rankscope.model.kinds import COMPUTING_PHASES, PARTS
from rankscope.model.schema import DEVICE_WORK, SEGMENTS, STREAM
from rankscope.sources.conventions.api_calls import HELD_NS
from rankscope.util.numbers import NEVER

OF_STREAM = {name: DEVICE_WORK[name] for name in STREAM}

OWNER = [*STREAM, "launch_thread", "kind"]
ALIKE = [*OWNER, "talks", "window", "phase"]
"""Columns by which the survey groups operations; few groups differ in OWNER."""

OTHER, BACKWARD = (pl.Series([name], dtype=SEGMENTS["label"]) for name in ("other", "backward"))

COMPUTING = [PARTS.index(phase) for phase in COMPUTING_PHASES]


class HostSide(Struct, frozen=True):
    """The host timeline of one process."""

    process: int
    timeline: pl.DataFrame  # SEGMENTS
    thread: int  # of the iteration ranges
    launchless: bool = False  # no work has a launch record: it is placed by its starts
    calls: pl.DataFrame = field(default_factory=AROUND.to_frame)  # ranges that launch communication
    autograd: tuple[int, ...] = ()  # threads whose work outside of all phases is backward


class _Places:
    """Looks up moments in the host timeline of one process."""

    def __init__(self, host: HostSide) -> None:
        self._process = host.process
        self._calls = host.calls
        self._launchless = host.launchless
        self._autograd = host.autograd
        self._begins = host.timeline["start"].to_numpy()
        self._ends = np.append(host.timeline["end"].to_numpy(), -NEVER)
        label = host.timeline["label"]
        blocking = (label == "exposed_communication").to_numpy()
        # A blocking call has no work of its own; a graph launched under no phase spans them.
        phase = label.zip_with(pl.Series(~blocking), OTHER)
        spans = blocking | np.isin(label.to_physical().to_numpy(), COMPUTING)
        # null where no phase is open
        self._window, self._phase, self._spanned = (
            pl.concat([each, pl.Series([None], dtype=each.dtype)])
            for each in (host.timeline["window"], phase, known_if(phase, spans))
        )

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """DEVICE_WORK of the process with `phase`, `window`, and `operation` also from ranges."""
        own = (part["process"] == self._process).to_numpy()
        work = with_calls_around(rows_of(part, own), self._calls)
        rows = self._rows(work["start"] if self._launchless else work["launch"])
        if self._launchless:
            phase = OTHER.new_from_index(0, work.height)
        else:
            phase = taken(self._phase, rows)
            if self._autograd:
                by_autograd = np.isin(filled(work["launch_thread"], 0), self._autograd)
                by_autograd &= holds(phase == "other")
                phase = BACKWARD.zip_with(pl.Series(by_autograd), phase)
            if work["graph"].any():
                phase = phase.zip_with(~work["graph"], taken(self._spanned, rows))
        return with_series(work, phase.alias("phase"), taken(self._window, rows))

    def _rows(self, launches: pl.Series) -> Times:
        """Row of the timeline at each launch; the last row where there is no launch record."""
        launch = filled(launches, NEVER)
        # Launches are nearly sorted, so the search covers few rows.
        edges = launch.min(initial=NEVER), launch.max(initial=-NEVER)
        low, high = np.searchsorted(self._begins, edges, side="right")
        row: Times = np.searchsorted(self._begins[low:high], launch, side="right")
        row += low - 1
        row[launch >= self._ends[row]] = self._begins.size
        return row


class Attributed(Struct, frozen=True):
    """The device work of one process with the phase and iteration it was launched in."""

    events: DeviceWork  # of the report
    host: HostSide
    survey: pl.DataFrame  # ALIKE, `training` and the last `end`: a row per group of operations
    calls: pl.DataFrame  # CALLS: the collectives among the operations
    by_name: pl.DataFrame  # kind, name, total_ns: of the other training work in the windows
    sync_calls: pl.DataFrame  # SYNC_CALLS of the training threads
    is_training: Callable[[pl.DataFrame], Flags]
    placed: Callable[[pl.DataFrame], pl.DataFrame]
    held: list[pl.DataFrame]  # all chunks with `phase` and `window`, if the work is in memory
    earlier_end: int | None = None  # of training work that was launched before the iterations

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """The rows of this process in a chunk of `events`, as `attribute` describes them."""
        return self._whole(self.placed(part))

    def parts(self) -> Iterator[pl.DataFrame]:
        """Yield chunks in order of their starts."""
        return map(self._whole, self.held) if self.held else map(self.of, self.events.parts())

    def _whole(self, placed: pl.DataFrame) -> pl.DataFrame:
        return with_series(placed, pl.Series("training", self.is_training(placed)))


def parts_of(work: DeviceWork, each: list[Attributed]) -> Iterator[Sequence[pl.DataFrame]]:
    """Chunks of the work of each process; where it was not held in memory, it is read once more."""
    if isinstance(work, InMemoryWork):
        return zip(*(of.parts() for of in each), strict=True)
    return ([of.of(part) for of in each] for part in work.parts())


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
    surveys = [_Survey(host, in_memory=isinstance(work, InMemoryWork)) for host in hosts]
    for part in work.first_look():
        for survey in surveys:
            survey.add(part)
    return [survey.result(work) for survey in surveys]


class _Survey:
    """Collects the survey of one process: its groups of operations."""

    def __init__(self, host: HostSide, in_memory: bool) -> None:
        self._host = host
        self._placed = _Places(host).of
        self._in_memory, self._held = in_memory, list[pl.DataFrame]()
        self._alike: list[pl.DataFrame] = []
        self._calls: list[pl.DataFrame] = []
        self._by_name: list[pl.DataFrame] = []
        self._earlier = _EarlierWork(host.timeline["start"].min())

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of the report's work."""
        work = self._placed(part)
        if self._in_memory:
            self._held.append(work)
        talks = ~is_null(work["operation"])
        place, first = places(codes(work[OWNER]))
        owner, owners = pl.Series("owner", place), taken(work[OWNER], first)
        groups = with_series(work[["window", "phase"]], owner, pl.Series("talks", talks))
        start, end = (work[name].to_numpy() for name in ("start", "end"))
        self._alike.append(_with_owners(with_latest(groups, end), owners))
        self._calls.append(rows_of(work, talks).select_seq(CALLS))
        computing = ~talks & ~is_null(work["window"])
        names = rows_of(framed([work["name"], owner]), computing)
        names, totals, _ = summed(names, (end - start)[None, computing])
        total = pl.Series("total_ns", totals[0])
        self._by_name.append(with_series(_with_owners(names, owners), total))
        if not self._host.launchless:
            self._earlier.add(work, talks, place, owners)

    def result(self, events: DeviceWork) -> Attributed:
        """The result, once all chunks have been added."""
        host = self._host
        alike = stacked(self._alike)
        survey = with_latest(alike[ALIKE], alike["end"].to_numpy())
        thread, unrecorded = filled(survey["launch_thread"], 0), is_null(survey["launch_thread"])
        by_host = ~unrecorded & (thread == host.thread)
        own_stream = _any(by_host, codes(survey[[*STREAM]])) | host.launchless
        training = np.where(unrecorded, own_stream, _any(own_stream & ~unrecorded, thread))
        threads = np.unique(thread[training & ~unrecorded])
        streams = {*rows_of(survey[[*STREAM]], training & unrecorded).iter_rows()}
        calls = events.sync_calls
        of_training = np.isin(calls["thread"].to_numpy(), [host.thread, *threads])
        is_training, names = partial(_is_training, threads, streams), stacked(self._by_name)
        names = rows_of(names, is_training(names))
        by_name, total, _ = summed(names[["kind", "name"]], names["total_ns"].to_numpy()[None])
        heads, talk = self._earlier.heads(), stacked(self._calls)
        if not heads.is_empty():
            talk = talk.join(heads.filter("talks"), on=["start", "end"], how="anti")
        return Attributed(
            events,
            host,
            with_series(survey, pl.Series("training", training)),
            talk,
            with_series(by_name, pl.Series("total_ns", total[0])),
            rows_of(calls, (calls["process"] == host.process).to_numpy() & of_training),
            is_training,
            self._placed,
            self._held,
            self._earlier.end(heads, rows_of(survey, own_stream)[[*STREAM]]),
        )


def _with_owners(groups: pl.DataFrame, owners: pl.DataFrame) -> pl.DataFrame:
    """Groups with the columns of the owner at each place in `owner`."""
    return with_series(groups, *taken(owners, groups["owner"].to_numpy()))


def _any(flags: Flags, group: Times) -> Flags:
    """Whether the flag of any row with the same number is set."""
    return np.isin(group, group[flags])


class _EarlierWork:
    """Finds the work that was launched before the first iteration.

    A stream runs its work in the order of the launches. Work without a launch record that runs
    before any work with one was therefore launched before the capture. Profilers leave out work
    that was launched before they began: if the first operation starts long after its launch,
    and others were launched meanwhile, such work ran until then.
    """

    def __init__(self, begin: object) -> None:
        """Start empty; `begin` is the start of the first iteration (ns) or None."""
        self._begin = begin if isinstance(begin, int) else -NEVER
        self._launched = [pl.DataFrame(schema={**OF_STREAM, "first": pl.Int64})]
        work = pl.DataFrame(schema={**OF_STREAM, "start": pl.Int64, "end": pl.Int64, "talks": bool})
        self._outside, self._unlaunched = [work], [work]
        self._queued: int | None = None  # start of the first operation, if it was in a queue
        self._is_first = True

    def add(self, work: pl.DataFrame, talks: Flags, owner: Times, owners: pl.DataFrame) -> None:
        """Add a chunk of work.

        Args:
            work: operations.
            talks: which of them communicate.
            owner: the place of each among the owners.
            owners: OWNER.
        """
        unlaunched = is_null(work["launch"])
        if self._is_first and not work.is_empty():
            self._is_first = False
            start = work["start"][0]
            launched = filled(work["launch"], NEVER)
            waiting = launched <= start - HELD_NS
            # a single launch may take as long itself, as one that loads its kernel
            several = len(np.unique(launched[waiting])) > 1
            queued = waiting[0] and (several or work["kind"][0] == "copy")
            self._queued = start if queued else None
        first = np.full(owners.height, NEVER)
        np.minimum.at(first, owner, np.where(unlaunched, NEVER, work["start"].to_numpy()))
        firsts = with_series(owners[[*STREAM]], pl.Series("first", first))
        self._launched.append(rows_of(firsts, first < NEVER))
        before = ~talks & (filled(work["launch"], NEVER) < self._begin)
        of_work = with_series(work[[*STREAM, "start", "end"]], pl.Series("talks", talks))
        self._outside.append(rows_of(of_work, before))
        self._unlaunched.append(rows_of(of_work, unlaunched))

    def heads(self) -> pl.DataFrame:
        """STREAM, start, end and talks of the work that was launched before the capture."""
        unlaunched = stacked(self._unlaunched)
        if unlaunched.is_empty():
            return unlaunched
        first = stacked(self._launched).group_by(STREAM).agg(pl.col("first").min())
        return (
            unlaunched.join(first, on=STREAM, nulls_equal=True)
            .filter(pl.col("start") < pl.col("first"))
            .filter(pl.len() > 1)  # a single one may have lost its launch record
            .drop("first")
        )

    def end(self, heads: pl.DataFrame, streams: pl.DataFrame) -> int | None:
        """The latest end of work on the given streams that was launched before the iterations.

        Args:
            heads: what `heads` returned; its collectives do not count.
            streams: STREAM.
        """
        earlier = stacked([*self._outside, rows_of(heads, ~heads["talks"].to_numpy())])
        if not earlier.is_empty():
            earlier = earlier.join(streams, on=STREAM, how="semi", nulls_equal=True)
        latest = earlier["end"].max()
        ends = [each for each in (latest, self._queued) if isinstance(each, int)]
        return max(ends, default=None)


def _is_training(threads: Times, streams: set[tuple[object, ...]], work: pl.DataFrame) -> Flags:
    """Whether the training threads launched an operation."""
    unrecorded = is_null(work["launch_thread"])
    training = ~unrecorded & np.isin(filled(work["launch_thread"], 0), threads)
    for stream in streams:
        same = [work[name].eq_missing(value) for name, value in zip(STREAM, stream, strict=True)]
        training |= unrecorded & np.logical_and.reduce([each.to_numpy() for each in same])
    return training
