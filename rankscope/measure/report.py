"""One report → its rows: every step that needs no other report."""

import logging
import shlex
from collections.abc import Callable, Iterable, Iterator

import numpy  # noqa: F401  # before polars: see tests/test_public.py
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.measure.file_accesses import file_accesses
from rankscope.measure.host import window_edges
from rankscope.measure.host_states import host_states
from rankscope.measure.rank import RankDetail, detail_ranks, measure_rank
from rankscope.measure.segment import Chosen, DetectedSteps, choose_iterations, iteration_pattern
from rankscope.model.arrays import taken
from rankscope.model.columns import out_of_bounds
from rankscope.model.frames import with_series
from rankscope.model.host_events import WINDOWED_COUNTERS, CounterEvents, HostEvents, ThreadEvents
from rankscope.model.kinds import EvidenceKind
from rankscope.model.options import AUTO, WHOLE, ShapingOptions
from rankscope.model.reports import (
    Gpu,
    RankIdentity,
    RankRows,
    ReportFile,
    ReportRows,
    RunWarning,
    Trace,
)
from rankscope.model.schema import COUNTERS, FILE_ACCESSES, HOST_STATES, empty, of_rank
from rankscope.model.tables import TABLES
from rankscope.sources import formats
from rankscope.sources.conventions import Vocabulary, vocabulary
from rankscope.sources.identify import (
    DEVICE,
    ONLY_REPORT,
    identities,
    name_disagrees,
    pattern,
    process_ranks,
)
from rankscope.sources.name_numbers import NODES
from rankscope.util.wording import agreeing, counted

_log = logging.getLogger(__name__)

Reader = Callable[[ReportFile, Vocabulary], Trace]
"""Reads a report; may leave out what the vocabulary calls operators, as `Format.read` says."""


class Segmented(Struct, frozen=True):
    """One report, read: its ranks, and their iterations."""

    trace: Trace
    chosen: Chosen  # its iterations
    identities: dict[int, RankIdentity]  # process → whose rank it is


class _Thread(Struct, frozen=True):
    """A training thread."""

    id: int
    process: int
    iterations: pl.DataFrame  # ITERATIONS
    timeline: pl.DataFrame  # SEGMENTS


def segmented(file: ReportFile, options: ShapingOptions, read: Reader = formats.read) -> Segmented:
    """Read, identify and segment one report.

    Args:
        read: the reader of its format, within the usual limits.

    Raises:
        UnreadableReport: it is not a valid report.
        NoIterations: it has no iterations as `--iteration` wants them, or no events at all.
        UnknownRank, RankConflict: its rank is unknown or contradictory.
    """
    words = vocabulary(options)
    trace = read(file, words)
    hints = formats.named(file.kind).hints
    chosen = choose_iterations(file.path, trace, words, options, hints)
    chosen = chosen.paused(trace.pauses)
    if trace.cut_ns is not None:
        chosen = chosen.until(trace.cut_ns)
    ranks = identities(
        file.path,
        trace.facts,
        {process: trace.process_of(process).pid for process in chosen.iterations},
        process_ranks(trace, several=len(chosen.iterations) > 1),
        pattern(options.rank_pattern),
        rank=options.rank,
        alone=options.alone,
        numbers=file.numbers,
        rank_place=file.pattern,
    )
    return Segmented(trace, chosen, ranks)


class ReportDetail(Struct, frozen=True):
    """One report in detail."""

    ranks: dict[int, RankDetail]  # rank → everything its numbers are made of
    host_of: HostEvents | None  # reads what threads did


def details(file: ReportFile, options: ShapingOptions, read: Reader = formats.read) -> ReportDetail:
    """The ranks of a report in detail.

    Takes and raises what `segmented` does.
    """
    report = segmented(file, replace(options, alone=True), read)  # extract refused an unknown rank
    detailed = _details(report)
    ranks = {identity.rank: detailed[process] for process, identity in report.identities.items()}
    return ReportDetail(ranks, report.trace.host_of)


def _details(report: Segmented) -> dict[int, RankDetail]:
    """process → its detail, for the processes that are ranks."""
    iterations = {process: report.chosen.iterations[process] for process in report.identities}
    return detail_ranks(iterations, report.chosen.named, report.trace)


def extract(file: ReportFile, options: ShapingOptions, read: Reader = formats.read) -> ReportRows:
    """Read, identify, segment and measure one report.

    Takes and raises what `segmented` does; UnreadableReport for numbers out of all bounds, too.
    """
    report = segmented(file, options, read)
    host_of, counters_of = report.trace.host_of, report.trace.counters_of
    rows, threads = _measured(file, report)
    # Host events are read last, into the memory that everything else has left.
    del report
    rows = replace(rows, ranks=tuple(_with_host(rows.ranks, threads, host_of, counters_of)))
    _check_bounds(rows)
    return rows


def _check_bounds(rows: ReportRows) -> None:
    """Raises `UnreadableReport` if a report holds numbers that no database takes."""
    for part in rows.ranks:
        for name in part.__struct_fields__:
            frame = getattr(part, name)
            if not isinstance(frame, pl.DataFrame):
                continue
            if wrong := out_of_bounds(name, frame, TABLES[name]):
                raise UnreadableReport(
                    f"{rows.file.path}: holds what no run has ({wrong})",
                    hint="is the file damaged? export it or profile again, or leave it out: "
                    "--on-error skip",
                )


