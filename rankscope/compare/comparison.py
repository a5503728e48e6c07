"""The comparison of a run's ranks: the result of `stages.compare`."""

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

import polars as pl
from msgspec import Struct

from rankscope.compare import scores
from rankscope.compare.iteration_clusters import by_iteration
from rankscope.compare.metric_table import (
    NUMBERING,
    WHO,
    role_of,
    stored_rows,
    without_end,
)
from rankscope.compare.run_facts import facts_of, stored_warnings, warnings_of
from rankscope.errors import UsageError
from rankscope.judge.claims import Story
from rankscope.match.records import Matching, Roles, Scope, Selection
from rankscope.match.selection import common_iterations
from rankscope.model.metrics import METRICS, column_of, columns_of
from rankscope.model.options import WHOLE, Options
from rankscope.model.reports import ENDS_ALONE, TIMES_UNSURE, RunWarning
from rankscope.model.results import Efficiency, Imbalance, MetricSummary, RunFacts, Verdict
from rankscope.store.tables import RunTables
from rankscope.util import inline
from rankscope.util.rank_list import few
from rankscope.util.wording import counted, ranks_text

if TYPE_CHECKING:
    from rankscope.match.communication import RunCalls
    from rankscope.match.waits import WaitedCollectives

UNFLAGGED = {"flagged": pl.lit(None, pl.Boolean), "cause": pl.lit(None, pl.String)}
"""The columns of a run whose ranks cannot be judged."""

Result = TypeVar("Result")


class Stage(IntEnum):
    """How far a comparison goes; each stage includes those above it."""

    MATCH = 1
    """Clock, iterations, collectives, roles: the facts and the warnings."""
    TABLE = 2
    """Every metric of every rank and iteration."""
    OUTLIERS = 3
    """The ranks and iterations that stand out."""
    VERDICT = 4
    """The score of each rank, and the verdict."""
    SUMMARY = 5
    """The metrics across ranks, the iterations, the efficiency."""
    WHAT_IF = 6
    """What a fix would save."""


class Outliers(Struct, frozen=True, eq=False):
    """Who stands out in which iteration.

    `metric`: the metric that was judged: work, or load if waits hide in the later phases; None if
    neither is known. `frame`: the columns of `flags.flagged`; None without a metric, or if the
    flags are `stored` in the table `rank_iterations`. `story`: what is true of the whole run; None
    without a metric.
    """

    metric: str | None
    frame: pl.DataFrame | None
    story: Story | None
    stored: bool = False


class Summary(Struct, frozen=True, eq=False):
    """The results over the selected iterations.

    `metrics`: name → summary. `by_iteration`: the columns of `iteration_clusters.by_iteration`.
    `what_if`: those of `scenarios.scenarios`; None where the run cannot be replayed, or the
    comparison ended before that stage.
    """

    metrics: dict[str, MetricSummary]
    efficiency: Efficiency | None
    by_iteration: pl.DataFrame
    what_if: pl.DataFrame | None


