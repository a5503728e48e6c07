"""The reports of a run compared → warnings that need more than one report."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import polars as pl

from rankscope.compare.comparison import Stage
from rankscope.compare.stages import compare
from rankscope.errors import RankscopeError, ReportError, Unpaired
from rankscope.ingestion.check.remedies import launcher_of, remedy, with_remedy
from rankscope.ingestion.check.single_report import Examined
from rankscope.match.warnings import missing_ranks, named
from rankscope.model.options import Options, ShapingOptions
from rankscope.model.reports import CheckWarning, RankRows, ReportRows
from rankscope.sources.same_job import CLOCK_SLACK_NS
from rankscope.store.tables import LoadedTables, RunTables
from rankscope.store.writer import tables
from rankscope.util.grouping import grouped
from rankscope.util.wording import and_more, span

MOST_LISTED = 3
"""Most reports that a message names."""

BEFORE = ("collectives-missing", "iterations-uneven", "missing-ranks")
"""Codes of a comparison's warnings that the warnings about each report tell in more detail."""

Placed = tuple[Path, CheckWarning]
"""A report, and a warning about it."""


def together(
    reports: list[Examined], runs: dict[Path, int], paths: str = "PATH...", unread: int = 0
) -> Iterator[Placed]:
    """Yield reports with the warnings that come from comparing them with others of their run.

    Args:
        runs: report → the number of its run, as `ingest` counts them.
        paths: the reports as the user named them, for messages.
        unread: how many further reports cannot be used.
    """
    by_run = grouped((runs.get(_path(each), 1), each) for each in reports)
    for number, of_run in sorted(by_run.items()):
        if len(by_run) > 1:
            for examined in of_run:
                yield _of_several(examined, number, len(by_run), paths)
        yield from _twice(of_run)
        yield from _missing(of_run, unread)
        yield from _unlike(of_run)
        yield from _versions(of_run)
        yield from _compared([examined for examined in of_run if examined.unmarked is None])


def _of_several(examined: Examined, number: int, count: int, paths: str) -> Placed:
    """The warning that a report is of one of several runs, with the commands for this one."""
    return _placed(
        examined,
        "another-run",
        f"is of run {number} of {count}",
        hint=f"read it: rankscope ingest {paths} --run {number}, or all with --all-runs; examine "
        f"it alone: rankscope check {paths} --run {number}",
    )


def _twice(reports: list[Examined]) -> Iterator[Placed]:
    """Reports that claim one rank."""
    claims = grouped(
        (part.rank.identity.rank, each) for each in reports for part in each.rows.ranks
    )
    for rank, claimants in claims.items():
        common = os.path.commonpath([_path(each).parent for each in claimants])
        for examined in claimants if len(claimants) > 1 else ():
            others = [
                os.path.relpath(_path(each), common) for each in claimants if each is not examined
            ]
            message = f"is of rank {rank}, like {and_more(others, MOST_LISTED)}"
            yield _placed(examined, "rank-twice", message, fatal=True)


def _missing(reports: list[Examined], unread: int) -> Iterator[Placed]:
    """Ranks of the world without a report; the warning goes to every report that waits for them."""
    present = {part.rank.identity.rank for part in _parts(reports)}
    if not present:
        return
    world = max((size for size in map(_world, reports) if size is not None), default=None)
    missing = tuple(sorted({*range(world or max(present) + 1)} - present))
    if missing:
        message = missing_ranks(missing, world, len(present)).message
        hint = "repair the reports that cannot be used: they may be of these ranks"
        for examined in reports:
            may_be = hint if unread >= len(missing) else None
            yield _placed(examined, "missing-ranks", message, hint=may_be)


def _unlike(reports: list[Examined]) -> Iterator[Placed]:
    """Reports that lack something that others have."""
    ranks = len(list(_parts(reports)))
    if max([ranks, *filter(None, map(_world, reports))]) > 1:
        for examined, others in _lacking(reports, lambda part: not part.collectives.is_empty()):
            have = ", though others have them" if others else ""
            message = f"holds no collectives{have}: work cannot be separated from waiting"
            yield _placed(examined, "collectives-missing", message)
    unmarked = [examined for examined in reports if examined.unmarked is not None]
    if 0 < len(unmarked) < len(reports):
        for examined in unmarked:
            yield _placed(examined, "markers-missing", "holds no iterations, though others do")
    marked = [examined for examined in reports if examined.unmarked is None]
    for examined, others in _lacking(
        marked, lambda part: all(problem.code != "no-phases" for problem in part.problems)
    ):
        if others:
            message = "holds no ranges named like phases, though others do"
            yield _placed(examined, "markers-missing", message)


