"""What the end of an ingest keeps of the usual comparison, and an analysis that recalls it.

Comparing takes as long as there are collectives. So that answers come at once, an ingest compares
its run as the commands do without options, and keeps the small results. Whoever looks at the run
in another way still gets from here what does not depend on it; the rest is computed, of a range
of iterations from their rows alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import polars as pl

from rankscope._version import __version__
from rankscope.align.clocks import ClockFit, Clocks
from rankscope.align.match import MatchSummary, ReusedMatching
from rankscope.compare.communication import Communication
from rankscope.compare.comparison import Analysis
from rankscope.compare.roles import Roles
from rankscope.compare.selection import Selection, common_iterations, within
from rankscope.compare.waits import WaitedCollectives
from rankscope.errors import ReportError, UsageError
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS, column_of, columns_of
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.model.results import Efficiency, Finding, MetricSummary, Score, Verdict
from rankscope.store.tables import RunTables

Tables = dict[str, pl.DataFrame]
"""What is kept, as tables of the database: those of `store.derived`."""

USUAL = Options()

VERSION = f"{__version__}/2"
"""Of the stored answers: to be raised with every change of their form."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The usual comparison of a run."""

    clock: str
    shifts: dict[int, int]
    pairing: list[RunWarning]
    blind_ranks: tuple[int, ...]
    met: MatchSummary
    streams: pl.DataFrame | None  # `Matched.streams`; None where an older one kept it
    groups: pl.DataFrame
    roles: Roles
    selection: Selection
    flag_metric: str | None
    verdict: Verdict
    summaries: dict[str, MetricSummary]
    efficiency: Efficiency | None
    scores: pl.DataFrame  # rank and `<metric>_ns`
    waits: pl.DataFrame  # `Waits.by_rank`
    by_iteration: pl.DataFrame
    what_if: pl.DataFrame | None

    def tables(self) -> Tables:
        """As tables, from which `kept` makes it again."""
        solved = self.met.solved
        answers = {
            "version": VERSION,
            "clock": self.clock,
            "shifts": [*self.shifts.items()],
            "pairing": [asdict(each) for each in self.pairing],
            "blind_ranks": self.blind_ranks,
            "calls": self.met.calls,
            "middle_ns": solved.middle_ns,
            "method": solved.method,
            "roles": [[*self.roles.of.items()], self.roles.source, self.roles.replicas],
            "selection": asdict(self.selection),
            "flag_metric": self.flag_metric,
            "verdict": asdict(self.verdict),
            "metrics": [asdict(each) for each in self.summaries.values()],
            "efficiency": None if self.efficiency is None else asdict(self.efficiency),
            "replayed": self.what_if is not None,
        }
        clocks = [
            (rank, fit.offset_ns, fit.drift_ppm, fit.spread_ns) for rank, fit in solved.fits.items()
        ]
        schema = {
            "rank": pl.Int64,
            "offset_ns": pl.Int64,
            "drift_ppm": pl.Float64,
            "residual_ns": pl.Int64,
        }
        return {
            "answers": pl.DataFrame(
                {"name": [*answers], "value": [json.dumps(each) for each in answers.values()]}
            ),
            "clocks": pl.DataFrame(clocks, schema=schema, orient="row"),
            "communicators": self.groups,
            **({} if self.streams is None else {"streams": self.streams}),
            "unmatched": self.met.unmatched,
            "scores": self.scores.join(self.waits, on="rank", how="left"),
            "by_iteration": self.by_iteration,
            **({} if self.what_if is None else {"what_if": self.what_if}),
        }


def compared(analysis: Analysis) -> Kept | None:
    """The usual comparison; None where nothing can be compared.

    Args:
        analysis: the run, looked at without options.
    """
    names = [*METRICS]
    try:
        waits = analysis.waits  # before the replay, which needs memory of its own
        return Kept(
            clock=analysis.clock[0],
            shifts=analysis.shifts,
            pairing=analysis.pairing,
            blind_ranks=analysis.blind_ranks,
            met=analysis.met,
            streams=analysis.matched.streams,
            groups=analysis.groups,
            roles=analysis.roles,
            selection=analysis.selection,
            flag_metric=analysis.flag_metric,
            verdict=analysis.verdict,
            summaries=dict(zip(names, analysis.summaries(names), strict=True)),
            efficiency=analysis.efficiency,
            scores=analysis.scores(names),
            waits=waits,
            by_iteration=analysis.by_iteration("work"),
            what_if=analysis.what_if,
        )
    except (UsageError, ReportError):
        return None


