"""Flags → who is slow, how often, in what, and what it costs (method section 9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import polars as pl

from rankscope.compare.cause import findings, told
from rankscope.compare.flags import (
    FEW_RANKS,
    LEAST_EXCESS,
    LEAST_Z,
    lower_median,
    modified_z,
    surely_slow,
)
from rankscope.compare.pattern import PERSISTENT, Pattern, interval, pattern
from rankscope.compare.problems import listed
from rankscope.compare.structure import heavy_role, whole_hosts
from rankscope.compare.words import accusation, ms, plural, who
from rankscope.records import Verdict

LEAST_COST = 0.01
"""Share of the time that a rank's flagged excess must cost before the rank is accused."""

MAJORITY = 0.5
"""A rank that holds this share of all flagged excess is not one of many."""

LONE_SPIKE = 0.2
"""An excess in a single iteration must be at least this share of it: noise spikes too."""

STRONG = 0.10
"""Flags that are usually weaker than this share of the iteration must be worth mending."""

UNLIKELY = 0.001
"""Chance of so many flags on one rank if they fell anywhere, over all ranks."""

MANY = 0.25
"""Share of the ranks from which on slow ranks are a group, not stragglers."""

ROTATING_COST = 0.02
ROTATING_RANKS = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a verdict rests on."""

    flags: pl.DataFrame  # as `flags.flag` returns it
    wide: pl.DataFrame  # rank, role, iteration, `<metric>_ns`
    metric: str  # what was flagged: work, or load where work is unknown
    hosts: dict[int, str | None]
    missing: int  # ranks of the job that no report is of
    activities: pl.DataFrame  # ACTIVITIES
    replicas: bool  # it is known that the ranks of a role do the same work
    replayed: Callable[[tuple[int, ...], list[int]], int | None]
    """Time saved if the ranks were at their role's median in the iterations; None: unknown."""


def inconclusive(reason: str, settle: str, hosts: tuple[str, ...] = ()) -> Verdict:
    """No verdict: why, and what would settle it."""
    return Verdict(
        kind="inconclusive", ranks=(), roles=(), hosts=hosts, cause=None, cause_share=None,
        excess_ns=None, excess=None, iterations=(), iterations_share=None, period=None,
        gain_ns=None, gain=None, sentence=f"Inconclusive: {reason}.", next=settle,
    )  # fmt: skip


def judge(evidence: Evidence) -> Verdict:
    """The verdict of a run of several ranks with enough iterations."""
    flagged = evidence.flags.filter("flagged")
    numbers = evidence.flags["iteration"].unique().sort().to_list()
    count = len(numbers)
    total = _total(evidence.flags)
    ranks = evidence.flags["rank"].n_unique()
    slow = _always_slow(evidence.flags, count)
    group = slow if len(slow) >= max(MANY * ranks, 2) else []
    accused = _accused(evidence, ranks, total)
    minority = 2 * len(group) < ranks and evidence.replicas
    if group and minority and whole_hosts(group, evidence.hosts):
        accused = [*accused, *(rank for rank in group if rank not in accused)]
        group = []  # their host, for they do what the others do
    if not group:
        accused += [rank for rank in _outliers(evidence.flags, slow) if rank not in accused]
    patterns = {rank: pattern(_of(evidence.flags, rank), numbers) for rank in accused}
    # One of a group that is slow all the time stands out only if it is slow in another way.
    accused = [rank for rank in accused if rank not in group or patterns[rank].kind != "persistent"]
    if accused:
        return _accusation(accused, patterns, evidence, count, total)
    if group:
        return _group(group, evidence)
    heavy = heavy_role(evidence.wide, evidence.metric)
    if heavy is not None:
        return _structural(*heavy, evidence, count, total)
    cost = _sum(flagged["excess_ns"]) / total if total else 0.0
    if cost >= ROTATING_COST and flagged["rank"].n_unique() >= ROTATING_RANKS:
        return _rotating(flagged, count, cost)
    return _balanced(evidence, flagged, count)


def _of(flags: pl.DataFrame, rank: int) -> pl.DataFrame:
    return flags.filter(pl.col("rank") == rank)


