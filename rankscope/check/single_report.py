"""One report → what it can answer and what is wrong with it alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rankscope import errors
from rankscope.check.remedies import fault, launcher
from rankscope.compare.verdict.preconditions import LEAST_ITERATIONS
from rankscope.errors import NoIterations, RankscopeError
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import Abilities, CheckedReport, CheckWarning, ReportFile, ReportRows

CODES = {
    errors.NoIterations: "no-iterations",
    errors.UnknownRank: "rank-unknown",
    errors.RankConflict: "rank-conflict",
    errors.UsageError: "rank-unknown",  # the only one a report can cause: --rank-pattern
    errors.ToolError: "nsys-failed",
}
"""Errors that leave a report without rows → codes of faults."""

OWN_HINTS = ("unreadable", "nsys-failed")
"""Codes whose remedy is no other capture, but what the error says."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The rows of a report, and the error where it has no iterations: then one is the capture."""

    rows: ReportRows
    unmarked: NoIterations | None


def examine(file: ReportFile, options: ShapingOptions) -> Examined:
    """Read a report as ingest does; where it has no iterations, as a whole, to see what it has."""
    try:
        return Examined(extract(file, options), None)
    except NoIterations as error:
        try:
            return Examined(extract(file, replace(options, iteration="whole")), error)
        except RankscopeError:
            raise error from None


def unreadable(file: ReportFile, error: RankscopeError) -> CheckedReport:
    """A report of which nothing can be said but why."""
    code = CODES.get(type(error), "unreadable")
    hint = error.hint if code in OWN_HINTS else None
    problem = fault(code, _without_path(error, file), hint=hint, fatal=True)
    return CheckedReport(file.path, file.kind, (), 0, Abilities(), (problem,))


def checked(examined: Examined) -> CheckedReport:
    """What one report can answer and what is wrong with it, knowing no other."""
    rows, marked = examined.rows, examined.unmarked is None
    has_collectives = all(not part.collectives.is_empty() for part in rows.ranks)
    return CheckedReport(
        path=rows.file.path,
        kind=rows.file.kind,
        ranks=tuple(sorted(part.rank.identity.rank for part in rows.ranks)),
        iterations=_complete(rows) if marked else 0,
        can=Abilities(
            iterations=marked,
            phases=marked and all(code != "no-phases" for code, _ in _noted(rows)),
            gpu=all(part.rank.has_device for part in rows.ranks),
            collectives=has_collectives,
            clocks=has_collectives and rows.facts.utc_start_ns is not None,
        ),
        problems=tuple(_problems(examined)),
    )


def _problems(examined: Examined) -> Iterator[CheckWarning]:
    rows, unmarked = examined.rows, examined.unmarked
    scheduler = launcher(rows.facts)
    if unmarked is not None:
        message = _without_path(unmarked, rows.file)
        yield fault("no-iterations", message, scheduler, fatal=True)
    noted = [each for each in _noted(rows) if unmarked is None or each[0] != "no-phases"]
    for code, message in noted:
        yield fault(code, message, scheduler)
    if lost := _lost(rows):
        yield fault("events-lost", f"nsys says: {' '.join(lost)}", scheduler)
    yield from _device_problems(rows, unmarked is None, scheduler)
    steps = unmarked is None and all(part.rank.convention != "whole" for part in rows.ranks)
    if steps and _complete(rows) < LEAST_ITERATIONS:
        yield fault(
            "few-iterations",
            f"holds {_complete(rows)} complete iterations: too few to tell a pattern from an "
            "accident",
            scheduler,
        )
    if rows.facts.utc_start_ns is None:
        yield fault("no-utc", "does not say when it was started, in UTC", scheduler)


def _device_problems(rows: ReportRows, marked: bool, scheduler: str) -> Iterator[CheckWarning]:
    if all(part.rank.has_device for part in rows.ranks):
        if marked and not all(part.rank.clock_gpu for part in rows.ranks):
            yield fault(
                "gpu-sparse",
                "in over 10 % of the iterations no work of the GPU belongs to a phase, so phases "
                "are timed on the host clock",
                scheduler,
            )
    elif all(code != "waits-hidden" for code, _ in _noted(rows)):
        yield fault("gpu-missing", "holds no work of the GPU: the host clock must do", scheduler)


def _noted(rows: ReportRows) -> list[tuple[str, str]]:
    """Codes and messages of what the stages noted, each once."""
    every = [*rows.problems, *(problem for part in rows.ranks for problem in part.problems)]
    return list(dict.fromkeys((problem.code, problem.message) for problem in every))


def _lost(rows: ReportRows) -> list[str]:
    """What nsys says of events lost in a rank's process; those of its helpers do not matter."""
    processes = {None, *(part.rank.identity.process for part in rows.ranks)}
    return sorted({loss.text for loss in rows.facts.losses if loss.process in processes})


def _complete(rows: ReportRows) -> int:
    """Complete iterations, of the rank that has fewest."""
    return min(int(part.iterations["complete"].sum()) for part in rows.ranks)


def _without_path(error: RankscopeError, file: ReportFile) -> str:
    """The message alone; the table names the report."""
    return error.message.removeprefix(f"{file.path}: ")
