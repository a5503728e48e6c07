"""Flags → who is slow, how often, in what, and what it costs (method section 9)."""

from __future__ import annotations

import polars as pl

from rankscope.compare.causes.activities import finding_sentence, findings
from rankscope.compare.verdict.candidates import (
    LEAST_COST,
    LONE_SPIKE,
    MAJORITY,
    accused_ranks,
    always_slow,
    outliers,
    steady,
)
from rankscope.compare.verdict.inputs import Evidence, gain_over_rest, rows_of, summed, time_of
from rankscope.compare.verdict.outliers import FEW_RANKS, LEAST_EXCESS, lower_median
from rankscope.compare.verdict.roles_and_hosts import heavy_role, whole_hosts
from rankscope.compare.verdict.sentences import accusation, also, ms, plural, who
from rankscope.compare.verdict.temporal import Pattern, interval, pattern
from rankscope.compare.warnings import listed
from rankscope.model.results import Verdict

MANY = 0.25
"""Share of the ranks from which on slow ranks are a group, not stragglers."""

ROTATING_COST = 0.02
ROTATING_RANKS = 3


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
    total = time_of(evidence.flags)
    ranks = evidence.flags["rank"].n_unique()
    slow = always_slow(evidence.flags, count)
    group = slow if len(slow) >= max(MANY * ranks, 2) else []
    accused = accused_ranks(evidence, ranks, total)
    minority = 2 * len(group) < ranks and evidence.replicas
    if group and minority and whole_hosts(group, evidence.hosts):
        accused = [*accused, *(rank for rank in group if rank not in accused)]
        group = []  # their host, for they do what the others do
    apart = [] if group else outliers(evidence.flags, slow)
    accused += [rank for rank in apart if rank not in accused]
    patterns = {rank: pattern(rows_of(evidence.flags, rank), numbers) for rank in accused}
    # Who is slow all the time must lie apart from all others, whose speeds differ as well, and
    # one of a slow group stands out only if it is slow in another way.
    accused = [
        rank
        for rank in accused
        if patterns[rank].kind != "persistent"
        or patterns[rank].since is not None
        or rank in apart
        or (ranks < FEW_RANKS and not group)
    ]
    accused.sort(key=lambda rank: _excess(evidence, rank, patterns[rank]), reverse=True)
    if accused:
        found = _accusation(accused, patterns, evidence, count, total)
        data = bool(found.findings) and all(each.suspect == "data" for each in found.findings)
        # Where iterations vary much, whoever was given most is nobody's fault.
        if not data or steady(evidence.flags):
            return found
    if group:
        return _group(group, evidence)
    heavy = heavy_role(evidence.wide, evidence.metric)
    if heavy is not None:
        return _structural(*heavy, evidence, count, total)
    sudden = flagged.filter(pl.col("sudden_ns") > LEAST_EXCESS * pl.col("length_ns"))
    cost = summed(sudden["excess_ns"]) / total if total else 0.0
    if cost >= ROTATING_COST and sudden["rank"].n_unique() >= ROTATING_RANKS:
        return _rotating(sudden, count, cost)
    return _balanced(evidence, flagged, count, total)


def _accusation(
    accused: list[int],
    patterns: dict[int, Pattern],
    evidence: Evidence,
    count: int,
    total: int,
) -> Verdict:
    """The class of the worst rank, with others that are slow in the same way."""
    mine = {rank: rows_of(evidence.flags, rank) for rank in accused}
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
    excess = round(summed(chosen["excess_ns"]) / chosen.height)
    theirs = evidence.flags.filter(pl.col("role").is_in(chosen["role"].unique().implode()))
    typical = int(theirs.select(lower_median(pl.col("length_ns"))).item())
    cause, share = causes[worst]
    hosts = whole_hosts(ranks, evidence.hosts)
    whose = who(ranks, evidence.hosts, hosts)
    gain = evidence.replayed(ranks, iterations)
    gain = gain_over_rest(evidence, ranks, iterations) if gain is None else gain
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
    inside = f" In it: {'; '.join(map(finding_sentence, why))}." if why else ""
    rest = _others(accused, ranks, patterns, causes, mine) + _spikes(
        evidence.flags.filter("flagged"), set(accused), total
    )
    return Verdict(
        kind=found.kind,
        ranks=ranks,
        roles=(),
        hosts=hosts,
        cause=cause,
        cause_share=None if cause is None else share,
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
        next=f"open {'its report' if len(ranks) == 1 else 'their reports'} beside a normal one: "
        "rankscope pick-reports",
        since=found.since,
        interval=interval(chosen["excess_ns"] / typical) if typical else None,
        findings=why,
    )  # fmt: skip


def _excess(evidence: Evidence, rank: int, found: Pattern) -> int:
    """The excess of a rank in all iterations of its pattern: the worst rank has most."""
    mine = rows_of(evidence.flags, rank).filter(pl.col("iteration").is_in(found.iterations))
    return summed(mine["excess_ns"])


