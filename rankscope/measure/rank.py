"""One rank from start to end: ranges and device work → rows."""

import shlex
from collections.abc import Iterator
from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.activities import ActivityTotals, activities
from rankscope.measure.attribution import Attributed, HostSide, attribute, parts_of
from rankscope.measure.calls_around import calls_around
from rankscope.measure.collectives import ReadyTimes, collectives
from rankscope.measure.device import DeviceAccount, DeviceTimeline
from rankscope.measure.host import host_timeline
from rankscope.measure.metrics import UNPHASED_LIMIT, gpu_numbers, host_numbers, without
from rankscope.measure.records import RecordCount, Records, record_problems
from rankscope.measure.segment import (
    UNNAMED,
    IterationRanges,
    LabelledRanges,
    PhaseRanges,
    find_marks,
)
from rankscope.model.arrays import holds, is_null, of_process, rows_of
from rankscope.model.frames import stacked, with_series
from rankscope.model.intervals import Times, union
from rankscope.model.kinds import NAMED_PHASES, PHASES, STEP_PHASES
from rankscope.model.reports import (
    Gpu,
    RankIdentity,
    RankRecord,
    RankRows,
    RunWarning,
    Trace,
)
from rankscope.model.schema import (
    ACTIVITIES,
    COLLECTIVES,
    COUNTERS,
    EXPOSED,
    FILE_ACCESSES,
    HOST_STATES,
    MEASURES,
    RANK_ITERATIONS,
    empty,
    of_rank,
)
from rankscope.sources.conventions import Vocabulary
from rankscope.util.sanitize import LONGEST_NAME, literal
from rankscope.util.wording import percent

MOSTLY = 0.5
"""A phase that no range names is missed if more than this share of the work is in `other`."""

GPU_CLOCK_SHARE = 0.9
"""The gpu clock needs device work in some phase in at least this share of the iterations."""


class RankDetail(Struct, frozen=True):
    """One rank in detail, on its report's axis: the input of its numbers."""

    iterations: IterationRanges
    marks: PhaseRanges
    work: Attributed
    device: DeviceTimeline
    sums: ActivityTotals  # of the device's computation and copies
    collectives: pl.DataFrame  # COLLECTIVES without `rank`
    records: Records

    @property
    def host(self) -> pl.DataFrame:
        """SEGMENTS of the training thread."""
        return self.work.host.timeline

    @property
    def communicates(self) -> bool:
        """Whether the device runs the communication."""
        return not self.work.calls.is_empty()

    @property
    def host_waits(self) -> tuple[Times, Times] | None:
        """When the training threads waited for the device or other ranks: disjoint, sorted.

        None where no calls are recorded.
        """
        if self.work.host.launchless:
            return None
        blocking = rows_of(self.host, (self.host["label"] == "exposed_communication").to_numpy())
        both = [self.work.sync_calls[["start", "end"]], blocking[["start", "end"]]]
        start, end = (np.concatenate([each[name] for each in both]) for name in ("start", "end"))
        return union(start, end)

    @property
    def has_device(self) -> bool:
        """Whether the process has work on a device."""
        return not self.work.survey.is_empty()

    @property
    def unseen(self) -> bool:
        """Whether collectives are launched but the report lacks their device work."""
        return self.marks.launches_collectives and not self.has_device

    @property
    def hidden(self) -> bool:
        """Whether the host merely launches collectives, so that waits hide in its phases."""
        return self.communicates or self.device.opaque or self.unseen


