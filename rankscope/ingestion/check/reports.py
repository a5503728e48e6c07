"""Reports → what each can answer, and the warnings about each."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from rankscope.errors import NoIterations, RankscopeError, ReportError, UsageError
from rankscope.ingestion import kept_rows
from rankscope.ingestion.check.cross_report import MOST_LISTED, Placed, together
from rankscope.ingestion.check.remedies import with_remedy
from rankscope.ingestion.check.single_report import Examined, checked, unreadable
from rankscope.ingestion.iteration_defaults import Read, read_alike
from rankscope.ingestion.preflight import check_one_rank, found_runs, reports_to_read, select_run
from rankscope.ingestion.runs import shell_arguments
from rankscope.ingestion.workers import Results, map_reports
from rankscope.match.selection import auto_clock
from rankscope.model.options import WHOLE, ShapingOptions
from rankscope.model.reports import (
    CheckedReport,
    CheckWarning,
    RankRows,
    ReportFile,
    ReportRows,
)
from rankscope.sources.conventions import vocabulary
from rankscope.sources.discover import discover
from rankscope.sources.identify import pattern
from rankscope.util.grouping import grouped
from rankscope.util.wording import and_more, counted

LOST_BY_CUT = {
    "clocks-unaligned",
    "collectives-missing",
    "iteration-cut",
    "records-missing",
    "waits-hidden",
}
"""Codes of what a report lacks if it ends amid its events, and a whole copy may hold."""


def check(
    paths: Iterable[str | Path],
    options: ShapingOptions | None = None,
    jobs: int | None = None,
    run: int | None = None,
    started: Callable[[list[ReportFile]], None] = lambda _: None,
    progress: Callable[[ReportFile, int], None] = lambda *_: None,
) -> tuple[CheckedReport, ...]:
    """Every report under `paths`, sorted by path: what it can answer, and its warnings.

    A bad report does not stop the others. Rows are kept in the cache for `ingest`.

    Args:
        paths: files, folders (searched recursively), globs.
        options: how iterations, phases and ranks are named.
        jobs: worker processes; None for the cores this process may use.
        run: only the reports of this run, as `ingest` counts them.
        started: called with the reports.
        progress: called after each report, with the report and the number of events read.

    Raises:
        UsageError: a path does not exist, there are no reports, a pattern is not valid, or there
            are fewer runs.
    """
    options = options or ShapingOptions()
    own = pattern(options.rank_pattern)
    vocabulary(options)
    unread: list[CheckedReport] = []

    def leave_out(path: Path, error: ReportError) -> None:
        unread.append(unreadable(ReportFile(path, "unknown", 0, 0), error))

    paths = list(paths)
    files, copies = reports_to_read(discover(paths, leave_out), own)
    check_one_rank(options, files)
    runs = found_runs(files, own)
    if run is not None:
        files = select_run(files, run, own)
        runs = runs[run - 1 : run]
    number_of = {each.path: number for number, of in enumerate(runs, 1) for each in of}
    options = replace(options, alone=len(files) == 1)
    started(files)
    read = partial(map_reports, kept_rows.keeping(len(files)), jobs=jobs)
    by_path: dict[Path, tuple[ReportFile, ReportRows | RankscopeError]] = {}
    with closing(read(files, options)) as results:
        for file, result in results:
            by_path[file.path] = file, result
            progress(file, 0 if isinstance(result, RankscopeError) else result.events)

    def read_once(of: list[ReportFile], with_options: ShapingOptions) -> Results:
        known = (by_path[file.path] for file in of)
        return known if with_options == options else read(of, with_options)

    for members in grouped((number_of.get(file.path, 1), file) for file in files).values():
        with closing(read_alike(read_once, members, options)) as results:
            by_path |= {file.path: (file, result) for file, result in results}
    readable, failed = _with_captures(read, by_path.values(), options)
    unread += [unreadable(file, error) for file, error in failed]
    usage = [error for _, error in failed if isinstance(error, UsageError)]
    if len(usage) == len(files):  # not caused by a report
        raise usage[0]
    readable.sort(key=lambda examined: examined.rows.file.path)
    compared = together(readable, number_of, shell_arguments(paths), len(unread))
    warnings = grouped((*compared, *_copied(copies)))
    clocks = _clocks(readable, number_of)
    reports = [*map(checked, readable), *unread]

    def told(report: CheckedReport) -> tuple[CheckWarning, ...]:
        problems = (*report.problems, *warnings.get(report.path, ()))
        untold = {"gpu-sparse"} if clocks.get(report.path) == "gpu" else set[str]()
        if any(problem.code == "report-cut" for problem in problems):
            untold |= LOST_BY_CUT
        return tuple(problem for problem in problems if problem.code not in untold)

    return tuple(
        replace(
            report,
            problems=told(report),
            clock=clocks.get(report.path),
            run=number_of.get(report.path, 1),
        )
        for report in sorted(reports, key=lambda report: report.path)
    )


def _copied(copies: dict[Path, Path]) -> Iterator[Placed]:
    """Reports that have copies, which are left out."""
    for report in {*copies.values()}:
        where = sorted(str(copy) for copy, of in copies.items() if of == report)
        several = counted(len(where), "copy", "copies")
        message = f"has {several}, left out: {and_more(where, MOST_LISTED)}"
        yield report, with_remedy("report-copied", message)


def _clocks(reports: list[Examined], number_of: dict[Path, int]) -> dict[Path, str]:
    """Report → the clock that its run is compared on, as `imbalance` chooses it."""
    of_run = grouped((number_of.get(each.rows.file.path, 1), each) for each in reports)
    clocks: dict[Path, str] = {}
    for members in of_run.values():
        parts = [part for examined in members for part in examined.rows.ranks]
        ranks = pl.DataFrame(
            {
                "rank": [part.rank.identity.rank for part in parts],
                "has_device": [part.rank.has_device for part in parts],
                "clock_gpu": [part.rank.clock_gpu for part in parts],
            }
        )
        clock, _ = auto_clock(ranks, partial(_measured, parts))
        clocks |= {examined.rows.file.path: clock for examined in members}
    return clocks


def _measured(parts: list[RankRows], ranks: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """MEASURES and RANK_ITERATIONS of some ranks."""
    chosen = [part for part in parts if part.rank.identity.rank in ranks]
    return (
        pl.concat(part.measures for part in chosen),
        pl.concat(part.iterations for part in chosen),
    )


def _with_captures(
    read: Read,
    outcomes: Iterable[tuple[ReportFile, ReportRows | RankscopeError]],
    options: ShapingOptions,
) -> tuple[list[Examined], list[tuple[ReportFile, RankscopeError]]]:
    """Reports with rows, and those with errors; of reports without iterations, the capture."""
    readable: list[Examined] = []
    failed: list[tuple[ReportFile, RankscopeError]] = []
    bare: dict[ReportFile, NoIterations] = {}
    for file, result in outcomes:
        if isinstance(result, ReportRows):
            readable.append(Examined(result, None))
        elif isinstance(result, NoIterations):
            bare[file] = result
        else:
            failed.append((file, result))
    with closing(read([*bare], replace(options, iteration=WHOLE))) as results:
        for file, result in results:
            if isinstance(result, ReportRows):
                readable.append(Examined(result, bare[file]))
            else:
                failed.append((file, bare[file]))
    return readable, failed