def _cause(
    flags: pl.DataFrame, ranks: list[int], iterations: list[int]
) -> tuple[str | None, float]:
    """The phase that explains most of the ranks' excess, and its share of it."""
    mine = flags.filter(pl.col("rank").is_in(ranks) & pl.col("iteration").is_in(iterations))
    return _largest(mine)


def _largest(mine: pl.DataFrame) -> tuple[str | None, float]:
    """The phase with most of `excess_ns`, and its share."""
    sums = {
        name.removesuffix("_excess"): summed(mine[name].drop_nulls())
        for name in mine.columns
        if name.endswith("_excess")
    }
    if not {name for name, excess in sums.items() if excess} - {"other"}:
        return None, 0.0  # where no phase is known all time is `other`, and that causes nothing
    cause = max(sums, key=lambda name: sums[name])
    return cause, min(1.0, sums[cause] / max(summed(mine["excess_ns"]), 1))


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


def _others(
    accused: list[int],
    named: tuple[int, ...],
    patterns: dict[int, Pattern],
    causes: dict[int, tuple[str | None, float]],
    rows: dict[int, pl.DataFrame],
) -> str:
    """Ranks that are slow, too, but in another way than those that the verdict names."""
    said = []
    for rank in [rank for rank in accused if rank not in named][:3]:
        when = patterns[rank].iterations
        excess = rows[rank].filter(pl.col("iteration").is_in(when))["excess_ns"]
        said.append(also(rank, when, round(summed(excess) / max(len(excess), 1)), causes[rank][0]))
    return "".join(said)


def _spikes(flagged: pl.DataFrame, named: set[int], total: int) -> str:
    """Single large excesses of ranks that nobody named so far."""
    spikes = flagged.filter(
        ~pl.col("rank").is_in(named)
        & (pl.col("excess_ns") >= LEAST_COST * total)
        & (pl.col("excess_ns") >= LONE_SPIKE * pl.col("length_ns"))
    ).sort("excess_ns", descending=True)
    return "".join(
        also(row["rank"], [row["iteration"]], row["excess_ns"], row["cause"])
        for row in spikes.head(3).iter_rows(named=True)
    )


def _group(slow: list[int], evidence: Evidence) -> Verdict:
    """Many ranks that are slow in nearly every iteration: a slow host, or work given to them."""
    ranks = evidence.flags["rank"].unique().to_list()
    theirs = evidence.flags.filter(pl.col("rank").is_in(slow))
    excess = round(summed(theirs["excess_ns"]) / theirs.height)
    typical = int(evidence.flags.select(lower_median(pl.col("length_ns"))).item())
    cause, share = _cause(theirs, slow, theirs["iteration"].unique().to_list())
    hosts = whole_hosts(slow, evidence.hosts)
    where = f", all those of {', '.join(hosts)}," if hosts else ""
    return inconclusive(
        f"{len(slow)} of {len(ranks)} ranks ({listed(slow)}){where} need {ms(excess)} "
        f"more {evidence.metric} than the median rank, {excess / typical:.0%} of the median "
        f"iteration{'' if cause is None else f', {share:.0%} of it in {cause}'}: their host may be "
        "slow, or their part of the job larger by design",
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
    excess = round(summed(hit["excess_ns"]) / hit.height)
    typical = int(apart.select(lower_median(pl.col("length_ns"))).item())
    cause, share = _largest(hit)
    return Verdict(
        kind="structural", ranks=(), roles=(role,), hosts=(), cause=cause,
        cause_share=None if cause is None else share,
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
    excess = round(summed(flagged["excess_ns"]) / flagged.height)
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
        next="compare what the ranks are given: sequence lengths, batch contents, storage, other "
        "load on their hosts",
    )  # fmt: skip


def _balanced(evidence: Evidence, flagged: pl.DataFrame, count: int, total: int) -> Verdict:
    ranks = evidence.flags["rank"].n_unique()
    lone = flagged.group_by("iteration").agg(pl.col("excess_ns").max())
    share = summed(lone["excess_ns"]) / max(total, 1)
    rest = (
        "no rank stands out"
        if flagged.is_empty()
        else f"no rank stands out but by {plural(flagged.height, 'lone excess', 'lone excesses')}, "
        f"{share:.1%} of the time in all"
    )
    few = ", by bootstrap since there are so few" if ranks < FEW_RANKS else ""
    return Verdict(
        kind="balanced", ranks=(), roles=(), hosts=(), cause=None, cause_share=None,
        excess_ns=None, excess=None, iterations=(), iterations_share=None, period=None,
        gain_ns=None, gain=None,
        sentence=f"Balanced: over {count} iterations of {ranks} ranks {rest}{few}.",
        next="look for time that all ranks spend alike: rankscope imbalance --by phase",
    )  # fmt: skip