def kept(load: Callable[[str], pl.DataFrame | None]) -> Kept | None:
    """What `Kept.tables` became; None where nothing is kept, or by another version.

    Args:
        load: the table of a name; None where there is none.
    """
    answers = load("answers")
    if answers is None:
        return None
    told: dict[str, Any] = {name: json.loads(value) for name, value in answers.iter_rows()}
    if told.get("version") != VERSION:
        return None
    clocks, groups, unmatched, scores, iterations, what_if = (
        load(name)
        for name in ("clocks", "communicators", "unmatched", "scores", "by_iteration", "what_if")
    )
    if clocks is None or groups is None or unmatched is None or scores is None:
        return None
    if iterations is None or (told["replayed"] and what_if is None):
        return None
    fits = {rank: ClockFit(*rest) for rank, *rest in clocks.iter_rows()}
    of, source, replicas = told["roles"]
    selection = told["selection"]
    summaries = [_summary(each) for each in told["metrics"]]
    waited = ("last_arriver_share", "cost_ns", "gain_ns")
    return Kept(
        clock=told["clock"],
        shifts=dict(told["shifts"]),
        pairing=[_problem(each) for each in told["pairing"]],
        blind_ranks=tuple(told["blind_ranks"]),
        met=MatchSummary(told["calls"], unmatched, Clocks(fits, told["middle_ns"], told["method"])),
        streams=load("streams"),
        groups=groups,
        roles=Roles(dict(of), source, replicas, []),
        selection=Selection(
            tuple(selection["numbers"]),
            tuple(selection["warmup"]),
            tuple(_problem(each) for each in selection["problems"]),
        ),
        flag_metric=told["flag_metric"],
        verdict=_verdict(told["verdict"]),
        summaries={each.metric: each for each in summaries},
        efficiency=None if told["efficiency"] is None else Efficiency(**told["efficiency"]),
        scores=scores.drop(waited),
        waits=scores.select("rank", *waited),
        by_iteration=iterations,
        what_if=what_if if told["replayed"] else None,
    )


def _problem(told: dict[str, Any]) -> RunWarning:
    return RunWarning(told["code"], told["message"], tuple(told["ranks"]))


def _summary(told: dict[str, Any]) -> MetricSummary:
    scores = {
        name: None if told[name] is None else Score(**told[name])
        for name in ("min", "median", "max")
    }
    return MetricSummary(**(told | scores))


def _verdict(told: dict[str, Any]) -> Verdict:
    findings = tuple(
        Finding(**(each | {"suspect": CauseKind(each["suspect"])})) for each in told["findings"]
    )
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
    }
    return Verdict(**(plain | {"kind": VerdictKind(told["kind"]), "findings": findings}))


