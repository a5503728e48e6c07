"""The public interface: ingest reports, open a run, ask it, compare two of them.

All answers take the keyword parameters of `AnalysisOptions`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import polars as pl
from msgspec.structs import replace

from rankscope.compare.cache import load
from rankscope.compare.comparison import Comparison, Stage
from rankscope.compare.metric_table import STORED
from rankscope.compare.picks import Picks, picks_of
from rankscope.errors import ReportError
from rankscope.match.selection import IterRange, as_range, choose_clock
from rankscope.model.kinds import PARTS
from rankscope.model.metrics import check_metrics
from rankscope.model.options import Options, ShapingOptions
from rankscope.model.reports import RunWarning
from rankscope.model.results import Imbalance, Timeline
from rankscope.output.plots import view_of
from rankscope.store import Database, DatabaseReader
from rankscope.store.connection import AFTERWARDS_S, PATIENCE_S
from rankscope.store.run_reader import opened
from rankscope.store.tables import RunTables
from rankscope.util import inline
from rankscope.util.atomic_io import DEFAULT_DB, check_writable
from rankscope.util.wording import counted, percent, span

if TYPE_CHECKING:
    from rankscope.compare.next_capture import NextCapture
    from rankscope.history.diff.compare import RunDiff
    from rankscope.ingestion.job import Ingested, Progress, Started
    from rankscope.output.html.run_page import Page
    from rankscope.output.plots import Picture

__all__ = ["AnalysisOptions", "Run", "diff", "diff_of", "ingest", "open_run", "picks_of", "view_of"]

CHANGES = ("iteration", "work", *PARTS, "wait", "time_to_all_reduce")
"""The metrics that `diff` compares."""

ON_ANY_CLOCK = ("iteration", "load")
"""Those of them that mean the same on either clock."""

LEAST_COVERED = 0.1
"""Least share of the capture, from the first iteration on, that iterations cover without a
warning."""


class AnalysisOptions(TypedDict, total=False):
    """How to compare the ranks of a run; the defaults are those of the command line.

    Attributes:
        iter_range: range of iteration numbers: slice(10, 50), (10, 50) or "10:50", which is 10 to
            49; negative ones count from the end.
        clock: `gpu`, `host`, or `auto`, which takes gpu if all ranks have device work.
        statistic: how a rank's iterations become its score: `mean`, `median` or `p95`.
        include_warmup: compare the iterations of the warm-up as well.
        roles: which ranks do the same work, like `tp=2,pp=4`, or a CSV file with rank,role.
    """

    iter_range: IterRange
    clock: str
    statistic: str
    include_warmup: bool
    roles: str | None


def options_of(options: AnalysisOptions) -> Options:
    """The options of a comparison; those that are left out have their defaults.

    Raises:
        UsageError: an invalid range.
    """
    others: dict[str, Any] = {**options}
    selected = others.pop("iter_range", None)
    return Options(as_range(selected), **others)


class Run:
    """A profiled run: all its ranks, ready to be compared."""

    def __init__(
        self,
        db: Path,
        tables: RunTables,
        cached: Comparison | None = None,
        label: str | None = None,
    ) -> None:
        """A run of a database.

        Args:
            cached: the comparison with the default options, if the database holds it.
            label: the label that `ingest` was given, for example a commit.
        """
        self.label = label
        self.db = db
        self.tables = tables
        self.ingested: Ingested | None = None  # by the ingest that made this run
        self._cached = cached

    def __repr__(self) -> str:
        ranks = self.tables.ranks["rank"].sort().to_list()
        return (
            f"<Run {self.tables.name}: {counted(len(ranks), 'rank')} ({span(ranks)}) in {self.db}>"
        )

    def _repr_html_(self) -> str:
        """The run and its verdict as a notebook shows them."""
        verdict = self.compare(until=Stage.VERDICT).verdict
        return inline.paragraphs(repr(self)[1:-1]) + verdict._repr_html_()

    def compare(
        self, options: Options | None = None, *, until: Stage = Stage.WHAT_IF
    ) -> Comparison:
        """The comparison of the ranks, with results that this class does not offer itself.

        Args:
            options: how to compare; None: the defaults of the command line.
            until: the last stage that is needed.
        """
        options = options or Options()
        if self._cached is not None and options == self._cached.options:
            return self._cached
        from rankscope.compare.stages import compare

        with self.tables.kept_open():
            return compare(self.tables, options, self._cached, until)

    def iterations(self, **options: Unpack[AnalysisOptions]) -> pl.DataFrame:
        """A row per rank and complete iteration.

        Columns: rank, iteration (the number), epoch, number, `<metric>_ns` for every metric
        (int64, null is unknown; the window's length is `iteration_ns`), flagged (null where it
        is unknown, as in warm-up), cause, selected (whether it is among the compared ones, from
        which scores are made).
        """
        return self.compare(options_of(options), until=Stage.OUTLIERS).rank_iterations()

    def imbalance(
        self, metrics: list[str] | None = None, **options: Unpack[AnalysisOptions]
    ) -> Imbalance:
        """Who is slow, in what, when, and what it costs.

        Args:
            metrics: names; None for all.

        Raises:
            UsageError: an unknown metric or an iteration range that selects nothing.
        """
        names = check_metrics(metrics or []) or None
        with self.tables.kept_open():
            return self.compare(options_of(options)).imbalance(names)

    def pick_reports(
        self,
        metric: str | None = None,
        *,
        ranks: Container[int] | None = None,
        **options: Unpack[AnalysisOptions],
    ) -> Picks:
        """The min / median / max reports to open side by side, and where to look in them.

        Args:
            metric: name; default: the first of `DEFAULT_METRICS` that is known.
            ranks: pick from these; default: all.
        """
        return picks_of(self.compare(options_of(options), until=Stage.VERDICT), metric, ranks)

    def next_capture(self) -> NextCapture:
        """The smallest capture that would settle what this run left open.

        Raises:
            UsageError: nothing stayed open, few ranks would not settle it, or nsys did not record
                the run.
        """
        from rankscope.compare.next_capture import next_capture

        comparison = self.compare()
        return next_capture(comparison, picks_of(comparison, None))

    def timeline(
        self,
        ranks: Sequence[int] | None = None,
        iterations: Sequence[int] | None = None,
        metric: str | None = None,
        **options: Unpack[AnalysisOptions],
    ) -> Timeline:
        """Ranks in some iterations in detail, on one aligned clock; their reports are read again.

        Args:
            ranks: ranks of the run, in the order to show them; default: the picks.
            iterations: iteration numbers; default: those around the worst and the typical one.

        Raises:
            ReportError: a report is gone, or has changed since it was ingested.
        """
        from rankscope.compare.timeline import timeline

        chosen = options_of(options)
        if ranks is not None and iterations is not None:
            matched = self.compare(chosen, until=Stage.MATCH)
            return timeline(matched, ranks, iterations, states=True)
        comparison = self.compare(chosen, until=Stage.VERDICT)
        picks = picks_of(comparison, metric)
        ranks = [each.rank for each in picks.picks] if ranks is None else ranks
        if iterations is None:
            iterations = picks.nearby(comparison.selection.numbers)
        return timeline(comparison, ranks, iterations, states=True)

    def plot(
        self,
        kind: str,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        iteration: int | None = None,
        ranks: Sequence[int] | None = None,
        theme: str = "light",
        **options: Unpack[AnalysisOptions],
    ) -> Picture:
        """A picture of the run, which a notebook shows.

        Args:
            kind: heatmap, phases, timeline, arrivals or why.
            path: the file to write; its ending says which format: PNG, SVG or PDF.
            metric: that of a heat map (default work), or the one by which ranks are picked.
            iteration: that of a timeline or of `why`; default the worst one.
            ranks: the ranks to show; default: all, or the picked ones in a timeline.
            theme: light or dark.

        Raises:
            UsageError: an unknown kind, metric, rank, theme or ending, or nothing to draw.
        """
        from rankscope.output.plots import Picture, draw, format_of

        target = None if path is None else Path(path)
        if target is not None:
            format_of(target)
            check_writable(target)
        comparison = self.compare(options_of(options), until=Stage.VERDICT)
        view = view_of(kind, comparison, metric, iteration, theme, ranks)
        picture = Picture(draw(kind, comparison, view), theme)
        return picture if target is None else picture.save(target)

    def report(self, path: str | Path | None = None, **options: Unpack[AnalysisOptions]) -> Page:
        """One self-contained page with everything, which a notebook shows."""
        from rankscope.output.html.run_page import make_page

        if path is not None:
            check_writable(Path(path))
        comparison = self.compare(options_of(options))
        picks = picks_of(comparison, None)
        page = make_page(comparison, picks, self.db, Path(path or "report.html"))
        return page if path is None else page.save(Path(path))

    def sql(self, query: str) -> pl.DataFrame:
        """The result of a query on the database, which is opened read-only for it."""
        with Database.open(self.db) as database:
            return database.query(query)


def ingest(
    paths: Iterable[str | Path],
    db: str | Path = DEFAULT_DB,
    *,
    iteration: str | None = None,
    phases: dict[str, str] | None = None,
    collectives: dict[str, str] | None = None,
    rank_pattern: str | None = None,
    rank: int | None = None,
    jobs: int | None = None,
    scheduler: str | Path | None = None,
    on_error: str = "fail",
    rebuild: bool = False,
    ranks: Container[int] | None = None,
    run: int | None = None,
    label: str | None = None,
    started: Started | None = None,
    progress: Progress | None = None,
) -> Run:
    """Read reports into a run's database, and open it.

    A report that the database contains already, unchanged and read with the same options, is not
    read again. Nothing is ever removed; if a report cannot be read, its earlier rows remain.

    Args:
        paths: files, folders (searched recursively), globs.
        db: the DuckDB file; created if it does not exist.
        iteration: pattern of the names of iteration ranges, `auto` (steps are found from what
            repeats) or `whole` (each capture is one iteration). Default: the known names, else
            `auto` if it is certain on every rank, else `whole`; a warning says which one was used.
        phases: phase → pattern of the names of its ranges.
        collectives: operation (`all_reduce`, say) → pattern of the names of its kernels.
        rank_pattern: pattern on the report's path, with a group `rank`; or with groups `rank1`,
            `rank2`, …; `rank1` counts slowest.
        jobs: worker processes; default: the cores this process may use.
        scheduler: address or scheduler file of a Dask cluster that reads the reports instead of
            local processes; its workers must see the same files.
        on_error: `fail`, or `skip` to leave bad reports out and list them.
        rebuild: replace the database; the old one remains until the new one is complete.
        ranks: only these ranks; the reports of others are neither exported nor read.
        run: the number of the run, if the reports are of several runs; the error lists them.
        label: what the run is, for example a commit; `diff` names it.
        started: called with the reports that will be read.
        progress: called after each of them.

    Raises:
        ReportError, UsageError, DatabaseError, ToolError: with the file or option, and what to
            do.
    """
    from rankscope.ingestion.job import ingest_reports

    ingested = ingest_reports(
        paths,
        db,
        ShapingOptions.of(iteration, phases, rank_pattern, rank, collectives),
        jobs=jobs,
        scheduler=scheduler,
        on_error=on_error,
        rebuild=rebuild,
        ranks=ranks,
        run=run,
        label=label,
        started=started,
        progress=progress,
    )
    stored = open_run(db, patience_s=AFTERWARDS_S)
    stored.ingested = ingested
    return stored


def open_run(db: str | Path = DEFAULT_DB, *, patience_s: float = PATIENCE_S) -> Run:
    """The run that a database holds.

    Args:
        db: the DuckDB file.
        patience_s: how long to wait while another process writes to it.

    Raises:
        DatabaseError: missing, locked, damaged, or of another version.
    """
    with reading(db, patience_s=patience_s) as run:
        return run


@contextmanager
def reading(db: str | Path, *, patience_s: float = PATIENCE_S) -> Iterator[Run]:
    """As `open_run`; within it, the database stays open.

    All answers then come from one state of the database. Another process that adds to it waits
    meanwhile, and one that rebuilds it puts another file in its place.
    """
    path = Path(db)
    with opened(path, patience_s) as (database, state):
        reader = DatabaseReader.of(database, state)
        tables = RunTables(database.name, reader)
        if tables.ranks.is_empty():
            raise ReportError(f"{path}: holds no ranks", hint="rankscope ingest PROFILES")
        with reader.held(database):
            cached = load(tables, database.comparison_table)
            if cached is not None:
                reader.expect(database, STORED)
            yield Run(path, tables, cached, label=database.meta().get("label"))


def diff_of(
    before: Sequence[Run],
    after: Run,
    options: Options,
    metrics: list[str] | None = None,
    until: Stage = Stage.TABLE,
) -> tuple[RunDiff, Comparison, Comparison]:
    """The changes from one or several runs to another, and the comparisons of two of them.

    Args:
        before: the one run, or those of a baseline.
        metrics: names; None for iteration, work, phases and waits.
        until: the last stage that is needed of the comparisons.

    Returns:
        The changes; the comparison of the latest run before; that of the run after, each on its
        own clock. Where the clocks differ, the changes are on the host clock.
    """
    from rankscope.history.diff.compare import diff_runs
    from rankscope.history.diff.same_job import differences

    before = sorted(before, key=_start)
    clocks = [choose_clock(run.tables, options.clock)[0] for run in (*before, after)]
    old = [run.compare(options, until=until) for run in before]
    new = after.compare(options, until=until)
    timed, names = [*old, new], [*(metrics or CHANGES)]
    if len({*clocks}) > 1:
        on_host = replace(options, clock="host")
        timed = [run.compare(on_host, until=Stage.TABLE) for run in (*before, after)]
        names = [*(metrics or ON_ANY_CLOCK)]
    *rows, last = (each.rows() for each in timed)
    signs = differences(old[-1].tables, new.tables, rows[-1], last)
    result = diff_runs(rows, last, names, options.statistic, signs)
    problems = (*result.problems, *_clock_problem(clocks), *_coverage_problems(timed))
    result = replace(result, clock=timed[-1].clock, problems=problems)
    if len(before) > 1:
        first, latest = (run.label or run.db.name for run in (before[0], before[-1]))
        result = replace(
            result,
            sentence=f"{result.sentence} Baseline: {counted(len(before), 'run')}, {first} to "
            f"{latest}.",
            baseline=tuple((run.db, run.label) for run in before),
        )
    return result, old[-1], new


def _clock_problem(clocks: list[str]) -> Iterator[RunWarning]:
    """A warning where runs are on different clocks."""
    if len({*clocks}) > 1:
        yield RunWarning(
            "clocks-differ",
            f"before is on the {clocks[-2]} clock, after on the {clocks[-1]} clock: the host "
            f"clock is taken, on which only {' and '.join(ON_ANY_CLOCK)} mean the same in both; "
            "record the device in both runs, or neither",
        )


def _coverage_problems(timed: list[Comparison]) -> Iterator[RunWarning]:
    """Warnings about runs whose iterations end long before the capture does.

    The time before the first iteration is the start of the job, which every capture has.
    """
    for name, comparison in (("before", timed[-2]), ("after", timed[-1])):
        ends = comparison.tables.ranks.select("rank", "path").join(
            comparison.tables.reports.select("path", "duration_ns"), on="path"
        )
        covered = (
            comparison.tables.read("iterations")
            .group_by("rank")
            .agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max())
        )
        since = pl.col("duration_ns") - pl.col("first")
        shares = ends.join(covered, on="rank").select((pl.col("last") - pl.col("first")) / since)
        share = shares.to_series().median()
        if isinstance(share, float) and share < LEAST_COVERED:
            yield RunWarning(
                "iterations-cover-little",
                f"the iterations of the run {name} cover {percent(share)} of its capture from the "
                "first of them on; the rest is in no number",
            )


def _start(run: Run) -> int:
    """The start of a run, UTC in ns; 0 if unknown."""
    start = run.tables.reports["utc_start_ns"].min()
    return start if isinstance(start, int) else 0


def diff(
    before: str | Path | Sequence[str | Path],
    after: str | Path,
    metrics: list[str] | None = None,
    **options: Unpack[AnalysisOptions],
) -> RunDiff:
    """Which ranks and phases got better or worse from one database to the other, beyond noise.

    Args:
        before: the database of the one run; or those of at least three runs, whose mean is
            compared, and whose differences are the noise.
        after: the database of the other run.
        metrics: names; None for iteration, work, phases and waits.
        options: how to compare the ranks of each.

    Raises:
        UsageError: an unknown metric, or a baseline of two runs.
    """
    names = check_metrics(metrics or []) or None
    earlier = [before] if isinstance(before, str | Path) else before
    with ExitStack() as held:
        *runs, last = (held.enter_context(reading(db)) for db in (*earlier, after))
        return diff_of(runs, last, options_of(options), names)[0]
