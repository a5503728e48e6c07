"""One report → its rows: every step that needs no other report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from rankscope.errors import NoIterations
from rankscope.measure.host_states import host_states
from rankscope.measure.rank import RankDetail, detail_ranks, measure_rank
from rankscope.model.host_events import ThreadEvents
from rankscope.model.kinds import EvidenceKind
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import (
    Gpu,
    RankIdentity,
    ReportFile,
    ReportRows,
    RunWarning,
    Trace,
)
from rankscope.model.schema import OPERATORS
from rankscope.segment import (
    SURE,
    DetectedSteps,
    IterationRanges,
    LabelledRanges,
    find_iterations,
    find_steps,
    whole_capture,
    with_meanings,
)
from rankscope.sources import formats
from rankscope.sources.conventions import Vocabulary, vocabulary
from rankscope.sources.identify import (
    DEVICE,
    identities,
    name_disagrees,
    pattern,
    process_ranks,
)

SHOWN_NAMES = 8

SPECIAL = ("auto", "whole")
"""Values of --iteration that are not patterns."""


@dataclass(frozen=True, slots=True)
class Segmented:
    """One report, read: its ranks, and their iterations."""

    trace: Trace
    named: LabelledRanges
    words: Vocabulary
    found: dict[int, IterationRanges]  # process → its iterations
    identities: dict[int, RankIdentity]  # process → whose rank it is
    steps: dict[
        int, DetectedSteps
    ]  # process → how its iterations were found, where nothing names them


def segmented(file: ReportFile, options: ShapingOptions) -> Segmented:
    """Read, identify and segment one report.

    Raises:
        UnreadableReport: it is not a valid report.
        NoIterations: no range in it is named like an iteration.
        UnknownRank, RankConflict: its rank is unknown or contradictory.
    """
    special = options.iteration in SPECIAL
    words = vocabulary(ShapingOptions(phases=options.phases) if special else options)
    trace = formats.read(file, words)
    named = with_meanings(trace.ranges, words)
    found, steps = _iterations(file, trace, named, options)
    ranks = identities(
        file.path,
        trace.facts,
        {process: trace.process_of(process).pid for process in found},
        process_ranks(trace, several=len(found) > 1),
        pattern(options.rank_pattern),
    )
    return Segmented(trace, named, words, found, ranks, steps)


def details(file: ReportFile, options: ShapingOptions) -> dict[int, RankDetail]:
    """rank → everything its numbers are made of.

    Raises: what `segmented` does.
    """
    report = segmented(file, options)
    detailed = _details(report)
    return {identity.rank: detailed[process] for process, identity in report.identities.items()}


def _details(report: Segmented) -> dict[int, RankDetail]:
    """process → what is known of it, of those that are ranks."""
    found = {process: report.found[process] for process in report.identities}
    return detail_ranks(found, report.named, report.trace)


def extract(file: ReportFile, options: ShapingOptions) -> ReportRows:
    """Read, identify, segment and measure one report.

    Raises: what `segmented` does.
    """
    report = segmented(file, options)
    trace, whose = report.trace, [*report.identities.values()]
    detailed = _details(report)
    states = _host_states(trace, detailed)
    problems = [
        RunWarning(
            "file-name-disagrees",
            f"{file.path.name} is named like rank {spelled}, but its {identity.evidence} says "
            f"rank {identity.rank}, which is believed",
            (identity.rank,),
        )
        for identity in whose
        if (spelled := name_disagrees(file.path, identity)) is not None
    ]
    if whose[0].evidence.kind is EvidenceKind.ORDER:
        problems.append(
            RunWarning(
                "ranks-by-order",
                f"{file.path.name} does not say which rank is which: its processes are numbered "
                + ("by the device each uses" if whose[0].evidence == DEVICE else "by process id")
                + ", as a launcher on one host starts them; check before you accuse one",
                tuple(identity.rank for identity in whose),
            )
        )
    problems += [
        _found_steps(report.steps[process], each.rank)
        for process, each in report.identities.items()
        if report.steps
    ]
    problems += [
        RunWarning("part-unread", text, tuple(identity.rank for identity in whose))
        for text in trace.device_work.unread
    ]
    if trace.broken_rows:
        problems.append(
            RunWarning(
                "rows-broken",
                f"{trace.broken_rows:,} events without a time or an owner are left out; is the "
                "export whole?",
                tuple(identity.rank for identity in whose),
            )
        )
    return ReportRows(
        file=file,
        facts=trace.facts,
        ranks=tuple(
            measure_rank(
                identity,
                detailed[process],
                report.words,
                _gpu(trace, process),
                states[process],
            )
            for process, identity in report.identities.items()
        ),
        problems=tuple(problems),
        events=trace.events,
    )


def _host_states(trace: Trace, detailed: dict[int, RankDetail]) -> dict[int, pl.DataFrame]:
    """process → HOST_STATES without `rank`."""
    spans = {
        detail.found.thread: (detail.host["start"].item(0), detail.host["end"].item(-1))
        for detail in detailed.values()
        if not detail.host.is_empty()
    }
    told = trace.host_of(spans)
    return {
        process: host_states(
            detail.found.frame, detail.host, told.get(detail.found.thread, ThreadEvents())
        )
        for process, detail in detailed.items()
    }


def _gpu(trace: Trace, process: int) -> Gpu | None:
    """The GPU that a process computed on, if the report identifies it."""
    used = trace.device_work.kinds.filter(pl.col("kind") != "copy", process=process)
    return trace.facts.hardware.gpu_of(trace.process_of(process).pid, used["device"])


def _iterations(
    file: ReportFile, trace: Trace, named: LabelledRanges, options: ShapingOptions
) -> tuple[dict[int, IterationRanges], dict[int, DetectedSteps]]:
    """The iterations of each process that has some, and the steps they are where found so."""
    duration = trace.facts.duration_ns
    if options.iteration == "auto":
        ranges, work = named.every.whole, trace.device_work.whole
        steps = {
            process: find_steps(
                _of(process, ranges),
                _of(process, work),
                duration,
                trace.process_of(process).main_thread,
            )
            for process in dict.fromkeys(_processes(ranges) + _processes(work))
        }
        sure = {process: each for process, each in steps.items() if each.confidence >= SURE}
        if not sure:
            raise _no_steps(file, steps.values())
        return {process: each.found for process, each in sure.items() if each.found}, sure
    if options.iteration == "whole":
        ranges = named.every.whole
        kinds = trace.device_work.kinds
        ends = dict(kinds.group_by("process").agg(pl.col("end").max()).iter_rows())
        candidates = {
            process: whole_capture(_of(process, ranges), ends.get(process))
            for process in _processes(ranges)
        }
    else:
        called = named.telling.filter(means="iteration")
        candidates = {
            process: find_iterations(_of(process, called), duration)
            for process in _processes(called)
        }
    found = {process: each for process, each in candidates.items() if each}
    if not found:
        raise _no_iterations(file, named.every.whole, options)
    return found, {}


def _processes(frame: pl.DataFrame) -> list[int]:
    return frame["process"].unique(maintain_order=True).to_list()


def _of(process: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.filter(pl.col("process") == process)


def _found_steps(steps: DetectedSteps, rank: int) -> RunWarning:
    return RunWarning(
        "steps-found",
        f"iterations are steps found in the {steps.source}, where {steps.confidence:.0%} of a step "
        "recurs in the next; each ends with its last event, or in the pause that follows: ranges "
        "around them would tell",
        (rank,),
    )


def _no_steps(file: ReportFile, steps: Iterable[DetectedSteps]) -> NoIterations:
    best = max((each.confidence for each in steps), default=0.0)
    return NoIterations(
        f"{file.path}: no steps found: at best {best:.0%} of what it does recurs, and "
        f"{SURE:.0%} are needed",
        hint="capture at least four steps, or annotate them "
        "(torch.cuda.nvtx.range_push(f'step {i}')); or take the capture as one: --iteration whole",
    )


def _no_iterations(file: ReportFile, ranges: pl.DataFrame, options: ShapingOptions) -> NoIterations:
    """The error that shows which names there are."""
    annotations = ranges.filter(pl.col("domain") != OPERATORS)
    hints = formats.named(file.kind).hints
    if ranges.is_empty():
        return NoIterations(f"{file.path}: holds no {hints.ranges} ranges", hint=hints.no_ranges)
    stems = (ranges if annotations.is_empty() else annotations).select(
        pl.col("name").str.replace_all(r"\d+", "N").str.slice(0, 60)
    )
    common = stems["name"].value_counts().sort("count", "name", descending=[True, False])
    names = ", ".join(f"{name!r} ({count})" for name, count in common.head(SHOWN_NAMES).iter_rows())
    looked = "that fit --iteration" if options.iteration else "named like iterations"
    return NoIterations(
        f"{file.path}: has no ranges {looked}; its most frequent ranges are {names}",
        hint=hints.unmarked
        if hints.unmarked and not options.iteration
        else "name the iterations with --iteration 'REGEX' (its first group is the number), the "
        "phases with --phase forward='REGEX'; or have steps found: --iteration auto",
    )