class Recalled(Analysis):
    """An analysis that takes from what is kept whatever its options leave as it is."""

    def __init__(self, frames: RunTables, options: Options, known: Kept) -> None:
        self._known = known
        super().__init__(frames, options)

    def _paired(
        self, frames: RunTables, counted: list[int]
    ) -> tuple[dict[int, int], list[RunWarning]]:
        return self._known.shifts, self._known.pairing

    @cached_property
    def _linked(self) -> bool:
        """Whether transfers between ranks are paired as `--roles` says."""
        return self._given_roles is not None and bool(self._given_roles.links)

    @cached_property
    def _alike(self) -> bool:
        """Whether the chosen iterations are the usual ones, seen by the usual clock and roles."""
        return (
            self.options.roles is None
            and self.clock[0] == self._known.clock
            and self.selection.numbers == self._known.selection.numbers
        )

    @property
    def _same_scores(self) -> bool:
        return self._alike and self.options.statistic == USUAL.statistic

    @cached_property
    def blind_ranks(self) -> tuple[int, ...]:
        """As it is, whatever the options."""
        return self._known.blind_ranks

    @cached_property
    def met(self) -> MatchSummary:
        """What is kept, unless transfers are paired."""
        return super().met if self._linked else self._known.met

    @cached_property
    def groups(self) -> pl.DataFrame:
        """What is kept, unless transfers are paired."""
        return super().groups if self._linked else self._known.groups

    @cached_property
    def roles(self) -> Roles:
        """What is kept, unless they are given."""
        return super().roles if self.options.roles is not None else self._known.roles

    @cached_property
    def selection(self) -> Selection:
        """What is kept, where nothing else is asked for."""
        usual = self._known.selection
        if self.clock[0] != self._known.clock:
            return super().selection
        common = sorted({*usual.numbers, *usual.warmup})
        options = self.options
        return within(
            common, usual.warmup, usual.problems, options.iter_range, options.include_warmup
        )

    @cached_property
    def _chosen_communication(self) -> Communication:
        """That of the iterations in a range alone, where the rest is kept."""
        return self._communication if self._ranged is None else self._part_of(self._ranged)

    def _part_of(self, numbers: tuple[int, ...]) -> Communication:
        """That of some iterations alone, if all that depends on others is kept."""
        streams = self._known.streams
        if not numbers or self._linked or streams is None:
            return self._communication
        known = ReusedMatching(streams, self.groups, self.met.solved)
        return Communication(self.frames, self.utc_starts, [], known, numbers)

    def timed_in(self, numbers: Collection[int]) -> WaitedCollectives:
        """Of these alone, where the rest is kept."""
        if self._ranged is not None and {*numbers} <= {*self._ranged}:
            return self._chosen_communication.timed
        common = common_iterations(self.frames.iterations)
        return self._part_of(tuple(number for number in numbers if number in common)).timed

    @cached_property
    def _is_wide_kept(self) -> bool:
        """Whether `wide` is, but for the roles: not by another clock, nor with paired transfers."""
        return not self._linked and self.clock[0] == self._known.clock

    @cached_property
    def wide(self) -> pl.DataFrame:
        """What is kept, where it is the same."""
        if not self._is_wide_kept:
            return super().wide
        names = ["epoch", "number", *columns_of(METRICS)]
        order = ["rank", "iteration", "epoch", "number", "host", "role"]
        return self._stored(names).select(*order, *names[2:])

    @cached_property
    def chosen(self) -> pl.DataFrame:
        """Of what is kept no more than is asked for."""
        if "wide" in self.__dict__ or not self._is_wide_kept or self._ranged is None:
            return super().chosen
        names = ["epoch", "number", *columns_of(METRICS)]
        order = ["rank", "iteration", "epoch", "number", "host", "role"]
        return self._stored(names, iterations=self._ranged).select(*order, *names[2:])

    def _part(self, columns: list[str], ranks: Sequence[int] | None) -> pl.DataFrame:
        if "wide" in self.__dict__ or not self._is_wide_kept:
            return super()._part(columns, ranks)
        order = ["rank", "iteration", "host", "role"]
        return self._stored(columns, ranks).select(*order, *columns)

    def _stored(
        self,
        columns: list[str],
        ranks: Sequence[int] | None = None,
        iterations: Sequence[int] | None = None,
    ) -> pl.DataFrame:
        """Columns of rank_iterations, with host and role."""
        told = self.frames.ranks.select("rank", "host").sort("rank").with_columns(role=self._role)
        names = ["rank", "iteration", *columns]
        rows = self.frames.some("rank_iterations", names, ranks, iterations)
        at = told["rank"].search_sorted(rows["rank"])
        return rows.with_columns(told.select("host", "role")[at].get_columns())

    def judged(self, metrics: Sequence[str]) -> pl.DataFrame:
        """What is kept, where the same is judged."""
        if not self._alike:
            return super().judged(metrics)
        names = [*columns_of(metrics), "flagged", "cause"]
        return self._stored(names).select("rank", "iteration", "host", "role", *names)

    def knows(self, metric: str) -> bool:
        """As the scores tell, where the same are kept."""
        scored = self._alike and self._known.scores[column_of(metric)].is_not_null().any()
        return bool(scored) or super().knows(metric)

    @cached_property
    def flag_metric(self) -> str | None:
        """What is kept, where the same is judged."""
        return self._known.flag_metric if self._alike else super().flag_metric

    @cached_property
    def verdict(self) -> Verdict:
        """What is kept, where the same is judged."""
        return self._known.verdict if self._alike else super().verdict

    @cached_property
    def efficiency(self) -> Efficiency | None:
        """What is kept, where the same is judged."""
        return self._known.efficiency if self._alike else super().efficiency

    @cached_property
    def what_if(self) -> pl.DataFrame | None:
        """What is kept, where the same is judged."""
        return self._known.what_if if self._alike else super().what_if

    @cached_property
    def waits(self) -> pl.DataFrame:
        """What is kept, where the same is judged."""
        if self._alike:
            return self._known.waits
        if self._ranged is None or not self._is_wide_kept:
            return super().waits
        return self._chosen_communication.waits(self.clock[0], self._ranged).by_rank

    def scores(self, names: list[str]) -> pl.DataFrame:
        """What is kept, where the same is scored in the same way."""
        if not self._same_scores:
            return super().scores(names)
        return self._known.scores.select("rank", *columns_of(names))

    def summaries(self, names: list[str]) -> tuple[MetricSummary, ...]:
        """What is kept, where the same is scored in the same way."""
        if not self._same_scores:
            return super().summaries(names)
        return tuple(self._known.summaries[name] for name in names)

    def by_iteration(self, metric: str) -> pl.DataFrame:
        """What is kept, where the same is judged and shown."""
        if not self._alike or metric != "work":
            return super().by_iteration(metric)
        return self._known.by_iteration
