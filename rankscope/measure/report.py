"""One report → its rows: every step that needs no other report."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import polars as pl

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
from rankscope.segment import Chosen, DetectedSteps, choose_iterations
from rankscope.sources import formats
from rankscope.sources.conventions import vocabulary
from rankscope.sources.identify import (
    DEVICE,
    ONLY_REPORT,
    identities,
    name_disagrees,
    pattern,
    process_ranks,
)
from rankscope.util.wording import agreeing, counted

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Segmented:
    """One report, read: its ranks, and their iterations."""

    trace: Trace
    chosen: Chosen  # its iterations
    identities: dict[int, RankIdentity]  # process → whose rank it is


def segmented(file: ReportFile, options: ShapingOptions) -> Segmented:
    """Read, identify and segment one report.

    Raises:
        UnreadableReport: it is not a valid report.
        NoIterations: it has no iterations as `--iteration` wants them, or no events at all.
        UnknownRank, RankConflict: its rank is unknown or contradictory.
    """
    words = vocabulary(replace(options, iteration=options.pattern()))
    trace = formats.read(file, words)
    hints = formats.named(file.kind).hints
    chosen = choose_iterations(file.path, trace, words, options, hints)
    ranks = identities(
        file.path,
        trace.facts,
        {process: trace.process_of(process).pid for process in chosen.found},
        process_ranks(trace, several=len(chosen.found) > 1),
        pattern(options.rank_pattern),
        rank=options.rank,
        alone=options.alone,
    )
    return Segmented(trace, chosen, ranks)


def details(file: ReportFile, options: ShapingOptions) -> dict[int, RankDetail]:
    """rank → everything its numbers are made of.

    Raises: what `segmented` does.
    """
    report = segmented(file, replace(options, alone=True))  # extract refused an unknown rank
    detailed = _details(report)
    return {identity.rank: detailed[process] for process, identity in report.identities.items()}


def _details(report: Segmented) -> dict[int, RankDetail]:
    """process → what is known of it, of those that are ranks."""
    found = {process: report.chosen.found[process] for process in report.identities}
    return detail_ranks(found, report.chosen.named, report.trace)


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
    if whose[0].evidence == ONLY_REPORT:
        problems.append(
            RunWarning(
                "rank-assumed",
                f"nothing says which rank {file.path.name} is; as the only report it is rank 0; "
                "--rank N makes it another",
                (0,),
            )
        )
    problems += [
        _found_steps(report.chosen.steps[process], each.rank)
        for process, each in report.identities.items()
        if report.chosen.steps
    ]
    problems += [
        RunWarning("part-unread", text, tuple(identity.rank for identity in whose))
        for text in trace.device_work.unread
    ]
    if trace.broken_rows:
        problems.append(
            RunWarning(
                "rows-broken",
                f"{counted(trace.broken_rows, 'event')} without a time or an owner "
                f"{agreeing(trace.broken_rows, 'is', 'are')} left out; is the "
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
                report.chosen.words,
                _gpu(trace, process),
                states[process],
            )
            for process, identity in report.identities.items()
        ),
        problems=tuple(problems),
        events=trace.events,
        taken=report.chosen.taken,
    )


def _host_states(trace: Trace, detailed: dict[int, RankDetail]) -> dict[int, pl.DataFrame]:
    """process → HOST_STATES without `rank`."""
    spans = {
        detail.found.thread: (detail.host["start"].item(0), detail.host["end"].item(-1))
        for detail in detailed.values()
        if not detail.host.is_empty()
    }
    events = {} if trace.host_of is None else trace.host_of(spans)
    return {
        process: host_states(
            detail.found.frame, detail.host, events.get(detail.found.thread, ThreadEvents())
        )
        for process, detail in detailed.items()
    }


def _gpu(trace: Trace, process: int) -> Gpu | None:
    """The GPU that a process computed on, if the report identifies it."""
    used = trace.device_work.kinds.filter(pl.col("kind") != "copy", process=process)
    return trace.facts.hardware.gpu_of(trace.process_of(process).pid, used["device"])


def _found_steps(steps: DetectedSteps, rank: int) -> RunWarning:
    _log.info("rank %d: %.0f %% of a step recurs in the next", rank, steps.confidence * 100)
    return RunWarning(
        "steps-found",
        f"iterations are steps detected in the {steps.source} (--iteration auto); each ends with "
        "its last event, or in the pause that follows",
        (rank,),
    )
