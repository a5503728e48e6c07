"""The results of comparing the ranks of a run, as frozen records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field
from msgspec.structs import force_setattr

from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS
from rankscope.model.reports import RunWarning
from rankscope.util import inline
from rankscope.util.meaning import says
from rankscope.util.wording import counted

if TYPE_CHECKING:
    import polars as pl


class Score(Struct, frozen=True):
    """A rank and its score, in the metric's unit."""

    rank: int
    value: int | float  # an integer of ns, see `Metric.is_time`


class MetricSummary(Struct, frozen=True):
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


class Finding(Struct, frozen=True):
    """One reason of the excess."""

    kind: Annotated[CauseKind, says("the cause")]
    name: Annotated[str, says("the name of the activity")]
    excess_ns: Annotated[int, says("mean excess per flagged iteration")]
    share: Annotated[float, says("share of the excess of `ranks`")]
    activity: Annotated[
        str,
        says("`kernel`, `kernels`, `copy`, `set`, `idle`, `range`, `host` (what the thread did)"),
    ]
    phase: Annotated[str | None, says("phase that was looked at; null: all")] = None
    evidence: Annotated[tuple[str, ...], says("tables that it rests on")] = ()
    detail: Annotated[str, says("what more is known of it, in words; may be empty")] = ""
    usual_ns: Annotated[
        int | None, says("mean per flagged iteration on the median rank; null: unknown")
    ] = None
    count: Annotated[int, says("how many kernels it is of")] = 1
    ranks: Annotated[tuple[int, ...], says("the slow ranks that it is about")] = ()
    suspect: Annotated[CauseKind, says("the same as `kind`, under its older name")] = (
        CauseKind.UNEXPLAINED
    )

    def __post_init__(self) -> None:
        force_setattr(self, "suspect", self.kind)


class Also(Struct, frozen=True, kw_only=True):
    """Something else that costs at least 1 % of the time."""

    kind: Annotated[VerdictKind, says("its class")] = field(name="class")
    ranks: Annotated[tuple[int, ...], says("its ranks")] = ()
    hosts: Annotated[tuple[str, ...], says("its hosts")] = ()
    iterations: Annotated[tuple[int, ...], says("the iterations in which its ranks are slow")] = ()
    cause: Annotated[str | None, says("the phase with most of its excess")] = None
    excess_ns: Annotated[int, says("its mean excess over the role's median")]
    gain_ns: Annotated[
        int | None,
        says(
            "what repairing it would save in addition; where gains are bounds, or the verdict's "
            "ranks have more to do, what repairing it alone would save"
        ),
    ] = None
    period: Annotated[int | None, says("k, where its ranks are slow in every k-th iteration")] = (
        None
    )
    since: Annotated[int | None, says("the iteration from which on its ranks are slow")] = None
    sentence: Annotated[str, says("what it is, in words")] = ""


class Leading(Struct, frozen=True):
    """The ranks that lead where the verdict names none."""

    ranks: Annotated[tuple[int, ...], says("the ranks that lead")]
    gain_ns: Annotated[
        int, says("what fixing the leading ranks would save, over the selected iterations")
    ]
    gain: Annotated[float, says("`gain_ns` as a fraction of the time")]
    chance: Annotated[
        float | None,
        says(
            "how likely ranks lead as clearly in a run in which nobody in particular is slow; "
            "null where no chance is involved"
        ),
    ]


class Holder(Struct, frozen=True):
    """A rank of a `rotating` verdict."""

    rank: Annotated[int, says("the rank")]
    iterations: Annotated[
        tuple[int, ...], says("the iterations in which it holds most of what imbalance costs")
    ]