def detail_ranks(
    iterations: dict[int, IterationRanges], named: LabelledRanges, trace: Trace
) -> dict[int, RankDetail]:
    """The ranges and device work of each process, segmented and attributed.

    Args:
        iterations: process → its iterations.
        named: the ranges of the report.
        trace: the report.
    """
    marks = {
        process: find_marks(
            process,
            named,
            each,
            partial(_communicates, trace, process),
            partial(_communicating, trace, process),
        )
        for process, each in iterations.items()
    }
    iterations = {each: marks[each].without_unclosed(own) for each, own in iterations.items()}
    launched = _launched(trace, {*iterations})
    hosts = (
        HostSide(
            process,
            host_timeline(each.frame, marks[process], partial(_computing, trace, process)),
            each.thread,
            process not in launched,
            calls_around(of_process(named.meaningful, process)),
            marks[process].autograd,
        )
        for process, each in iterations.items()
    )
    builders = [
        _DetailBuilder(iterations[work.host.process], marks[work.host.process], work)
        for work in attribute(trace.device_work, hosts)
    ]
    for parts in parts_of(trace.device_work, [each.work for each in builders]):
        for each, own in zip(builders, parts, strict=True):
            each.add(own)
    return {each.work.host.process: each.detail() for each in builders}


def _communicates(trace: Trace, process: int) -> bool:
    """Whether the process has communication kernels."""
    kinds = trace.device_work.kinds
    return process in kinds["process"].filter(pl.Series(~is_null(kinds["operation"])))


def _launched(trace: Trace, processes: set[int]) -> set[int]:
    """The processes with a launch record of device work, or without device work."""
    known, present = set[int](), set[int]()
    for part in trace.device_work.first_look():
        present |= {*part["process"].unique()}
        known |= {*part["process"].filter(pl.Series(~is_null(part["launch"]))).unique()}
        if known >= processes:
            break
    return known | (processes - present)


def _computing(trace: Trace, process: int) -> Times:
    """Sorted launches of a process's kernels that compute."""
    return _launches(trace, process, pl.col("operation").is_null())


def _communicating(trace: Trace, process: int, thread: int) -> Times:
    """Sorted launches of a process's communication kernels by a thread, or by one unknown."""
    own = (pl.col("launch_thread") == thread).fill_null(True)
    return _launches(trace, process, pl.col("operation").is_not_null() & own)


def _launches(trace: Trace, process: int, which: pl.Expr) -> Times:
    """Sorted launches of a process's kernels; the start where no launch is known."""
    launches = trace.device_work.map(
        lambda part: part.filter(
            pl.col("process") == process, pl.col("kind").is_in(["kernel", "graph"]), which
        ).select(launch=pl.coalesce("launch", "start"))
    ).whole
    return launches["launch"].sort().to_numpy()


class _DetailBuilder:
    """Builds the detail of one rank, chunk by chunk."""

    def __init__(self, iterations: IterationRanges, marks: PhaseRanges, work: Attributed) -> None:
        self.work = work
        self._iterations, self._marks = iterations, marks
        self._ready, self._sums = ReadyTimes(work.calls), ActivityTotals(work)
        waits = (marks.frame["label"] == "exposed_communication").to_numpy()
        blocking = rows_of(marks.frame[["start", "end"]], waits)
        self._device = DeviceAccount(work, iterations.frame, blocking)
        self._records = RecordCount(iterations.frame, work.earlier_end)

    def add(self, own: pl.DataFrame) -> None:
        """Add a chunk of the work of the rank."""
        self._ready.add(own)
        self._sums.add(own)
        self._device.add(own)
        self._records.add(own)

    def detail(self) -> RankDetail:
        """The detail, once all chunks have been added."""
        records = self._records.of(self.work.events, self.work.host.process)
        calls = collectives(
            self.work.calls,
            self._ready,
            self._iterations.frame,
            self._marks.frame,
            records.lacking.to_numpy(),
        )
        device = self._device.timeline()
        return RankDetail(
            self._iterations, self._marks, self.work, device, self._sums, calls, records
        )


