"""A stored run, compared across its ranks: everything the commands ask for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import cached_property

import polars as pl

from rankscope.align.iteration_matching import pair_iterations, renumbered
from rankscope.align.match import Matched, MatchSummary
from rankscope.compare import scores as compare_scores
from rankscope.compare.causes.registry import tables_of
from rankscope.compare.communication import Communication
from rankscope.compare.iteration_clusters import by_iteration
from rankscope.compare.metric_table import wide_of
from rankscope.compare.roles import Roles, given_roles, inferred_roles
from rankscope.compare.run_facts import facts_of, stored_warnings, warnings_of
from rankscope.compare.selection import Selection, choose_clock, select
from rankscope.compare.verdict.inputs import RunSummary, VerdictInputs
from rankscope.compare.verdict.outliers import flag
from rankscope.compare.verdict.rules import judge
from rankscope.compare.waits import WaitedCollectives, Waits, shown_error
from rankscope.compare.whatif.replay import Replay, Target
from rankscope.compare.whatif.scenarios import scenarios
from rankscope.errors import ReportError, UsageError
from rankscope.model.metrics import METRICS, column_of, columns_of
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.model.results import Efficiency, Imbalance, MetricSummary, RunFacts, Verdict
from rankscope.model.schema import MEASURES
from rankscope.store.tables import RunTables, measured

UNFLAGGED = {"flagged": pl.lit(None, pl.Boolean), "cause": pl.lit(None, pl.String)}
"""Where nothing is judged."""


class Analysis:
    """One way of looking at a run; computes what is asked for, once."""

    def __init__(self, frames: RunTables, options: Options) -> None:
        if options.statistic not in compare_scores.STATISTICS:
            raise UsageError(
                f"--statistic {options.statistic}",
                hint=f"one of {', '.join(compare_scores.STATISTICS)}",
            )
        counted = frames.ranks.filter(~pl.col("numbered"))["rank"].to_list()
        starts = frames.ranks.join(frames.reports, on="path", how="left")
        self.utc_starts = dict(starts.select("rank", "utc_start_ns").iter_rows())
        self.shifts, self.pairing = self._paired(frames, counted)
        self.frames = renumbered(frames, self.shifts)
        self.options = options
        self.matched_by = "ordinal" if counted else "number"

    def _paired(
        self, frames: RunTables, counted: list[int]
    ) -> tuple[dict[int, int], list[RunWarning]]:
        """How far to shift the counted iterations of each rank, and what to know of it."""
        if not counted:
            return {}, []
        return pair_iterations(frames.iterations, frames.collectives, self.utc_starts, counted)

    @cached_property
    def roles(self) -> Roles:
        """Which ranks do the same work by design: as given, else as inferred."""
        if self._given_roles is not None:
            return self._given_roles
        ranks = self.frames.ranks["rank"].sort().to_list()
        hosts = dict(self.frames.ranks.select("rank", "host").iter_rows())
        matched = self.matched
        return inferred_roles(
            ranks,
            hosts,
            matched.reducing,
            matched.groups,
            lambda some: self.frames.some("activities", ranks=some),
        )

    @cached_property
    def _given_roles(self) -> Roles | None:
        if self.options.roles is None:
            return None
        ranks = self.frames.ranks["rank"].sort().to_list()
        return given_roles(self.options.roles, ranks, self.world_size)

    @cached_property
    def clock(self) -> tuple[str, str]:
        """The clock, and why."""
        return choose_clock(self.frames.ranks, self.options.clock)

    @cached_property
    def selection(self) -> Selection:
        """The chosen iterations."""
        lengths = measured(self.frames, self.clock[0], ["rank", "iteration", "iteration_ns"])
        return select(
            self.frames.iterations, lengths, self.options.iter_range, self.options.include_warmup
        )

    @cached_property
    def missing_ranks(self) -> tuple[int, ...]:
        """Ranks of the world that no report is of."""
        present = {*self.frames.ranks["rank"]}
        return tuple(sorted({*range(self.world_size or max(present) + 1)} - present))

    @cached_property
    def blind_ranks(self) -> tuple[int, ...]:
        """Ranks of a job of several without collectives in their reports: their work is unknown."""
        if max(self.world_size or 1, self.frames.ranks.height) < 2:
            return ()
        seen = self.frames.some("collectives", ["rank"], narrow=True)["rank"].unique()
        return tuple(sorted({*self.frames.ranks["rank"]} - {*seen}))

    @cached_property
    def world_size(self) -> int | None:
        """Ranks of the job, as its environment says."""
        size = self.frames.ranks["world_size"].max()
        return size if isinstance(size, int) else None

    @cached_property
    def _communication(self) -> Communication:
        links = [] if self._given_roles is None else self._given_roles.links
        return Communication(self.frames, self.utc_starts, links)

    @property
    def _chosen_communication(self) -> Communication:
        """That of the chosen iterations, or of more."""
        return self._communication

    @property
    def matched(self) -> Matched:
        """Collectives of the iterations that are complete on every rank, matched."""
        return self._communication.matched

    @property
    def timed(self) -> WaitedCollectives:
        """The matched collectives with their waits."""
        return self._communication.timed

    def timed_in(self, numbers: Collection[int]) -> WaitedCollectives:
        """`timed` of iterations `numbers`, or of more."""
        return self.timed

    @cached_property
    def met(self) -> MatchSummary:
        """What became of the collectives: how many were matched, which not, the clocks."""
        return self.matched.met

    @cached_property
    def groups(self) -> pl.DataFrame:
        """The communicators, as `WaitedCollectives.groups` has them."""
        return self.timed.groups

    @cached_property
    def _waits(self) -> Waits:
        """By iteration of all; by rank of the chosen ones, where some can be compared."""
        numbers = None
        with suppress(UsageError, ReportError):
            numbers = self.selection.numbers
        return self._communication.waits(self.clock[0], numbers)

    @cached_property
    def waits(self) -> pl.DataFrame:
        """`Waits.by_rank` of the chosen iterations."""
        _ = self.selection  # raises where none can be compared
        return self._waits.by_rank

    @property
    def _role(self) -> pl.Expr:
        return pl.col("rank").replace_strict(self.roles.of, return_dtype=pl.String)

    @cached_property
    def wide(self) -> pl.DataFrame:
        """rank, iteration, epoch, number, host, role and `<metric>_ns` for every metric.

        A row per rank and complete iteration; null is unknown.
        """
        alone = bool(self.missing_ranks) or self.frames.ranks.height < 2
        return wide_of(
            self.frames.iterations.filter("complete"),
            self.frames.ranks.select("rank", "host").with_columns(role=self._role),
            measured(self.frames, self.clock[0], [name for name in MEASURES if name != "clock"]),
            None if alone else self._waits.by_iteration,
            self.blind_ranks,
        )

    @cached_property
    def chosen(self) -> pl.DataFrame:
        """The rows of `wide` in the chosen iterations."""
        return self.wide.filter(pl.col("iteration").is_in(self.selection.numbers))

    def part(
        self, metrics: Sequence[str], ranks: Sequence[int] | None = None, *, all_of: bool = False
    ) -> pl.DataFrame:
        """rank, iteration, host, role and `<metric>_ns` of `chosen`, or with `all_of` of `wide`."""
        frame = self._part(columns_of(metrics), ranks)
        if all_of:
            return frame
        return frame.filter(pl.col("iteration").is_in(self.selection.numbers))

    def _part(self, columns: list[str], ranks: Sequence[int] | None) -> pl.DataFrame:
        frame = self.wide.select("rank", "iteration", "host", "role", *columns)
        return frame if ranks is None else frame.filter(pl.col("rank").is_in(ranks))

    @cached_property
    def flag_metric(self) -> str | None:
        """What can be judged: work; loading where waits hide in later phases; else None."""
        seeing = self.chosen.filter(~pl.col("rank").is_in(self.blind_ranks))
        if not seeing["work_ns"].null_count():
            return "work"
        return None if self.chosen["load_ns"].null_count() else "load"

    @cached_property
    def flags(self) -> pl.DataFrame | None:
        """Excess and flag of every rank and chosen iteration; None where nothing can be judged."""
        if self.flag_metric is None:
            return None
        return flag(self.chosen, self.flag_metric, self.facts.residual_ns or 0)

    def judged(self, metrics: Sequence[str]) -> pl.DataFrame:
        """`part` of `wide` with flagged and cause; null where nothing is judged."""
        frame = self.part(metrics, all_of=True)
        if self.frames.ranks.height < 2 or self.flags is None:
            return frame.with_columns(**UNFLAGGED)
        told = self.flags.select("rank", "iteration", "flagged", "cause")
        return frame.join(told, on=["rank", "iteration"], how="left", maintain_order="left")

    def knows(self, metric: str) -> bool:
        """Whether a metric is known anywhere in the chosen iterations."""
        return bool(self.part([metric])[column_of(metric)].is_not_null().any())

    @cached_property
    def verdict(self) -> Verdict:
        """Who is slow, or why that cannot be said."""
        return judge(
            VerdictInputs(
                run=self._standing,
                flags=self.flags if self.frames.ranks.height > 1 else None,
                wide=self.chosen,
                hosts=dict(self.frames.ranks.select("rank", "host").iter_rows()),
                replicas=self.roles.replicas,
                tables=tables_of(self.frames.some),
                replayed=self._replayed_gain,
            )
        )

    @cached_property
    def replay(self) -> Replay | None:
        """The run, or a range of it, to be played again with less work; None where unknown."""
        if self.missing_ranks or self.blind_ranks or self.flag_metric != "work":
            return None
        _ = self.met, self.groups  # are known before the replay takes the room of the collectives
        numbers = self._ranged
        wide = self.wide if numbers is None else self.chosen
        return self._chosen_communication.replay(self.clock[0], wide, numbers)

    @property
    def _ranged(self) -> tuple[int, ...] | None:
        """The chosen iterations, where a range chose them."""
        return None if self.options.iter_range is None else self.selection.numbers

    def _replayed_gain(self, ranks: tuple[int, ...], iterations: list[int]) -> int | None:
        if self.replay is None:
            return None
        target = Target(ranks, None, iterations)
        return self.replay.gains_ns([target], self.selection.numbers)[0]

    @cached_property
    def _standing(self) -> RunSummary:
        return RunSummary(
            ranks=self.frames.ranks.height,
            iterations=len(self.selection.numbers),
            missing_ranks=self.missing_ranks,
            blind_ranks=self.blind_ranks,
            flag_metric=self.flag_metric,
            roles=len({*self.roles.of.values()}),
        )

    @cached_property
    def facts(self) -> RunFacts:
        """What stands above every number."""
        return facts_of(
            self.frames,
            self.met.solved,
            self.selection,
            self.clock,
            world_size=self.world_size,
            missing_ranks=self.missing_ranks,
            matched_by=self.matched_by,
            roles=self.roles.source,
        )

    @cached_property
    def problems(self) -> tuple[RunWarning, ...]:
        """Everything a reader must know beside the numbers."""
        found = warnings_of(
            self.frames,
            self.met,
            self.groups,
            self.roles,
            world_size=self.world_size,
            missing_ranks=self.missing_ranks,
            blind_ranks=self.blind_ranks,
        )
        stored = stored_warnings(self.frames)
        return (*found, *self.pairing, *stored, *self.selection.problems)

    def facts_or_none(self) -> RunFacts | None:
        """`facts`, or None where no iteration can be compared."""
        try:
            return self.facts
        except (UsageError, ReportError):
            return None

    def problems_or_stored(self) -> tuple[RunWarning, ...]:
        """`problems`, or the reports' own where no iteration can be compared."""
        try:
            return self.problems
        except (UsageError, ReportError) as error:
            return (*stored_warnings(self.frames), RunWarning("nothing-to-compare", error.message))

    def imbalance(self, metrics: list[str] | None = None) -> Imbalance:
        """Metrics across ranks, ranks, iterations, verdict.

        Args:
            metrics: names; None for all that are known.
        """
        names = metrics or list(METRICS)
        return Imbalance(
            metrics=self.summaries(names),
            ranks=self._ranks(names),
            iterations=self.by_iteration(metrics[0] if metrics else "work"),
            verdict=self.verdict,
            rows=lambda: self.chosen,
            course=lambda metric: self.part([metric]),
            statistic=self.options.statistic,
            wait_error_ns=shown_error(self.groups),
            efficiency=self.efficiency,
            what_if=self.what_if,
            chained=bool((self.groups["members"] < self.frames.ranks.height).any()),
        )

    def scores(self, names: list[str]) -> pl.DataFrame:
        """Each rank's scores: rank and `<metric>_ns`."""
        return compare_scores.scores(self.chosen, names, self.options.statistic)

    def summaries(self, names: list[str]) -> tuple[MetricSummary, ...]:
        """Metrics across ranks."""
        ranked = self.scores(names)
        return tuple(compare_scores.summarise(self.chosen, ranked, name) for name in names)

    def by_iteration(self, metric: str) -> pl.DataFrame:
        """A row per chosen iteration, as `iterations.by_iteration` gives it."""
        return by_iteration(self.chosen, self.flags, self.selection.numbers, metric)

    @cached_property
    def efficiency(self) -> Efficiency | None:
        """POP's efficiencies; None where some rank's work is unknown."""
        return compare_scores.efficiency(self.chosen)

    @cached_property
    def what_if(self) -> pl.DataFrame | None:
        """What putting one thing at its role's median would save; None without a replay."""
        return scenarios(self.replay, self.chosen, self.verdict, self.selection.numbers)

    def _ranks(self, names: list[str]) -> pl.DataFrame:
        told = self.frames.ranks.select("rank", "host", role=self._role, report="path")
        known = not self.missing_ranks and self.flag_metric == "work"
        waits = self.waits if known else compare_scores.UNKNOWN_WAITS
        return compare_scores.by_rank(told.join(self.scores(names), on="rank"), waits, names)

    def rank_iterations(self) -> pl.DataFrame:
        """`wide` without warm-up's flags: the columns that contract and database promise."""
        columns = ["rank", "iteration", "epoch", "number", *columns_of(METRICS)]
        flags = None
        with suppress(UsageError, ReportError):  # nothing to compare
            flags = self.flags if self.frames.ranks.height > 1 else None
        if flags is None:
            return self.wide.select(*columns, **UNFLAGGED)
        return self.wide.join(
            flags.select("rank", "iteration", "flagged", "cause"),
            on=["rank", "iteration"],
            how="left",
            maintain_order="left",
        ).select(*columns, "flagged", "cause")