def _accused(evidence: Evidence, ranks: int, total: int) -> list[int]:
    """Ranks whose flags cost something and did not fall on them by chance, worst first."""
    flagged = evidence.flags.filter("flagged")
    every = _sum(flagged["excess_ns"])
    found = []
    for rank, excess, count, highest, usual in (
        flagged.group_by("rank")
        .agg(
            excess=pl.col("excess_ns").sum(),
            count=pl.len(),
            highest=(pl.col("excess_ns") / pl.col("length_ns")).max(),
            usual=(pl.col("excess_ns") / pl.col("length_ns")).median(),
        )
        .sort("excess", "rank", descending=[True, False])
        .iter_rows()
    ):
        if excess < LEAST_COST * total or (count == 1 and highest < LONE_SPIKE):
            continue
        iterations = _of(flagged, rank)["iteration"].to_list()
        gain = _gain(evidence, (rank,), iterations)
        if usual < STRONG and gain is not None and gain < LEAST_COST * total:
            continue  # little each time, and others are nearly as slow then: drifting speeds
        if excess >= MAJORITY * every or _tail(count, flagged.height, ranks) * ranks < UNLIKELY:
            found.append(int(rank))
    return found


def _always_slow(flags: pl.DataFrame, count: int) -> list[int]:
    """Ranks that are surely slow on average, and slow in most iterations."""
    often = (
        flags.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
        .group_by("rank")
        .len()
        .filter(pl.col("len") >= PERSISTENT * count)
    )
    return surely_slow(flags.join(often, on="rank", how="semi"))


def _outliers(flags: pl.DataFrame, slow: list[int]) -> list[int]:
    """Those of the surely slow ranks whose mean excess lies apart from the other ranks'."""
    means = flags.group_by("rank").agg(excess=pl.col("excess_ns").mean()).sort("rank")
    apart = means.filter(modified_z(pl.col("excess"), []) > LEAST_Z)["rank"].to_list()
    return [rank for rank in slow if rank in apart]


def _tail(count: int, flags: int, ranks: int) -> float:
    """Chance that at least `count` of `flags` fall on one given rank of `ranks` (normal tail)."""
    mean = flags / ranks
    deviation = (mean * (1 - 1 / ranks)) ** 0.5
    return 1.0 if deviation == 0 else 1 - NormalDist(mean, deviation).cdf(count - 0.5)


def _accusation(
    accused: list[int],
    patterns: dict[int, Pattern],
    evidence: Evidence,
    count: int,
    total: int,
) -> Verdict:
    """The class of the worst rank, with others that are slow in the same way."""
    mine = {rank: _of(evidence.flags, rank) for rank in accused}
    worst = accused[0]
    found = patterns[worst]
    causes = {rank: _cause(mine[rank], [rank], patterns[rank].iterations) for rank in accused}
    ranks = tuple(
        sorted(
            rank
            for rank in accused
            if patterns[rank].kind == found.kind and causes[rank][0] == causes[worst][0]
        )
    )
    iterations = sorted({number for rank in ranks for number in patterns[rank].iterations})
    chosen = pl.concat(
        [mine[rank].filter(pl.col("iteration").is_in(patterns[rank].iterations)) for rank in ranks]
    )
    excess = round(_sum(chosen["excess_ns"]) / chosen.height)
    theirs = evidence.flags.filter(pl.col("role").is_in(chosen["role"].unique().implode()))
    typical = int(theirs.select(lower_median(pl.col("length_ns"))).item())
    cause, share = causes[worst]
    hosts = whole_hosts(ranks, evidence.hosts)
    whose = who(ranks, evidence.hosts, hosts)
    gain = evidence.replayed(ranks, iterations)
    gain = _gain(evidence, ranks, iterations) if gain is None else gain
    why = findings(
        evidence.activities,
        dict(evidence.wide.select("rank", "role").unique().iter_rows()),
        chosen,
        cause,
    )
    contended = sum(each.share for each in why if each.suspect == "contention")
    if contended > MAJORITY * sum(each.share for each in why):
        return inconclusive(
            f"{whose} needs {ms(excess)} more {evidence.metric} than the median rank, but in "
            f"kernels that run slower only beside collectives ({why[0].name}): they compete for "
            "the device",
            "compare a run without overlap, or with fewer channels for collectives "
            "(NCCL_MAX_NCHANNELS); check the device's memory clock",
        )
    inside = f" In it: {'; '.join(map(told, why))}." if why else ""
    rest = _also(evidence.flags.filter("flagged"), set(ranks), total)
    return Verdict(
        kind=found.kind,
        ranks=ranks,
        roles=(),
        hosts=hosts,
        cause=cause,
        cause_share=share,
        excess_ns=excess,
        excess=excess / typical if typical else None,
        iterations=tuple(iterations),
        iterations_share=len(iterations) / count,
        period=found.period,
        gain_ns=gain,
        gain=gain / total if gain is not None and total else None,
        sentence=accusation(
            who(ranks, evidence.hosts, hosts), len(hosts or ranks), found, iterations, count, cause,
            share, excess, typical, inside, gain, total, evidence.metric,
        ) + rest + _reserve(evidence),
        next="open its report beside a normal one: rankscope pick-reports",
        since=found.since,
        interval=interval(chosen["excess_ns"] / typical) if typical else None,
        findings=why,
    )  # fmt: skip


