"""The public interface: ingest reports, open a run, ask it, compare two of them."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from rankscope.compare.cache import Kept, Recalled, kept
from rankscope.compare.comparison import Analysis
from rankscope.compare.diff.compare import RunDiff, diff_runs
from rankscope.compare.diff.same_job import differences
from rankscope.compare.picks import Picks, pick
from rankscope.compare.run_facts import identities_of
from rankscope.errors import DatabaseError, ReportError, UsageError
from rankscope.ingestion.job import Ingested, Progress, Started, ingest_reports
from rankscope.model.metrics import check_metrics, column_of
from rankscope.model.options import Options
from rankscope.model.results import Imbalance, Timeline
from rankscope.model.schema import PARTS
from rankscope.output.plots import PICKING, PlotOptions, draw, format_of, save
from rankscope.store import Database
from rankscope.store.tables import RunTables
from rankscope.util.atomic_io import DEFAULT_DB, check_writable

DEFAULT_METRICS = ("time_to_all_reduce", "work", "load")
"""What reports are picked by: the first of these that is known."""


class Run:
    """A profiled run: all its ranks, ready to be compared."""

    def __init__(
        self,
        db: Path,
        frames: RunTables,
        ingested: Ingested | None = None,
        known: Kept | None = None,
    ) -> None:
        self.db = db
        self.ingested = ingested
        self._frames = frames
        self._known = known

    def analysis(self, options: Options | None = None) -> Analysis:
        """One way of looking at the run, for everything that is not offered here."""
        if self._known is None:
            return Analysis(self._frames, options or Options())
        return Recalled(self._frames, options or Options(), self._known)

    def iterations(self, **options: object) -> pl.DataFrame:
        """A row per rank and complete iteration.

        Columns: rank, iteration (the number), epoch, number, `<metric>_ns` for every metric
        (int64, null is unknown; the window's length is `iteration_ns`), flagged (null where it
        cannot be told, as in warm-up), cause.

        Args:
            options: fields of `Options`.
        """
        return self.analysis(_options(options)).rank_iterations()

    def imbalance(self, metrics: list[str] | None = None, **options: object) -> Imbalance:
        """Who is slow, in what, when, and what it costs.

        Args:
            metrics: names; None for all.
            options: fields of `Options`: iter_range (slice), clock, statistic, include_warmup.

        Raises:
            UsageError: an unknown metric or an iteration range that selects nothing.
        """
        return self.analysis(_options(options)).imbalance(check_metrics(metrics or []) or None)

    def pick_reports(self, metric: str | None = None, **options: object) -> Picks:
        """The min / median / max reports to open side by side, and where to look in them.

        Args:
            metric: name; default `time_to_all_reduce`, or `work` where there is none.
            options: fields of `Options`.
        """
        return picks_of(self.analysis(_options(options)), metric)

    def timeline(
        self,
        ranks: Sequence[int] | None = None,
        iterations: Sequence[int] | None = None,
        metric: str | None = None,
        **options: object,
    ) -> Timeline:
        """Ranks in some iterations in detail, on one aligned clock; their reports are read again.

        Args:
            ranks: ranks of the run, in the order to show them; default: the picks.
            iterations: iteration numbers; default: those around the worst and the typical one.
            metric: what to pick by.
            options: fields of `Options`.

        Raises:
            ReportError: a report is gone, or has changed since it was ingested.
        """
        from rankscope.compare.timeline import timeline

        analysis = self.analysis(_options(options))
        if ranks is None or iterations is None:
            picks = picks_of(analysis, metric)
            ranks = [each.rank for each in picks.picks] if ranks is None else ranks
            if iterations is None:
                iterations = picks.moments(analysis.selection.numbers)
        return timeline(analysis, ranks, iterations)

    def plot(
        self,
        kind: str,
        path: str | Path | None = None,
        *,
        metric: str | None = None,
        iteration: int | None = None,
        theme: str = "light",
        **options: object,
    ) -> Path:
        """A picture of the run, as PNG, SVG or PDF, and where it was written.

        Args:
            kind: heatmap, phases, timeline or arrivals.
            path: its ending says which format; default `<kind>.png`.
            metric: what a heat map shows (default work), and what ranks are picked by.
            iteration: that of a timeline; default the worst of the picked ranks.
            theme: light or dark.
            options: fields of `Options`.

        Raises:
            UsageError: an unknown kind, metric, theme or ending, or nothing to draw.
        """
        target = Path(f"{kind}.png" if path is None else path)
        format_of(target)
        check_writable(target)
        analysis = self.analysis(_options(options))
        figure = draw(kind, analysis, view_of(kind, analysis, metric, iteration, theme))
        save(figure, target, theme)
        return target

    def sql(self, query: str) -> pl.DataFrame:
        """The result of a query on the database, which is opened read-only for it."""
        with Database.open(self.db) as database:
            return database.query(query)


def picks_of(analysis: Analysis, metric: str | None) -> Picks:
    """The picks of one way of looking at a run."""
    if metric is not None:
        check_metrics([metric])
    else:
        ranked = analysis.scores([*DEFAULT_METRICS])
        metric = next(
            (name for name in DEFAULT_METRICS if ranked[column_of(name)].is_not_null().any()),
            "iteration",
        )
    return pick(
        analysis.scores([metric]),
        lambda ranks: analysis.part([metric], ranks),
        lambda ranks: analysis.frames.some("iterations", ranks=ranks),
        identities_of(analysis.frames.ranks),
        analysis.utc_starts,
        metric,
        analysis.verdict.ranks,
    )


CHANGES = ("iteration", "work", *PARTS, "wait", "time_to_all_reduce")
"""What `diff` compares."""


def diff_of(
    before: Run, after: Run, options: Options, metrics: list[str] | None = None
) -> tuple[RunDiff, Analysis, Analysis]:
    """What changed between two runs, and the ways of looking at them, on the same clock."""
    analyses = [run.analysis(options) for run in (before, after)]
    if len({analysis.clock[0] for analysis in analyses}) > 1:
        analyses = [run.analysis(replace(options, clock="host")) for run in (before, after)]
    old, new = analyses
    signs = differences(old.frames, new.frames, old.chosen, new.chosen)
    names = list(metrics or CHANGES)
    return diff_runs(old.chosen, new.chosen, names, options.statistic, signs), old, new


def diff(
    before: str | Path, after: str | Path, metrics: list[str] | None = None, **options: object
) -> RunDiff:
    """Which ranks and phases got better or worse from one database to the other, beyond noise.

    Args:
        before: database of the one run.
        after: that of the other.
        metrics: names; None for iteration, work, phases and waits.
        options: fields of `Options`.
    """
    names = check_metrics(metrics or []) or None
    return diff_of(open_run(before), open_run(after), _options(options), names)[0]


def view_of(
    kind: str,
    analysis: Analysis,
    metric: str | None,
    iteration: int | None = None,
    theme: str = "light",
) -> PlotOptions:
    """What pictures show unless told otherwise: the picked ranks, in their worst iteration."""
    if kind not in PICKING:
        check_metrics([] if metric is None else [metric])
        return PlotOptions(metric=metric, theme=theme)
    picks = picks_of(analysis, metric).picks
    return PlotOptions(
        metric=metric,
        iteration=picks[0].worst.iteration if iteration is None else iteration,
        ranks=tuple((pick.rank, pick.label) for pick in picks),
        theme=theme,
    )


def ingest(
    paths: Iterable[str | Path],
    db: str | Path = DEFAULT_DB,
    *,
    iteration: str | None = None,
    phases: dict[str, str] | None = None,
    rank_pattern: str | None = None,
    jobs: int | None = None,
    scheduler: str | Path | None = None,
    on_error: str = "fail",
    rebuild: bool = False,
    ranks: Container[int] | None = None,
    started: Started | None = None,
    progress: Progress | None = None,
) -> Run:
    """Read reports into a run's database, and open it.

    A report that is in there already, unchanged and shaped by the same options, is not read
    again. Nothing is ever removed; a report that fails leaves what was there before.

    Args:
        paths: files, folders (searched recursively), globs.
        db: the DuckDB file, made where there is none.
        iteration: pattern of the names of iteration ranges, `auto` (steps are found from what
            repeats) or `whole` (each capture is one iteration).
        phases: phase → pattern of the names of its ranges.
        rank_pattern: pattern on the report's path, with a group `rank`.
        jobs: worker processes; default: the cores this process may use.
        scheduler: address or scheduler file of a Dask cluster whose workers see the same files;
            it reads the reports instead.
        on_error: `fail`, or `skip` to leave bad reports out and list them.
        rebuild: start the database over; the old one stays until the new one is done.
        ranks: only these ranks; the reports of others are neither exported nor read.
        started: called with the reports that will be read.
        progress: called after each of them.

    Raises:
        ReportError, UsageError, DatabaseError, ToolError: with the file or option, and what to
            do.
    """
    ingested = ingest_reports(
        paths,
        db,
        iteration=iteration,
        phases=phases,
        rank_pattern=rank_pattern,
        jobs=jobs,
        scheduler=scheduler,
        on_error=on_error,
        rebuild=rebuild,
        ranks=ranks,
        started=started,
        progress=progress,
    )
    run = open_run(db)
    run.ingested = ingested
    return run


def open_run(db: str | Path = DEFAULT_DB) -> Run:
    """The run that a database holds.

    Raises:
        DatabaseError: missing, locked, damaged, or of another version.
    """
    path = Path(db)
    state = Database.state(path)
    with Database.open(path) as database:
        name, known = database.name, kept(database.derived)
        small = {table: database.table(table) for table in ("reports", "ranks", "problems")}
    if small["ranks"].is_empty():
        raise ReportError(f"{path}: holds no ranks", hint="rankscope ingest PROFILES")

    def source(
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        if table in small:
            return small[table]
        with Database.open(path) as database:
            if Database.state(path) != state:
                raise DatabaseError(
                    f"{path}: has changed since it was opened", hint="open it again"
                )
            return database.some(table, columns, ranks, iterations, narrow)

    return Run(path, RunTables(name, source), known=known)


def _options(given: dict[str, object]) -> Options:
    try:
        return Options(**given)  # type: ignore[arg-type]
    except TypeError as error:
        raise UsageError(str(error), hint="options are the fields of rankscope.Options") from error