def measure_rank(
    identity: RankIdentity,
    detail: RankDetail,
    words: Vocabulary,
    gpu: Gpu | None = None,
) -> RankRows:
    """All rows of one rank that need no other rank, without HOST_STATES, FILE_ACCESSES, COUNTERS.

    Args:
        identity: the rank and its process.
        detail: its entry from `detail_ranks`.
        words: the vocabulary that named its ranges.
        gpu: the one that it computed on.
    """
    iterations = detail.iterations
    marks, device, calls = detail.marks, detail.device, detail.collectives
    host, survey = detail.host, detail.work.survey
    phases = frozenset[str]() if detail.work.host.launchless else marks.phases
    numbers = [host_numbers(iterations.frame, host, marks.phases, calls, not detail.hidden)]
    if detail.has_device:
        known = gpu_numbers(iterations.frame, device, phases, calls, detail.host_waits)
        numbers.append(without(known, detail.records.lacking))
    rank = identity.rank
    spent = activities(iterations.frame, host, detail.sums, device.idle, marks)
    if detail.records.lacking.any():
        lacks = detail.records.lacking.to_numpy()[spent["window"].to_numpy()]
        spent = rows_of(spent, (spent["kind"] == "range").to_numpy() | ~lacks)
    spent = of_rank(rank, spent, ACTIVITIES, drop_others=True)
    views = _views(iterations.frame, marks, survey)
    return RankRows(
        rank=RankRecord(
            identity=identity,
            numbered=iterations.numbered,
            convention=UNNAMED.get(iterations.row) or words.framework(iterations.row),
            has_device=detail.has_device,
            clock_gpu=_clock_gpu(survey, detail.records.lacking, phases, detail.communicates),
            work_known=not detail.hidden,
            gpu=gpu,
        ),
        iterations=of_rank(rank, views, RANK_ITERATIONS, drop_others=True),
        measures=of_rank(rank, stacked([each.measures for each in numbers]), MEASURES),
        collectives=of_rank(rank, calls, COLLECTIVES),
        exposed=of_rank(rank, stacked([each.exposed for each in numbers]), EXPOSED),
        activities=spent,
        host_states=empty(HOST_STATES),
        file_accesses=empty(FILE_ACCESSES),
        counters=empty(COUNTERS),
        problems=(
            *_problems(identity.rank, detail),
            *_unnamed(identity.rank, phases, numbers[-1].measures, spent),
        ),
    )


def _unnamed(
    rank: int, known: frozenset[str], measures: pl.DataFrame, spent: pl.DataFrame
) -> Iterator[RunWarning]:
    """The warning that most of the time has no phase because no range names one.

    Args:
        rank: its number.
        known: phases that ranges name.
        measures: its MEASURES on one clock.
        spent: its ACTIVITIES.
    """
    missing = [phase for phase in STEP_PHASES if phase not in known]
    if not known or not missing:
        return
    communicating = pl.col("exposed_communication_ns").fill_null(0)
    sums = measures.drop_nulls(["other_ns", "iteration_ns"]).select(
        pl.col("other_ns").sum(), whole=(pl.col("iteration_ns") - communicating).sum()
    )
    other, whole = sums.row(0)
    if not whole or other <= MOSTLY * whole:
        return
    names = " or ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
    longest = (
        spent.filter(pl.col("phase") == "other", pl.col("kind") == "range", pl.col("name") != "")
        .group_by("name")
        .agg(pl.col("total_ns").sum())
        .filter(pl.col("total_ns") > MOSTLY * other)
        .sort("total_ns", "name", descending=[True, False])
    )
    phase = "backward" if "backward" in missing else missing[0]
    advice = (
        f"name such ranges, or give their names: --phase {phase}='REGEX'"
        if longest.is_empty()
        else f"most of that is in ranges {longest['name'][0]}: if these are {phase}, say so: "
        "--phase " + shlex.quote(f"{phase}=^{literal(longest['name'][0][:LONGEST_NAME])}")
    )
    yield RunWarning(
        "phase-unnamed",
        f"no range is named like {names}: that time is in other, which holds most of the work; "
        f"{advice}",
        (rank,),
    )


def _clock_gpu(
    survey: pl.DataFrame, lacking: pl.Series, known: frozenset[str], communicates: bool
) -> bool:
    """Whether nearly every iteration whose records are there has device work in some phase.

    Where the report names no phase at all, everything is `other`, and that counts. So does a CUDA
    graph that spans phases if the device communicates, for the host's phases then hide waits.
    """
    phases = NAMED_PHASES if known else PHASES
    phase = survey["phase"]
    counted = holds(phase.is_in(phases)) | (is_null(phase) & communicates)
    counted &= survey["training"].to_numpy() & ~survey["talks"].to_numpy()
    recorded = np.flatnonzero(~lacking.to_numpy())
    windows = np.intersect1d(survey["window"].filter(pl.Series(counted)), recorded)
    return bool(len(windows) and len(windows) >= GPU_CLOCK_SHARE * len(recorded))


