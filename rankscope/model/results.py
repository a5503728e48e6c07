"""The results of comparing the ranks of a run, as frozen records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS
from rankscope.model.reports import RunWarning
from rankscope.util import inline
from rankscope.util.wording import counted

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Score:
    """A rank and its score, in the metric's unit."""

    rank: int
    value: int | float  # an integer of ns, see `Metric.is_time`


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric compared across ranks, None where it is unknown.

    `median` is the lower-middle rank's own value.
    """

    metric: str
    mean: float | None
    min: Score | None
    median: Score | None
    max: Score | None
    imbalance: float | None  # max / mean - 1
    lost: int | float | None  # sum over ranks and iterations of (max - x)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that took longer than on the role's median rank, in the flagged iterations."""

    kind: CauseKind
    name: str
    excess_ns: int  # mean per flagged iteration
    share: float  # of the rank's excess
    activity: str  # kernel | kernels (several small ones) | copy | set | idle | range | host
    phase: str | None = None  # that was looked at; None: all
    evidence: tuple[str, ...] = ()  # tables that it rests on
    detail: str = ""  # what more is known of it, in words
    usual_ns: int | None = None  # mean per flagged iteration on the median rank; None: unknown
    count: int = 1  # kernels that it is of

    @property
    def suspect(self) -> CauseKind:
        """The same as `kind`, under its older name."""
        return self.kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Also:
    """Something else that costs at least 1 % of the time once the verdict's ranks are fixed.

    `gain_ns` is what fixing it would save in addition. Where gains are bounds, or the verdict's
    ranks have more to do, it is what fixing it alone would save.
    """

    kind: VerdictKind  # `class` in JSON
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    iterations: tuple[int, ...] = ()
    cause: str | None = None
    excess_ns: int
    gain_ns: int | None = None
    period: int | None = None
    since: int | None = None
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Leading:
    """The ranks that lead where the verdict names none.

    `gain_ns`: what fixing them would save; `gain`: as a share of the time. `chance`: how likely it
    is that ranks of a run in which nobody in particular is slow look like that; None where no
    chance is involved.
    """

    ranks: tuple[int, ...]
    gain_ns: int
    gain: float
    chance: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Who is slow, in what, when, and what it costs; `sentence` says it in words.

    Only `kind` and `next` are needed; the rest keeps its default where a class has nothing to say.
    `cause` is the phase with most of the excess. `gain_ns` is the time that fixing the ranks (or
    the roles, or the transfers) would save, `gain` its share of the time of the selected
    iterations.
    """

    kind: VerdictKind  # `class` in JSON: CONTRACT.md
    ranks: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    cause: str | None = None
    cause_share: float | None = None
    excess_ns: int | None = None
    excess: float | None = None
    iterations: tuple[int, ...] = ()
    iterations_share: float | None = None
    period: int | None = None
    gain_ns: int | None = None
    gain: float | None = None
    gain_is_bound: bool = False  # gains are at most these
    gain_all_ns: int | None = None  # of every rank at its role's median
    gain_all: float | None = None
    more_work_ranks: tuple[int, ...] = ()  # who is given more to do
    costless_ranks: tuple[int, ...] = ()  # usually slow, but hardly anything waits for them
    also: tuple[Also, ...] = ()
    sentence: str = ""
    next: str
    since: int | None = None  # the iteration from which on the rank is slow
    spells: tuple[tuple[int, int], ...] = ()  # first and last iteration of each slow spell
    interval: tuple[float, float] | None = None  # 95 % bootstrap interval of `excess`
    findings: tuple[Finding, ...] = ()
    leading: Leading | None = None  # of an inconclusive verdict
    holders: tuple[int, ...] = ()  # hold most of the cost of a rotating imbalance
    settles: int | None = None  # about how many iterations would settle it

    @property
    def slow_sets(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Ranks and the iterations in which they are slow: the verdict's, then the others."""
        first = (self.ranks or self.more_work_ranks, self.iterations)
        sets = (first, *((each.ranks, each.iterations) for each in self.also))
        return tuple((ranks, iterations) for ranks, iterations in sets if ranks and iterations)

    @property
    def sets_with_more_work(self) -> frozenset[tuple[int, ...]]:
        """The sets of ranks that are given more work."""
        others = (each.ranks for each in self.also if each.kind is VerdictKind.STRUCTURAL)
        return frozenset((self.more_work_ranks, *others))

    @property
    def named(self) -> tuple[int, ...]:
        """All ranks that the sentence is about: slow ones, those with more work, and the others."""
        ranks = (*self.ranks, *self.more_work_ranks)
        return tuple(dict.fromkeys((*ranks, *(rank for each in self.also for rank in each.ranks))))

    @property
    def first_sentence(self) -> str:
        """Who or what is slow, when, by how much and why."""
        first, stop, _ = self.sentence.partition(". ")
        return first + stop.strip()

    def __repr__(self) -> str:
        return f"<Verdict {self.kind}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """The verdict as a notebook shows it."""
        others = self.sentence.removeprefix(self.first_sentence).strip()
        return inline.paragraphs(self.first_sentence, others, f"Next: {self.next}.")


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one report to look at, as the GUI shows it.

    `start_ns`, `end_ns` on the report's own axis; `shared_…` on the axis of the first picked
    report, which is that of a timeline of several. None where a session's UTC start is unknown.
    """

    iteration: int
    start_ns: int
    end_ns: int
    shared_start_ns: int | None
    shared_end_ns: int | None