def _cause(
    flags: pl.DataFrame, ranks: list[int], iterations: list[int]
) -> tuple[str | None, float]:
    """The phase that explains most of the ranks' excess, and its share of it."""
    mine = flags.filter(pl.col("rank").is_in(ranks) & pl.col("iteration").is_in(iterations))
    return _largest(mine)


def _largest(mine: pl.DataFrame) -> tuple[str | None, float]:
    """The phase with most of `excess_ns`, and its share."""
    sums = {
        name.removesuffix("_excess"): _sum(mine[name].drop_nulls())
        for name in mine.columns
        if name.endswith("_excess")
    }
    if not sums:
        return None, 0.0
    cause = max(sums, key=lambda name: sums[name])
    return cause, min(1.0, sums[cause] / max(_sum(mine["excess_ns"]), 1))


def _gain(evidence: Evidence, ranks: tuple[int, ...], iterations: list[int]) -> int | None:
    """Time saved if the ranks had been like the slowest of the others in those iterations."""
    if evidence.metric != "work":
        return None
    work = evidence.wide.filter(pl.col("iteration").is_in(iterations))
    theirs = pl.col("rank").is_in(ranks)
    per = work.group_by("iteration").agg(
        slowest=pl.col("work_ns").max(), rest=pl.col("work_ns").filter(~theirs).max()
    )
    return _sum((per["slowest"] - per["rest"]).drop_nulls())


def _reserve(evidence: Evidence) -> str:
    """What weakens an accusation, said beside it."""
    ranks = evidence.flags["rank"].n_unique()
    few = f" With {ranks} ranks a bootstrap over iterations decides." if ranks < FEW_RANKS else ""
    others = (
        f" {plural(evidence.missing, 'rank')} of the job have no report."
        if evidence.missing > 1
        else " One rank of the job has no report."
        if evidence.missing
        else ""
    )
    return few + others


def _also(flagged: pl.DataFrame, named: set[int], total: int) -> str:
    """Single large excesses of ranks that the verdict does not name."""
    spikes = flagged.filter(
        ~pl.col("rank").is_in(named)
        & (pl.col("excess_ns") >= LEAST_COST * total)
        & (pl.col("excess_ns") >= LONE_SPIKE * pl.col("length_ns"))
    ).sort("excess_ns", descending=True)
    return "".join(
        f" Also rank {row['rank']} in iteration {row['iteration']}: "
        f"{ms(row['excess_ns'])} more, in {row['cause']}."
        for row in spikes.head(3).iter_rows(named=True)
    )


def _group(slow: list[int], evidence: Evidence) -> Verdict:
    """Many ranks that are slow in nearly every iteration: a slow host, or work given to them."""
    ranks = evidence.flags["rank"].unique().to_list()
    theirs = evidence.flags.filter(pl.col("rank").is_in(slow))
    excess = round(_sum(theirs["excess_ns"]) / theirs.height)
    typical = int(evidence.flags.select(lower_median(pl.col("length_ns"))).item())
    cause, share = _cause(theirs, slow, theirs["iteration"].unique().to_list())
    hosts = whole_hosts(slow, evidence.hosts)
    where = f", all those of {', '.join(hosts)}," if hosts else ""
    return inconclusive(
        f"{len(slow)} of {len(ranks)} ranks ({listed(slow)}){where} need {ms(excess)} "
        f"more {evidence.metric} than the median rank, {excess / typical:.0%} of the median "
        "iteration, "
        f"{share:.0%} of it in {cause}: their host may be slow, or their part of the job larger "
        "by design",
        "if their part is larger by design, nobody is slow; if not, compare one of them with one "
        "of the others: rankscope pick-reports --metric work; --roles tells what is by design",
        hosts,
    )