def _views(iterations: pl.DataFrame, marks: PhaseRanges, survey: pl.DataFrame) -> pl.DataFrame:
    """The iterations with the window to look at: first host range to last device end."""
    begins, ends = (iterations[name].to_numpy() for name in ("window_start", "window_end"))
    first, last = iterations["start"].to_numpy().copy(), iterations["end"].to_numpy().copy()
    start = marks.frame["start"].to_numpy()
    window = np.searchsorted(begins, start, side="right") - 1
    inside = (window >= 0) & (start < ends[window])
    np.minimum.at(first, window[inside], start[inside])
    launched = rows_of(survey[["window", "end"]], ~is_null(survey["window"]))
    np.maximum.at(last, launched["window"].to_numpy(), launched["end"].to_numpy())
    return with_series(
        iterations,
        iterations["start"].alias("start_ns"),
        iterations["end"].alias("end_ns"),
        pl.Series("view_start_ns", first),
        pl.Series("view_end_ns", last),
    )


def _problems(rank: int, detail: RankDetail) -> Iterator[RunWarning]:
    """The warnings about this rank's numbers."""
    yield from record_problems(rank, detail.records)
    iterations, marks, device = detail.iterations, detail.marks, detail.device
    numbers, whole = iterations.frame["iteration"], iterations.frame["complete"].to_numpy()
    kept = int(np.flatnonzero(np.append(True, whole))[-1])  # those after them are cut
    if kept < len(whole):
        yield RunWarning(
            "iteration-cut",
            f"the capture ends inside iteration {numbers[kept]} (the process was killed or the "
            "capture stopped); this iteration is left out, and later ones are missing",
            (rank,),
        )
    if detail.unseen:
        yield RunWarning(
            "waits-hidden",
            "launches collectives, but the report has no work of the device: waits hide "
            "in the first synchronising call",
            (rank,),
        )
    if device.opaque:
        yield RunWarning(
            "graphs-opaque",
            "CUDA graphs were traced as a whole: communication and waits inside them are not "
            "visible; profile with --cuda-graph-trace=node",
            (rank,),
        )
    survey = detail.work.survey
    computing = survey["device"].filter(survey["kind"] != "copy")
    if (devices := computing.n_unique()) > 1:
        yield RunWarning(
            "several-devices",
            f"drives {devices} devices from one process; they count as one: the rank computes "
            "while any of them does",
            (rank,),
        )
    if (device.unphased["share"] > UNPHASED_LIMIT).any():
        yield RunWarning(
            "phases-unknown",
            f"in some iterations more than {percent(UNPHASED_LIMIT)} of the device work has no "
            f"phase: {_without_phase(detail)}; phases are unknown there",
            (rank,),
        )
    if marks.derived:
        yield RunWarning(
            "phases-from-operators",
            f"no ranges are named like {' or '.join(sorted(marks.derived, reverse=True))}; "
            "these phases are derived from the framework's operators (backward is what "
            "autograd runs, forward is what precedes it); your own ranges, or --phase, are "
            "more reliable",
            (rank,),
        )
    if not marks.phases:
        yield RunWarning(
            "no-phases",
            "no ranges are named like phases; name them with --phase forward='REGEX' and so on",
            (rank,),
        )


def _without_phase(detail: RankDetail) -> str:
    """Why device work has no phase."""
    unphased = detail.work.survey.filter("training", ~pl.col("talks"), pl.col("phase").is_null())
    launched = pl.col("launch_thread").is_not_null()
    inside = launched & pl.col("window").is_not_null()
    reasons = {
        "it has no launch record": ~launched,
        "its CUDA graph spans phases": inside,
        "it was launched before the first iteration": launched & ~inside,
    }
    return ", or ".join(why for why, rows in reasons.items() if unphased.select(rows.any()).item())