def _lacking(
    reports: list[Examined], has: Callable[[RankRows], bool]
) -> Iterator[tuple[Examined, bool]]:
    """Reports with a rank that lacks something, and whether others have it."""
    lacking = [each for each in reports if not all(map(has, each.rows.ranks))]
    return ((each, len(lacking) < len(reports)) for each in lacking)


def _versions(reports: list[Examined]) -> Iterator[Placed]:
    """Reports written by another version of nsys than most."""
    versions = [
        (examined, examined.rows.facts.exporter.partition("-")[0])
        for examined in reports
        if examined.rows.facts.exporter
    ]
    [(usual, _)] = Counter(version for _, version in versions).most_common(1) or [("", 0)]
    for examined, version in versions:
        if version != usual:
            message = f"was written by nsys {version}; most were written by {usual}"
            yield _placed(examined, "versions-differ", message)


def _compared(reports: list[Examined]) -> Iterator[Placed]:
    """What `ingest` would find out when it compares the ranks, and iterations that some lack."""
    owner: dict[int, Examined] = {}
    distinct: list[ReportRows] = []
    for examined in reports:
        ranks = [part.rank.identity.rank for part in examined.rows.ranks]
        if owner.keys().isdisjoint(ranks):
            owner |= dict.fromkeys(ranks, examined)
            distinct.append(examined.rows)
    if len(owner) < 2:
        return
    rows = tables(distinct, ShapingOptions().to_json())
    rows["problems"] = rows["problems"].clear()  # those are listed already
    unnumbered = rows["ranks"].filter(~pl.col("numbered"))["rank"].to_list()
    try:
        comparison = compare(RunTables("", LoadedTables(rows)), Options(), until=Stage.MATCH)
    except ReportError as error:
        unpaired = isinstance(error, Unpaired)
        message = error.message + "; ingest takes each capture as one iteration" * unpaired
        for rank in unnumbered or owner:
            hint = _parted(distinct) if unpaired else error.hint
            yield _placed(owner[rank], "cannot-be-paired", message, hint)
        return
    choice = comparison.scope.choice
    hints = {"nothing-to-compare": choice.hint} if isinstance(choice, RankscopeError) else {}
    for problem in dict.fromkeys((*comparison.scope.shift_warnings, *comparison.warnings)):
        for rank in problem.ranks or unnumbered or owner if problem.code not in BEFORE else ():
            message = problem.message.removeprefix(named(problem.ranks))
            yield _placed(owner[rank], problem.code, message, hints.get(problem.code))
    iterations = comparison.scope.tables.iterations
    whole = {*iterations.filter("complete")["iteration"]}  # on some rank: a pause is on none
    by_rank = iterations.group_by("rank").agg("iteration").sort("rank")
    held: dict[int, set[int]] = {rank: whole & {*numbers} for rank, numbers in by_rank.iter_rows()}
    common = set.intersection(*held.values())
    for rank, numbers in held.items():
        lacking = sorted(whole - numbers)
        if lacking:
            message = f"lacks iterations {span(lacking)} that others have; {len(common)} are common"
            yield _placed(owner[rank], "iterations-missing", message, fatal=not common)


def _parted(reports: list[ReportRows]) -> str | None:
    """What to do where reports begin at different times, by the clocks of their hosts."""
    starts = [each.facts.utc_start_ns for each in reports]
    known = [start for start in starts if start is not None]
    apart_ns = max(known, default=0) - min(known, default=0)
    return remedy("clock-wrong") if apart_ns > CLOCK_SLACK_NS else None


def _parts(reports: Iterable[Examined]) -> Iterator[RankRows]:
    return (part for examined in reports for part in examined.rows.ranks)


def _world(examined: Examined) -> int | None:
    return next((part.rank.identity.world_size for part in examined.rows.ranks), None)


def _path(examined: Examined) -> Path:
    return examined.rows.file.path


def _placed(
    examined: Examined, code: str, message: str, hint: str | None = None, fatal: bool = False
) -> Placed:
    """A warning with its report."""
    launcher = launcher_of(examined.rows.file, examined.rows.facts)
    return _path(examined), with_remedy(code, message, launcher, hint=hint, fatal=fatal)