class Verdict(Struct, frozen=True, kw_only=True):
    """Who is slow, in what, when, and what it costs."""

    kind: Annotated[VerdictKind, says("the class of the verdict")] = field(name="class")
    ranks: Annotated[
        tuple[int, ...],
        says(
            "the slow ranks; empty for `balanced`, `communication`, `rotating`, `structural` and "
            "`inconclusive`"
        ),
    ] = ()
    roles: Annotated[tuple[str, ...], says("the role of a structural verdict")] = ()
    hosts: Annotated[tuple[str, ...], says("hosts that are slow as a whole")] = ()
    cause: Annotated[str | None, says("the phase with most of the excess")] = None
    cause_share: Annotated[float | None, says("the share of that phase in the excess")] = None
    excess_ns: Annotated[
        int | None, says("mean excess over the role's median in `verdict.iterations`")
    ] = None
    excess: Annotated[
        float | None, says("`excess_ns` as a fraction of the role's median iteration")
    ] = None
    iterations: Annotated[
        tuple[int, ...], says("the selected iterations in which the ranks are slow")
    ] = ()
    iterations_share: Annotated[
        float | None, says("the share of `iterations` in the selected ones, or in a sample of them")
    ] = None
    period: Annotated[int | None, says("k, where the ranks are slow in every k-th iteration")] = (
        None
    )
    gain_ns: Annotated[
        int | None, says("what a repair would save over the selected iterations")
    ] = None
    gain: Annotated[float | None, says("`gain_ns` as a fraction of the time")] = None
    gain_is_bound: Annotated[
        bool,
        says(
            "`true` where the gains are at most these (METHOD.md#what-if says when), or where "
            "waiting for the network is all there is"
        ),
    ] = False
    gain_all_ns: Annotated[
        int | None,
        says(
            "what would be saved if every rank and role were at its median, and every transfer "
            "as usual; less than `leading.gain_ns` where most ranks may be slow, because that "
            "compares them with the fast ones"
        ),
    ] = None
    gain_all: Annotated[float | None, says("`gain_all_ns` as a fraction of the time")] = None
    more_work_ranks: Annotated[tuple[int, ...], says("the ranks that are given more to do")] = ()
    also: Annotated[
        tuple[Also, ...], says("up to three others that cost at least 1 % of the time")
    ] = ()
    sentence: Annotated[str, says("the answer in words")] = ""
    next: Annotated[str, says("what would settle it or what to look at")]
    since: Annotated[int | None, says("the first iteration of a lasting change")] = None
    spells: Annotated[
        tuple[tuple[int, int], ...], says("first and last iteration of each slow spell")
    ] = ()
    findings: Annotated[
        tuple[Finding, ...], says("reasons of the excess, of the same ranks the largest first")
    ] = ()
    leading: Annotated[
        Leading | None,
        says("of some verdicts that name nobody: the ranks that lead; else null"),
    ] = None
    holders: Annotated[
        tuple[Holder, ...],
        says(
            "of a `rotating` verdict: the ranks that hold most of what imbalance costs, each in "
            "different iterations; empty where ranks differ at once or all loaders are slow"
        ),
    ] = ()
    members: Annotated[
        tuple[int, ...],
        says(
            "of a `communication` verdict on a slow communicator: its ranks; on several, those "
            "that all have, or the ranks of the slowest one"
        ),
    ] = ()
    settles: Annotated[
        int | None,
        says(
            "about how many iterations would settle an `inconclusive` verdict; null where that "
            "is unknown, or another capture is needed"
        ),
    ] = None

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


class Window(Struct, frozen=True):
    """Where to look, on the report's own axis and on that of the first picked report."""

    iteration: Annotated[int, says("the iteration to look at")]
    start_ns: Annotated[
        int, says("where to look, in the report's own time: from the end of the iteration before")
    ]
    end_ns: Annotated[int, says("where the part to look at ends, in the report's own time")]
    shared_start_ns: Annotated[
        int | None, says("`start_ns` in the time of the first picked report; null: unknown")
    ]
    shared_end_ns: Annotated[
        int | None, says("`end_ns` in the time of the first picked report; null: unknown")
    ]


class Pick(Struct, frozen=True):
    """One report to open, and where to look in it."""

    label: str  # min | median | max; of none of these: slow (named by the verdict), or leads
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
    leads: bool = False  # where the verdict names nobody

    @property
    def mark(self) -> str:
        """What the verdict says of the rank: `slow`, `more work`, `leads`, or nothing."""
        return ("more work" if self.has_more else "slow") if self.slow else "leads" * self.leads

    @property
    def title(self) -> str:
        """The label and the mark: `max, slow`; `max, more work`; of none of the three, `slow`."""
        label = "" if self.label in ("slow", "leads") else self.label
        return ", ".join(filter(None, (label, self.mark)))

    def __repr__(self) -> str:
        return f"<Pick {self.label}: rank {self.rank}, iteration {self.worst.iteration}>"

    def _repr_html_(self) -> str:
        """The pick as a notebook shows it."""
        where = f"look at iteration {self.worst.iteration}, typical is {self.typical.iteration}"
        return inline.paragraphs(f"{self.label}: rank {self.rank}", str(self.report), where)


class RunFacts(Struct, frozen=True):
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


class Efficiency(Struct, frozen=True):
    """POP's parallel efficiency and its factors, of work instead of useful computation."""

    load_balance: Annotated[float, says("POP's load balance: mean work / longest work, over ranks")]
    communication: Annotated[float, says("POP's communication efficiency: longest work / time")]
    parallel: Annotated[float, says("the product of both")]


class Timeline(Struct, frozen=True):
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


class Imbalance(Struct, frozen=True):
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