def _measured(file: ReportFile, report: Segmented) -> tuple[ReportRows, dict[int, _Thread]]:
    """All rows but those of host events and counters, and for each rank its training thread."""
    trace, detailed = report.trace, _details(report)
    rows = ReportRows(
        file=file,
        facts=trace.facts,
        ranks=tuple(
            measure_rank(
                identity,
                detailed[process],
                report.chosen.words,
                _gpu(trace, process, detailed[process].work.survey),
            )
            for process, identity in report.identities.items()
        ),
        problems=tuple(_problems(file, report)),
        events=trace.events,
        windows=tuple(end for _, end in trace.pauses),
        taken=report.chosen.taken,
    )
    threads = {
        identity.rank: _Thread(
            detail.iterations.thread, process, detail.iterations.frame, detail.host
        )
        for process, identity in report.identities.items()
        for detail in [detailed[process]]
    }
    return rows, threads


def _problems(file: ReportFile, report: Segmented) -> Iterator[RunWarning]:
    """The warnings about the report, not about the numbers of a rank."""
    trace, identified = report.trace, [*report.identities.values()]
    ranks, evidence = tuple(each.rank for each in identified), identified[0].evidence
    yield from [
        RunWarning(
            "file-name-disagrees",
            f"{file.path.name} is named like rank {spelled}, but its {identity.evidence} says "
            f"rank {identity.rank}, which is believed",
            (identity.rank,),
        )
        for identity in identified
        if (spelled := name_disagrees(file.path, identity)) is not None
    ]
    if evidence == NODES:
        yield RunWarning(
            "rank-assumed",
            "ranks are numbered by the nodes and devices in the names of their reports, as "
            "launchers count: check before you accuse one",
            ranks,
        )
    elif evidence.kind is EvidenceKind.ORDER:
        yield RunWarning(
            "ranks-by-order",
            f"{file.path.name} does not say which rank is which: its processes are numbered "
            + ("by the device each uses" if evidence == DEVICE else "by process id")
            + ", as a launcher on one host starts them; check before you accuse one",
            ranks,
        )
    if evidence == ONLY_REPORT:
        yield RunWarning(
            "rank-assumed",
            f"nothing says which rank {file.path.name} is; as the only report it is rank 0; "
            "--rank N makes it another",
            (0,),
        )
    yield from [
        RunWarning(
            "pattern-unused", f"no range fits --phase {row.means}='{row.patterns[0]}'", ranks
        )
        for row in report.chosen.words.rows
        if row.is_own and row.means != "iteration"
        if not report.chosen.named.signatures.select(row.fits().fill_null(False).any()).item()
    ]
    if report.chosen.taken in (AUTO, WHOLE):
        foreign = report.chosen.named.foreign
        yield from [
            RunWarning(
                "iterations-unnamed",
                "ranges that follow each other fill most of the time: if these are the "
                f"iterations, say so: --iteration {shlex.quote(own)}",
                (each.rank,),
            )
            for process, each in report.identities.items()
            if (own := iteration_pattern(foreign, report.chosen.iterations[process]))
        ]
    yield from [
        _steps_found(report.chosen.steps[process], each.rank)
        for process, each in report.identities.items()
        if report.chosen.steps
    ]
    if trace.cut_ns is not None:
        yield RunWarning(
            "report-cut",
            "the report ends amid its events (the process was killed while it wrote, or a copy "
            "stopped): iterations that end later are left out",
            ranks,
        )
    yield from [RunWarning("part-unread", text, ranks) for text in trace.device_work.unread]
    if trace.broken_rows:
        yield RunWarning(
            "rows-broken",
            f"{counted(trace.broken_rows, 'event')} without a possible time or an owner "
            f"{agreeing(trace.broken_rows, 'is', 'are')} left out; is the "
            "export whole?",
            ranks,
        )


def _with_host(
    ranks: Iterable[RankRows],
    threads: dict[int, _Thread],
    host_of: HostEvents | None,
    counters_of: CounterEvents | None,
) -> Iterator[RankRows]:
    """The rows with HOST_STATES, FILE_ACCESSES and COUNTERS."""
    spans = {
        each.id: (each.timeline["start"].item(0), each.timeline["end"].item(-1))
        for each in threads.values()
        if not each.timeline.is_empty()
    }
    edges = {each.process: window_edges(each.iterations) for each in threads.values()}
    events = {} if host_of is None else host_of(spans)
    counted = {} if counters_of is None else counters_of(edges)
    for part in ranks:
        rank = part.rank.identity.rank
        thread = threads[rank]
        own = events.get(thread.id, ThreadEvents())
        states = host_states(thread.iterations, thread.timeline, own)
        files = file_accesses(thread.iterations, thread.timeline, own)
        counters = counted.get(thread.process, empty(WINDOWED_COUNTERS))
        numbers = taken(thread.iterations["iteration"], counters["window"].to_numpy())
        counters = with_series(counters, numbers)
        yield replace(
            part,
            host_states=of_rank(rank, states, HOST_STATES),
            file_accesses=of_rank(rank, files, FILE_ACCESSES),
            counters=of_rank(rank, counters, COUNTERS, drop_others=True),
        )


def _gpu(trace: Trace, process: int, survey: pl.DataFrame) -> Gpu | None:
    """The GPU that a process computed on, by the survey of its work; None if it is unknown."""
    used = survey["device"].filter(survey["kind"] != "copy").unique()
    return trace.facts.hardware.gpu_of(trace.process_of(process).pid, used)


def _steps_found(steps: DetectedSteps, rank: int) -> RunWarning:
    _log.info("rank %d: %.0f %% of a step recurs in the next", rank, steps.confidence * 100)
    return RunWarning(
        "steps-found",
        f"iterations are steps detected in the {steps.source} (--iteration auto); each ends with "
        "its last event, or in the pause that follows",
        (rank,),
    )