class Comparison(Struct, frozen=True, eq=False):
    """The ranks of a run, compared with certain options.

    It can be pickled: the tables then refer to the database, which must not change until they are
    read. `table` is the metric table; None if its rows are those that the database stores.
    `began` is `run_facts.began_apart`.

    A comparison that ended before a stage has None in the private field of that stage; the
    property of the same name raises LookupError.
    """

    scope: Scope
    matching: Matching
    roles: Roles
    began: RunWarning | None
    table: pl.DataFrame | None = None
    _waits: pl.DataFrame | None = None
    _waits_of_all: pl.DataFrame | None = None
    _outliers: Outliers | None = None
    _scores: pl.DataFrame | None = None
    _verdict: Verdict | None = None
    _summary: Summary | None = None

    def __repr__(self) -> str:
        verdict = "" if self._verdict is None else f", {self._verdict.kind}"
        iterations = len(self.selection.numbers) if self.comparable else 0
        return (
            f"<Comparison of {counted(self.tables.ranks.height, 'rank')}, "
            f"{counted(iterations, 'iteration')}, {self.clock} clock{verdict}>"
        )

    def _repr_html_(self) -> str:
        """The comparison as a notebook shows it."""
        return inline.paragraphs(repr(self)[1:-1]) + (
            "" if self._verdict is None else self._verdict._repr_html_()
        )

    @property
    def tables(self) -> RunTables:
        """The tables of the run; an iteration number is the same step on every rank."""
        return self.scope.tables

    @property
    def options(self) -> Options:
        """How the run was compared."""
        return self.scope.options

    @property
    def clock(self) -> str:
        """The clock that all times are on: gpu or host."""
        return self.scope.clock

    @property
    def of_captures(self) -> bool:
        """Whether each capture is one iteration."""
        return self.tables.ranks["convention"].eq(WHOLE).all()

    @property
    def ends_alone(self) -> bool:
        """Whether only the ends of iterations are recorded."""
        return self._noted(ENDS_ALONE)

    @property
    def times_unsure(self) -> bool:
        """Whether times of a device are not exact."""
        return self._noted(TIMES_UNSURE)

    def _noted(self, code: str) -> bool:
        """Whether a report has a warning."""
        return any(each.code == code for each in stored_warnings(self.tables))

    @property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the job without a report."""
        return self.scope.missing_ranks

    @property
    def comparable(self) -> bool:
        """Whether some iterations can be compared."""
        return self.scope.comparable

    @property
    def selection(self) -> Selection:
        """The selected iterations.

        Raises:
            UsageError, ReportError: none can be compared.
        """
        return self.scope.selection

    @property
    def facts(self) -> RunFacts:
        """The facts that qualify every number.

        Raises:
            UsageError, ReportError: no iterations can be compared.
        """
        return facts_of(self.scope, self.matching.clocks, self.roles.source)

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """The warnings about the numbers."""
        stored = stored_warnings(self.tables)
        choice = self.scope.choice
        if not isinstance(choice, Selection):
            return (*stored, RunWarning("nothing-to-compare", choice.message))
        of_matching = warnings_of(self.scope, self.matching, self.roles, self.began)
        return (*of_matching, *self.scope.shift_warnings, *stored, *choice.problems)

    @property
    def outliers(self) -> Outliers:
        """Who stands out in which iteration; `flags` gives the rows."""
        return _computed(self._outliers, Stage.OUTLIERS)

    @property
    def scores(self) -> pl.DataFrame:
        """rank and `<metric>_ns`: the score of each rank, null where it mostly lacks the metric."""
        return _computed(self._scores, Stage.VERDICT)

    @property
    def verdict(self) -> Verdict:
        """Who is slow, or why that cannot be said."""
        return _computed(self._verdict, Stage.VERDICT)

    @property
    def summary(self) -> Summary:
        """The results over the selected iterations."""
        return _computed(self._summary, Stage.SUMMARY)

    def rows(
        self,
        metrics: Sequence[str] | None = None,
        ranks: Collection[int] | None = None,
        *,
        all_iterations: bool = False,
        flags: bool = False,
    ) -> pl.DataFrame:
        """Rows of the metric table, in the selected iterations.

        Args:
            metrics: names; None: all, and how the reports number the iterations.
            ranks: only rows of these; None: of all.
            all_iterations: rows of every complete iteration, selected or not.
            flags: whether each row stands out, and its cause; null where nothing is judged.

        Returns:
            rank, iteration, [epoch, number,] host, role, `<metric>_ns` [, flagged, cause].
        """
        lead = NUMBERING if metrics is None else ()
        names = columns_of(METRICS if metrics is None else metrics)
        several = self.tables.ranks.height > 1
        in_store = flags and several and self.table is None and self.outliers.stored
        stored = ("flagged", "cause") if in_store else ()
        order = ["rank", "iteration", *lead, *WHO, *names, *stored]
        if self.table is None:
            columns = [*lead, *names, *stored]
            limits = None if all_iterations else self.scope.in_range
            frame = stored_rows(self.tables, self.roles, columns, ranks, limits).select(order)
        else:
            frame = self.table.select(order)
            frame = frame if ranks is None else frame.filter(pl.col("rank").is_in(ranks))
        if not all_iterations:
            frame = frame.filter(pl.col("iteration").is_in(self.selection.numbers))
        if not flags or stored:
            return frame
        marked = self.flags() if several else None
        if marked is None:
            return frame.with_columns(**UNFLAGGED)
        from rankscope.model.arrays import looked_up

        return looked_up(frame, marked.select("rank", "iteration", "flagged", "cause"))

    def flags(self) -> pl.DataFrame | None:
        """The columns of `flags.flagged` in the selected iterations; None if nothing is judged."""
        outliers = self.outliers
        if outliers.story is None or outliers.metric is None or not outliers.stored:
            return outliers.frame
        from rankscope.judge.excess import excess_of
        from rankscope.judge.flags import flagged

        rows = without_end(self.tables, self.clock, self.rows())
        return flagged(excess_of(rows, outliers.metric), outliers.story)

    def rank_iterations(self) -> pl.DataFrame:
        """The table `rank_iterations`: every metric, flagged, cause and selected, without host
        and role."""
        numbers = self.selection.numbers if self.comparable else []
        return (
            self.rows(all_iterations=True, flags=True)
            .drop(WHO)
            .with_columns(selected=pl.col("iteration").is_in(numbers))
        )

    def check_ranks(self, ranks: Sequence[int]) -> None:
        """Raises `UsageError` if the run lacks one of these ranks."""
        present = self.tables.ranks["rank"].sort().to_list()
        if absent := sorted({*few(ranks, "rank")} - {*present}):
            raise UsageError(
                f"rank {absent[0]} is not in this run", hint=f"it holds {ranks_text(present)}"
            )

    def knows(self, metric: str) -> bool:
        """Whether a metric is known anywhere in the selected iterations."""
        column = column_of(metric)
        if self._scores is not None and self._scores[column].is_not_null().any():
            return True
        return bool(self.rows([metric])[column].is_not_null().any())

    def collectives(self, iterations: Collection[int]) -> "WaitedCollectives":
        """The matched collectives of some iterations, or of more; they are matched again."""
        common = {*common_iterations(self.tables.iterations)}
        numbers = tuple(number for number in iterations if number in common)
        with self.tables.kept_open():
            return calls_again(self, numbers or None).waited

    def waits(self) -> pl.DataFrame:
        """`Waits.by_rank` in the selected iterations."""
        if self._waits is not None:
            return self._waits
        from rankscope.match.communication import waits_of

        iterations = self.scope.in_range if self.comparable else None
        return waits_of(self.scope, calls_again(self, iterations)).by_rank

    def waits_of_all(self) -> pl.DataFrame:
        """`Waits.by_rank_of_all`.

        Raises:
            LookupError: the comparison ended before its table was computed.
        """
        return _computed(self._waits_of_all, Stage.TABLE)

    def imbalance(self, metrics: list[str] | None = None) -> Imbalance:
        """Metrics across ranks, ranks, iterations, verdict and what-if: what `imbalance` shows.

        Args:
            metrics: names; None: all. The first of them is that of the iterations; default work.
        """
        names = metrics or list(METRICS)
        summary, groups = self.summary, self.matching.groups
        first = metrics[0] if metrics else "work"
        iterations = summary.by_iteration
        if first != "work":
            numbers = self.selection.numbers
            iterations = by_iteration(self.rows(), self.flags(), numbers, first)
        ranks = self.tables.ranks.select("rank", "host", role=role_of(self.roles), report="path")
        scored = ranks.join(self.scores.select("rank", *columns_of(names)), on="rank")
        waits = scores.UNKNOWN_WAITS
        if not self.missing_ranks and self.outliers.metric == "work":
            waits = self.waits()
        elif not self.missing_ranks and self.outliers.metric is None:
            # costs are unknown without exposed waits; the calls still tell who comes last
            costs = (pl.lit(None, pl.Int64).alias(name) for name in ("cost_ns", "gain_ns"))
            waits = self.waits().with_columns(costs)
        return Imbalance(
            metrics=tuple(summary.metrics[name] for name in names),
            ranks=scores.by_rank(scored, waits, names),
            iterations=iterations,
            verdict=self.verdict,
            statistic=self.options.statistic,
            wait_error_ns=self.matching.wait_error_ns,
            efficiency=summary.efficiency,
            what_if=summary.what_if,
            chained=bool((groups["members"] < self.tables.ranks.height).any()),
        )


def calls_again(comparison: Comparison, iterations: tuple[int, ...] | None = None) -> "RunCalls":
    """The calls of some iterations, or of all that are complete on every rank, matched again."""
    from rankscope.match.communication import match_again

    links = comparison.roles.links
    return match_again(comparison.scope, comparison.matching, links, iterations)


def _computed(result: Result | None, stage: Stage) -> Result:
    """The result of a stage.

    Raises:
        LookupError: the comparison ended before it.
    """
    if result is None:
        raise LookupError(f"not computed: compare(…, until=Stage.{stage.name}) computes it")
    return result
