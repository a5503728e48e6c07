"""A stored run, compared across its ranks: everything the commands ask for."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import polars as pl

from rankscope.align.match import Matched
from rankscope.align.pairing import pair_iterations, renumbered
from rankscope.communication import Communication
from rankscope.compare import imbalance as compare_scores
from rankscope.compare.doubts import Standing, doubt, obstacle
from rankscope.compare.evidence import Evidence
from rankscope.compare.flags import flag
from rankscope.compare.iterations import by_iteration
from rankscope.compare.metrics import METRICS
from rankscope.compare.problems import (
    blind_ranks,
    communication_problems,
    grouped,
    inferred,
    missing_ranks,
)
from rankscope.compare.roles import Roles, given_roles, inferred_roles
from rankscope.compare.selection import Selection, choose_clock, select
from rankscope.compare.verdict import inconclusive, judge
from rankscope.compare.waits import Waits
from rankscope.compare.what_if import Replay, Target, scenarios
from rankscope.errors import ReportError, UsageError
from rankscope.records import (
    Imbalance,
    Options,
    Problem,
    RankIdentity,
    RunFacts,
    RunFrames,
    Verdict,
)


class Analysis:
    """One way of looking at a run; computes what is asked for, once."""

    def __init__(self, frames: RunFrames, options: Options) -> None:
        if options.statistic not in compare_scores.STATISTICS:
            raise UsageError(
                f"--statistic {options.statistic}",
                hint=f"one of {', '.join(compare_scores.STATISTICS)}",
            )
        counted = frames.ranks.filter(~pl.col("numbered"))["rank"].to_list()
        starts = frames.ranks.join(frames.reports, on="path", how="left")
        self.utc_starts = dict(starts.select("rank", "utc_start_ns").iter_rows())
        self.shifts, self._pairing = pair_iterations(
            frames.iterations, frames.collectives, self.utc_starts, counted
        )
        self.frames = renumbered(frames, self.shifts)
        self.options = options
        self.matched_by = "ordinal" if counted else "number"

    @cached_property
    def roles(self) -> Roles:
        """Which ranks do the same work by design: as given, else as inferred."""
        if self._given_roles is not None:
            return self._given_roles
        ranks = self.frames.ranks["rank"].sort().to_list()
        hosts = dict(self.frames.ranks.select("rank", "host").iter_rows())
        return inferred_roles(ranks, hosts, self.matched.instances, self.frames.activities)

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
        lengths = self.measures.select("rank", "iteration", "iteration_ns")
        return select(
            self.frames.iterations, lengths, self.options.iter_range, self.options.include_warmup
        )

    @cached_property
    def measures(self) -> pl.DataFrame:
        """MEASURES on the chosen clock."""
        return self.frames.measures.filter(pl.col("clock") == self.clock[0])

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
        return tuple(sorted({*self.frames.ranks["rank"]} - {*self.frames.collectives["rank"]}))

    @cached_property
    def world_size(self) -> int | None:
        """Ranks of the job, as its environment says."""
        size = self.frames.ranks["world_size"].max()
        return size if isinstance(size, int) else None

    @cached_property
    def _communication(self) -> Communication:
        links = [] if self._given_roles is None else self._given_roles.links
        return Communication(self.frames, self.utc_starts, links)

    @cached_property
    def matched(self) -> Matched:
        """Collectives of the iterations that are complete on every rank, matched."""
        return self._communication.matched

    @cached_property
    def instances(self) -> pl.DataFrame:
        """The matched collectives with their waits, as `waits.timed` gives them."""
        return self._communication.instances

    def waits(self, numbers: tuple[int, ...] | None = None) -> Waits:
        """The split of communication, in the iterations `numbers` (None: all)."""
        return self._communication.waits(self.clock[0], numbers)

    @property
    def _role(self) -> pl.Expr:
        return pl.col("rank").replace_strict(self.roles.of, return_dtype=pl.String)

    @cached_property
    def _all_waits(self) -> Waits:
        return self.waits()

    @cached_property
    def wide(self) -> pl.DataFrame:
        """rank, iteration, epoch, number, host, role and `<metric>_ns` for every metric.

        A row per rank and complete iteration; null is unknown.
        """
        waits = self._all_waits.by_iteration
        complete = self.frames.iterations.filter("complete")
        frame = (
            complete.select("rank", "iteration", "epoch", "number")
            .join(self.frames.ranks.select("rank", "host"), on="rank")
            .join(self.measures.drop("clock"), on=["rank", "iteration"], how="left")
            .join(waits, on=["rank", "iteration"], how="left")
            .with_columns(role=self._role)
        )
        nothing = pl.col("exposed_communication_ns") == 0
        partners = ["wait_ns", "collective_wait_ns", "collective_transfer_ns"]
        if self.missing_ranks or self.frames.ranks.height < 2:
            frame = frame.with_columns(pl.lit(None, pl.Int64).alias(name) for name in partners)
        else:
            unseen = pl.col("exposed_communication_ns").is_null()
            frame = frame.with_columns(
                wait_ns=pl.when(unseen).then(None).when(nothing).then(0).otherwise("wait_ns")
            )
        if self.blind_ranks:
            unknown = ("exposed_communication", "work", "wait", "collective_wait")
            frame = frame.with_columns(
                pl.when(~pl.col("rank").is_in(self.blind_ranks))
                .then(f"{name}_ns")
                .alias(f"{name}_ns")
                for name in unknown
            )
        order = ["rank", "iteration", "epoch", "number", "host", "role"]
        return frame.select(*order, *(f"{name}_ns" for name in METRICS)).sort("rank", "iteration")

    @cached_property
    def chosen(self) -> pl.DataFrame:
        """The rows of `wide` in the chosen iterations."""
        return self.wide.filter(pl.col("iteration").is_in(self.selection.numbers))

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

    @cached_property
    def verdict(self) -> Verdict:
        """Who is slow, or why that cannot be said."""
        hindrance = obstacle(self._standing)
        if hindrance is not None:
            return inconclusive(*hindrance)
        assert self.flags is not None
        assert self.flag_metric is not None
        hosts = dict(self.frames.ranks.select("rank", "host").iter_rows())
        verdict = judge(
            Evidence(
                self.flags,
                self.chosen,
                self.flag_metric,
                hosts,
                len(self.missing_ranks),
                self.frames.activities,
                self.roles.replicas,
                self._replayed_gain,
            )
        )
        hesitation = doubt(self._standing) if verdict.kind == "balanced" else None
        return verdict if hesitation is None else inconclusive(*hesitation)

    @cached_property
    def replay(self) -> Replay | None:
        """The run, to be played again with less work; None where that cannot be known."""
        if self.missing_ranks or self.blind_ranks or self.flag_metric != "work":
            return None
        return self._communication.replay(self.clock[0], self.measures, self.wide)

    def _replayed_gain(self, ranks: tuple[int, ...], iterations: list[int]) -> int | None:
        if self.replay is None:
            return None
        return self.replay.gain_ns(Target(ranks, None, iterations), self.selection.numbers)

    @cached_property
    def _standing(self) -> Standing:
        return Standing(
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
        clocks = self.matched.clocks
        tied = clocks if len(clocks) > 1 else {}
        return RunFacts(
            name=self.frames.name,
            ranks=tuple(self.frames.ranks["rank"].sort()),
            world_size=self.world_size,
            missing_ranks=self.missing_ranks,
            reports=self.frames.reports.height,
            clock=self.clock[0],
            clock_reason=self.clock[1],
            iterations=self.selection.numbers,
            warmup=self.selection.warmup,
            matched_by=self.matched_by,
            clocks_aligned=self._communication.aligned,
            clock_method=self.matched.solved.method,
            roles=self.roles.source,
            residual_ns=max((fit.spread_ns for fit in tied.values()), default=None),
            offsets_ns={rank: fit.offset_ns for rank, fit in tied.items()},
            drift_ppm={rank: fit.drift_ppm for rank, fit in tied.items()},
        )

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """Everything a reader must know beside the numbers."""
        found: list[Problem] = []
        if self.missing_ranks:
            present = self.frames.ranks.height
            found.append(missing_ranks(self.missing_ranks, self.world_size, present))
        if self.blind_ranks:
            found.append(blind_ranks(self.blind_ranks, self.frames.ranks.height))
        found += communication_problems(
            self.matched, self._all_waits.by_group, self.frames.ranks["rank"].to_list()
        )
        if self.frames.reports["options"].n_unique() > 1:
            found.append(
                Problem(
                    "options-differ",
                    "reports were ingested with different --iteration, --phase or --rank-pattern; "
                    "ingest them all with the same ones to compare their phases",
                )
            )
        if self.roles.source == "inferred":
            found.append(inferred(self.roles.of))
        return (*found, *self._pairing, *self._stored(), *self.selection.problems)

    def facts_or_none(self) -> RunFacts | None:
        """`facts`, or None where no iteration can be compared."""
        try:
            return self.facts
        except (UsageError, ReportError):
            return None

    def problems_or_stored(self) -> tuple[Problem, ...]:
        """`problems`, or the reports' own where no iteration can be compared."""
        try:
            return self.problems
        except (UsageError, ReportError) as error:
            return (*self._stored(), Problem("nothing-to-compare", error.message))

    def _stored(self) -> list[Problem]:
        return grouped(
            Problem(row["code"], row["message"], tuple(row["ranks"] or ()))
            for row in self.frames.problems.iter_rows(named=True)
        )

    def imbalance(self, metrics: list[str] | None = None) -> Imbalance:
        """Metrics across ranks, ranks, iterations, verdict.

        Args:
            metrics: names; None for all that are known.
        """
        names = metrics or list(METRICS)
        ranked = compare_scores.scores(self.chosen, names, self.options.statistic)
        summaries = [compare_scores.summarise(self.chosen, ranked, name) for name in names]
        return Imbalance(
            metrics=tuple(summaries),
            ranks=self._ranks(ranked, names),
            iterations=by_iteration(
                self.chosen, self.flags, self.selection.numbers, metrics[0] if metrics else "work"
            ),
            verdict=self.verdict,
            wide=self.chosen,
            statistic=self.options.statistic,
            wait_error_ns=self._all_waits.error_ns,
            efficiency=compare_scores.efficiency(self.chosen),
            what_if=scenarios(self.replay, self.chosen, self.verdict, self.selection.numbers),
            chained=bool((self.instances["members"] < self.frames.ranks.height).any()),
        )

    def _ranks(self, ranked: pl.DataFrame, names: list[str]) -> pl.DataFrame:
        waits = self.waits(self.selection.numbers).by_rank
        frame = self.frames.ranks.select("rank", "host", role=self._role, report="path").join(
            ranked, on="rank"
        )
        frame = frame.with_columns(compare_scores.role_z(name) for name in names)
        frame = frame.join(waits, on="rank", how="left").sort("rank")
        if self.missing_ranks or self.flag_metric != "work":
            unknown = {"last_arriver_share": pl.Float64, "cost_ns": pl.Int64, "gain_ns": pl.Int64}
            frame = frame.with_columns(
                pl.lit(None, dtype).alias(name) for name, dtype in unknown.items()
            )
        return frame

    def rank_iterations(self) -> pl.DataFrame:
        """`wide` without warm-up's flags: the columns that contract and database promise."""
        columns = ["rank", "iteration", "epoch", "number", *(f"{name}_ns" for name in METRICS)]
        flags = self._flags_or_none()
        if flags is None:
            return self.wide.select(
                *columns,
                flagged=pl.lit(None, pl.Boolean),
                cause=pl.lit(None, pl.String),
            )
        return self.wide.join(
            flags.select("rank", "iteration", "flagged", "cause"),
            on=["rank", "iteration"],
            how="left",
            maintain_order="left",
        ).select(*columns, "flagged", "cause")

    def _flags_or_none(self) -> pl.DataFrame | None:
        """`flags`, or None where no iterations or ranks can be compared."""
        try:
            return self.flags if self.frames.ranks.height > 1 else None
        except (UsageError, ReportError):
            return None

    def who(self) -> dict[int, tuple[RankIdentity, Path]]:
        """rank → identity and report."""
        return {
            row["rank"]: (
                RankIdentity(
                    row["rank"],
                    row["pid"],
                    row["local_rank"],
                    row["world_size"],
                    row["host"],
                    row["evidence"],
                ),
                Path(row["path"]),
            )
            for row in self.frames.ranks.iter_rows(named=True)
        }
