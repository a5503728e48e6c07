"""Reports → what each can answer, and the warnings about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from rankscope.check.cross_report import together
from rankscope.check.single_report import Examined, checked, examine, unreadable
from rankscope.errors import RankscopeError, ReportError, UsageError
from rankscope.ingestion.workers import map_reports
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import CheckedReport, CheckWarning, ReportFile
from rankscope.sources.conventions import vocabulary
from rankscope.sources.discover import discover
from rankscope.sources.identify import pattern


def check(
    paths: Iterable[str | Path],
    options: ShapingOptions | None = None,
    jobs: int | None = None,
    started: Callable[[list[ReportFile]], None] = lambda _: None,
    progress: Callable[[ReportFile, int], None] = lambda *_: None,
) -> tuple[CheckedReport, ...]:
    """Every report under `paths`, sorted by path: what it can answer, and its warnings.

    Nothing is stored, and a bad report does not stop the others.

    Args:
        paths: files, folders (searched recursively), globs.
        options: how iterations, phases and ranks are named.
        jobs: worker processes; None for the cores this process may use.
        started: called with the reports.
        progress: called after each report, with the report and the number of events read.

    Raises:
        UsageError: a path does not exist, there are no reports, or a pattern is not valid.
    """
    options = options or ShapingOptions()
    pattern(options.rank_pattern)
    if options.iteration not in ("auto", "whole"):
        vocabulary(options)
    unread: list[CheckedReport] = []

    def leave_out(path: Path, error: ReportError) -> None:
        unread.append(unreadable(ReportFile(path, "unknown", 0, 0), error))

    files = discover(paths, leave_out)
    started(files)
    every: list[Examined] = []
    usage: list[UsageError] = []
    with closing(map_reports(examine, files, options, jobs)) as results:
        for file, result in results:
            if isinstance(result, RankscopeError):
                unread.append(unreadable(file, result))
                usage += [result] if isinstance(result, UsageError) else []
            else:
                every.append(result)
            progress(file, 0 if isinstance(result, RankscopeError) else result.rows.events)
    if len(usage) == len(files):  # not caused by a report
        raise usage[0]
    every.sort(key=lambda examined: examined.rows.file.path)
    found: dict[Path, list[CheckWarning]] = {}
    for path, problem in together(every):
        found.setdefault(path, []).append(problem)
    reports = [*map(checked, every), *unread]
    return tuple(
        replace(report, problems=(*report.problems, *found.get(report.path, ())))
        for report in sorted(reports, key=lambda report: report.path)
    )