def _structural(
    role: str, apart: pl.DataFrame, evidence: Evidence, count: int, total: int
) -> Verdict:
    """A role that needs more than the others in most iterations."""
    ranks = evidence.wide.filter(pl.col("role") == role)["rank"].unique().sort().to_list()
    hit = apart.filter(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns"))
    excess = round(_sum(hit["excess_ns"]) / hit.height)
    typical = int(apart.select(lower_median(pl.col("length_ns"))).item())
    cause, share = _largest(hit)
    return Verdict(
        kind="structural", ranks=(), roles=(role,), hosts=(), cause=cause, cause_share=share,
        excess_ns=excess, excess=excess / typical if typical else None,
        iterations=tuple(hit["iteration"].sort().to_list()), iterations_share=hit.height / count,
        period=None, gain_ns=None, gain=None,
        sentence=f"By design: the {plural(len(ranks), 'rank')} of role {role!r} ({listed(ranks)}) "
        f"need {ms(excess)} more {evidence.metric} than the median role in {hit.height} of {count} "
        f"iterations, {excess / typical:.0%} of the iteration"
        f"{'' if cause is None else f', {share:.0%} of it in {cause}'}; no rank is to blame.",
        next="balance what the roles are given: layers per stage, embedding and loss",
        interval=interval(hit["excess_ns"] / typical) if typical else None,
    )  # fmt: skip


def _rotating(flagged: pl.DataFrame, count: int, cost: float) -> Verdict:
    iterations = flagged["iteration"].unique().sort().to_list()
    ranks = flagged["rank"].n_unique()
    excess = round(_sum(flagged["excess_ns"]) / flagged.height)
    causes = flagged["cause"].drop_nulls().value_counts(sort=True)
    cause = None if causes.is_empty() else causes["cause"][0]
    return Verdict(
        kind="rotating", ranks=(), roles=(), hosts=(), cause=cause,
        cause_share=None if cause is None else causes["count"][0] / flagged.height,
        excess_ns=excess, excess=None, iterations=tuple(iterations),
        iterations_share=len(iterations) / count, period=None, gain_ns=None, gain=None,
        sentence=f"A different rank is slow each time: {ranks} ranks stand out in "
        f"{len(iterations)} of {count} iterations, by {ms(excess)} on average, together "
        f"{cost:.1%} of the time{'' if cause is None else f', mostly in {cause}'}; no rank is to "
        "blame.",
        next="compare what the ranks are given: sequence lengths, batch contents, storage",
    )  # fmt: skip


def _balanced(evidence: Evidence, flagged: pl.DataFrame, count: int) -> Verdict:
    ranks = evidence.flags["rank"].n_unique()
    rest = (
        "no rank stands out"
        if flagged.is_empty()
        else f"{plural(flagged.height, 'lone excess', 'lone excesses')} cost less than "
        f"{LEAST_COST:.0%} of the time"
    )
    few = ", by bootstrap since there are so few" if ranks < FEW_RANKS else ""
    return Verdict(
        kind="balanced", ranks=(), roles=(), hosts=(), cause=None, cause_share=None,
        excess_ns=None, excess=None, iterations=(), iterations_share=None, period=None,
        gain_ns=None, gain=None,
        sentence=f"Balanced: over {count} iterations of {ranks} ranks {rest}{few}.",
        next="look for time that all ranks spend alike: rankscope imbalance --by phase",
    )  # fmt: skip


def _total(flags: pl.DataFrame) -> int:
    """The chosen iterations' time: the sum of the median rank's iterations."""
    per = flags.group_by("iteration").agg(pl.col("length_ns").max())
    return _sum(per["length_ns"])


def _sum(values: pl.Series) -> int:
    return int(values.sum() or 0)