@dataclass(frozen=True, slots=True)
class Pick:
    """One report to open, and where to look in it."""

    label: str  # min | median | max, or slow: named by the verdict, and none of these
    rank: int
    report: Path  # as ingested
    file: Path | None  # what the GUI opens of it
    host: str | None
    pid: int
    value: float | None  # of the metric that ranked it, in its unit
    worst: Window
    typical: Window
    slow: bool = False  # named by the verdict
    has_more: bool = False  # as one that is given more work, which is no fault of it

    @property
    def title(self) -> str:
        """The label, and whether the verdict names the rank: `max, slow`; `max, more work`."""
        mark = ("more work" if self.has_more else "slow") if self.slow else ""
        return ", ".join(each for each in (self.label.removesuffix("slow"), mark) if each)

    def __repr__(self) -> str:
        return f"<Pick {self.label}: rank {self.rank}, iteration {self.worst.iteration}>"

    def _repr_html_(self) -> str:
        """The pick as a notebook shows it."""
        where = f"look at iteration {self.worst.iteration}, typical is {self.typical.iteration}"
        return inline.paragraphs(f"{self.label}: rank {self.rank}", str(self.report), where)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that qualify every number of a run."""

    name: str
    ranks: tuple[int, ...]
    world_size: int | None
    missing_ranks: tuple[int, ...]
    reports: int
    clock: str
    clock_reason: str
    iterations: tuple[int, ...]  # the chosen ones
    warmup: tuple[int, ...]  # left out of them
    settling: tuple[int, ...]  # warm-up that is among them
    matched_by: str
    clocks_aligned: bool  # all ranks' clocks are tied together
    clock_method: str  # by what
    roles: str  # given | inferred | none
    residual_ns: int | None  # the largest of those that are tied; None if none are
    offsets_ns: dict[int, int]
    drift_ppm: dict[int, float]


@dataclass(frozen=True, slots=True)
class Efficiency:
    """POP's parallel efficiency and its factors, of `work` instead of useful computation."""

    load_balance: float  # mean work / longest work, over ranks
    communication: float  # longest work / time
    parallel: float  # their product


@dataclass(frozen=True, slots=True)
class Timeline:
    """Some ranks in some iterations, in detail, on one axis.

    All times are ns since the earliest window's start by the lowest rank's clock; a rank's
    `axis` says whether they may be compared with those of other ranks.
    """

    clock: str  # gpu | host: the one the run's numbers are on
    iterations: tuple[int, ...]
    origin_utc_ns: int | None  # UTC of time 0 by the lowest rank's clock; None where unknown
    ranks: pl.DataFrame  # TIMELINE_RANKS, in the order asked for
    windows: pl.DataFrame  # TIMELINE_WINDOWS
    phases: pl.DataFrame  # TIMELINE_PHASES
    states: pl.DataFrame  # TIMELINE_STATES; no rows where nothing says them, or nobody asked
    operations: pl.DataFrame  # TIMELINE_OPERATIONS
    collectives: pl.DataFrame  # TIMELINE_COLLECTIVES
    problems: tuple[RunWarning, ...]


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The answer to `rankscope imbalance`.

    `ranks`: rank, host, role, report, `<metric>_ns`, `<metric>_z`, last_arriver_share, cost_ns,
    gain_ns. `iterations`: iteration, spread_ns, slowest_rank, cause, cluster.
    """

    metrics: tuple[MetricSummary, ...]
    ranks: pl.DataFrame
    iterations: pl.DataFrame
    verdict: Verdict
    statistic: str = "mean"
    wait_error_ns: int | None = None  # waits below it may be 0
    efficiency: Efficiency | None = None  # where work is known
    what_if: pl.DataFrame | None = None  # kind, name, time_ns, gain_ns, gain; by replay
    chained: bool = False  # some collectives are of some ranks: who comes last may have waited

    def __repr__(self) -> str:
        return f"<Imbalance of {counted(self.ranks.height, 'rank')}: {self.verdict.sentence}>"

    def _repr_html_(self) -> str:
        """The verdict, and the metrics in ms, as a notebook shows them."""
        rows = [
            (each.metric, *(_shown(score) for score in (each.min, each.median, each.max)))
            for each in self.metrics
            if each.mean is not None and METRICS[each.metric].is_time
        ]
        columns = ("metric (ms; rank)", "min", "median", "max")
        return self.verdict._repr_html_() + inline.table(columns, rows)


def _shown(score: Score | None) -> str | None:
    """A time in ms, and its rank."""
    return None if score is None else f"{score.value / 1e6:,.2f} ({score.rank})"
