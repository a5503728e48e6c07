"""The end of a verdict's sentences, which says the same of each class.

What fixing it would save, what else is slow, what all imbalance costs, and what limits the verdict.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from msgspec.structs import replace

from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.judgement import Judgement, Straggler, holders
from rankscope.judge.levels import ALPHA, FEW, HALF, LARGE_TRANSFER, LEAST_GAIN, MOST, MUCH
from rankscope.judge.phrases import all_on, lowered, when, who, whole_hosts
from rankscope.judge.timing import quick_part
from rankscope.model.intervals import Floats
from rankscope.model.kinds import Phase, VerdictKind
from rankscope.model.results import Also, Verdict
from rankscope.util.wording import (
    MOST_LISTED,
    agreeing,
    counted,
    duration,
    gigabytes,
    ms,
    percent,
    ranks_text,
    span,
)


def finished(verdict: Verdict, judged: Judgement) -> Verdict:
    """The verdict of a rule, with what all classes have, and the end of its sentence.

    Args:
        verdict: its sentence has no full stop, and ends before the gain if there is one.
        judged: what it rests on.
    """
    total, count = judged.inputs.total_ns, len(judged.inputs.numbers)
    undecided = verdict.kind is VerdictKind.INCONCLUSIVE
    if undecided and verdict.leading is None and verdict.gain_all_ns is None:
        return verdict  # too much is unknown
    # the sentence names those who lead; others may be slow beyond chance
    led = () if verdict.leading is None else verdict.leading.ranks
    others = [] if verdict.kind is VerdictKind.BALANCED else judged.others
    before = (verdict.ranks or verdict.more_work_ranks, *(other.claim.ranks for other in others))
    also = [_also(judged, other, last) for other, last in zip(others, before, strict=False)]
    lists_costs = verdict.gain_is_bound  # the sentence of the rule does
    members = np.isin(judged.inputs.excess.ranks, before[0])
    length = judged.inputs.excess.length[members if members.any() else ...]
    typical = float(np.nanmedian(length))
    share = len(verdict.iterations) / count if verdict.iterations else None
    verdict = replace(
        verdict,
        excess=verdict.excess_ns / typical if verdict.excess_ns and typical else None,
        gain_all_ns=judged.cost_ns,
        gain_all=judged.cost_ns / total,
        gain=None if verdict.gain_ns is None else verdict.gain_ns / total,
        iterations_share=verdict.iterations_share or share,  # of a sample, where that is looked at
        gain_is_bound=verdict.gain_is_bound or bool(judged.at_most),
        also=tuple(each for each in also if (each.ranks, len(each.iterations)) != (led, count)),
    )
    sentence = verdict.sentence.removesuffix(".")
    if verdict.gain_ns is not None:
        at_most = "at most " if verdict.gain_is_bound else ""
        sentence += (
            f" {at_most}{duration(verdict.gain_ns)}, {percent(verdict.gain or 0)} of the time "
            f"({duration(total)})"
        )
    clauses = [lowered(each.sentence.removesuffix(".")) for each in verdict.also]
    if verdict.gain_ns is not None and not lists_costs:
        clauses += [*_costs(judged), *_reservations(verdict, judged)]
    if undecided:
        clauses += _unreported(judged.inputs)
    if far := judged.inputs.run.far_ranks:
        clauses.append(
            f"all this holds only if {ranks_text(far, MOST_LISTED)} and the others are of one run, "
            "though the clocks of the hosts are a minute or more apart"
        )
    return replace(verdict, sentence="; ".join([sentence, *clauses]) + ".")


def described(inputs: VerdictInputs, straggler: Straggler) -> Also:
    """A straggler, without a sentence."""
    claim, pattern = straggler.claim, straggler.claim.pattern
    excess, cause, _ = inputs.extent(claim)
    return Also(
        kind=VerdictKind.STRUCTURAL if straggler.is_by_design else pattern.kind,
        ranks=claim.ranks,
        hosts=whole_hosts(claim.ranks, inputs.hosts),
        iterations=pattern.iterations,
        cause=cause,
        excess_ns=round(float(excess.mean())) if len(excess) else 0,
        gain_ns=straggler.gain_ns,
        period=pattern.period,
        since=pattern.since,
    )


def _also(judged: Judgement, other: Straggler, last: tuple[int, ...]) -> Also:
    """Another straggler, with its sentence, which leaves out ranks that were the last named."""
    inputs, also = judged.inputs, described(judged.inputs, other)
    name = "" if also.ranks == last else f"{lowered(who(also.ranks, inputs.hosts, also.hosts))} "
    then = when(also, len(inputs.numbers), of_captures=inputs.run.of_captures)
    more = "more to do" if other.is_by_design else "more"
    phase = "" if also.cause is None else f", mostly in {also.cause}"
    return replace(
        also,
        sentence=f"Also {name}{then}: {ms(also.excess_ns)} {more}{phase}, "
        f"{judged.part(other.gain_ns)} of the time.",
    )


def _costs(judged: Judgement) -> Iterator[str]:
    """Clauses: the cost of all imbalance, and of what is left of it."""
    total = judged.inputs.total_ns
    if judged.main is None:
        return
    yield f"all imbalance together costs {judged.part(judged.cost_ns)}"
    if judged.left_ns >= max((1 - MOST) * judged.everything_ns, LEAST_GAIN * total):
        remaining = percent(judged.left_ns / total)
        still = "may still cost up to" if judged.at_most else "still costs"  # bounds overlap
        events = sorted(holders(judged.inputs, judged.left))
        rare = all(2 * len(numbers) < len(judged.inputs.numbers) for _, numbers in events)
        words = in_words(events, judged.inputs, judged.left, judged.left_ns) if rare else ""
        most = f", mostly {words}" if words else ""
        yield f"after these fixes it {still} {remaining}{most}"


def in_words(
    events: Sequence[tuple[int, list[int]]], inputs: VerdictInputs, amount: Floats, cost_ns: float
) -> str:
    """`rank 0 in iteration 7 and rank 3 in iterations 1, 4`.

    Empty where that is too long, or not half of the cost.

    Args:
        events: ranks and iterations, as of `holders`.
        inputs: of the run.
        amount: what ranks cost: rank by iteration, ns.
        cost_ns: what all costs, with slow transfers and what is no event.
    """
    excess = inputs.excess
    covered = sum(
        amount[np.ix_(excess.ranks == rank, np.isin(excess.numbers, numbers))].sum()
        for rank, numbers in events
    )
    listed = len(events) <= FEW and all(0 < len(numbers) <= FEW for _, numbers in events)
    if not listed or covered < HALF * cost_ns:
        return ""
    *before, last = (
        f"rank {rank} in {agreeing(len(numbers), 'iteration')} {span(numbers)}"
        for rank, numbers in events
    )
    where = all_on([rank for rank, _ in events], inputs.hosts, FEW)
    return " and ".join([", ".join(before), last][not before :]) + (f" ({where})" if where else "")


def held_up(inputs: VerdictInputs, least: float) -> Iterator[str]:
    """Clauses on communication that holds up all ranks for at least a share of the time."""
    transfer, unmatched = inputs.exposed_transfer_ns or 0, inputs.unmatched_ns or 0
    if transfer >= least * inputs.total_ns:
        most = _slowest_part(inputs) if transfer >= LARGE_TRANSFER * inputs.total_ns else ""
        yield f"exposed transfers take {percent(transfer / inputs.total_ns)}{most}"
    if unmatched >= least * inputs.total_ns:
        yield (
            f"communication that was not matched across ranks takes "
            f"{percent(unmatched / inputs.total_ns)}, and who waits in it is unknown"
        )


def _slowest_part(inputs: VerdictInputs) -> str:
    """The collective with most exposed transfer, and its bus bandwidth where sizes are known.

    Empty where it is the only one, and sizes are unknown.
    """
    rows = inputs.collectives()
    if rows is None or rows.is_empty():
        return ""
    key = ["communicator", "operation"]
    time, speed = pl.col("exposed_ns"), pl.col("bus_bandwidth")
    parts = (
        rows.group_by(key)
        .agg(
            pl.col("ranks").first(),
            time=time.sum(),
            bandwidth=(speed * time).sum() / time.filter(speed.is_not_null()).sum(),
        )
        .sort("time", *key, descending=[True, False, False])
    )
    most = parts.row(0, named=True)
    known = most["bandwidth"] and math.isfinite(most["bandwidth"])
    if not most["time"] or (not known and len(parts) == 1):
        return ""
    at = f" at {gigabytes(most['bandwidth'])} GB/s bus bandwidth" if known else ""
    where = f" among {ranks_text(most['ranks'], MOST_LISTED)}" * (rows["ranks"].n_unique() > 1)
    return f", most in {most['operation']}{where}{at}"


def changed(inputs: VerdictInputs) -> Iterator[str]:
    """A clause on when iterations last longer on all ranks: for good, at first, or in the end."""
    lengths = np.fmax.reduce(inputs.excess.unit, axis=0)
    quick = quick_part(lengths)
    if quick.all():
        third = len(lengths) // 3
        first, last = lengths[:third], lengths[2 * third :]
        # where nothing changes, the last third takes longer than all of the first one so often
        chance = 1 / math.comb(third + len(last), third)
        if chance <= ALPHA and last.min() > first.max():
            before, after = round(float(np.median(first))), round(float(np.median(last)))
            if after - before > MUCH * before:
                yield (
                    f"on all ranks, iterations get slower: {ms(before)} in the first third, "
                    f"{ms(after)} in the last"
                )
        return
    at = int(np.diff(quick).argmax())
    since = f"from iteration {inputs.numbers[at + 1]} on"
    until = f"up to iteration {inputs.numbers[at]}"
    slow, usual = (ms(round(float(np.median(lengths[part])))) for part in (~quick, quick))
    yield (
        f"on all ranks, iterations take {slow} {since if quick[0] else until} and {usual} "
        f"{'before' if quick[0] else 'after'}"
    )


def _unreported(inputs: VerdictInputs) -> Iterator[str]:
    """A clause on the ranks without a report, if there are any."""
    if missing := inputs.run.missing_ranks:
        yield (
            f"{counted(len(missing), 'rank')} of the job ({span(missing, MOST_LISTED)}) "
            f"{agreeing(len(missing), 'has', 'have')} no report, and may be slower"
        )


def _reservations(verdict: Verdict, judged: Judgement) -> Iterator[str]:
    """Clauses that qualify the verdict."""
    inputs = judged.inputs
    roles = [*inputs.role_of.values()]
    named = [inputs.role_of[rank] for rank in verdict.ranks]
    if any(2 * named.count(role) == roles.count(role) for role in {*named}):
        if len(named) > 1:
            yield (
                "they are half of the ranks of their role: the others may as well be unusually fast"
            )
        elif verdict.kind is VerdictKind.PERSISTENT:
            yield "only one other rank does the same work, and it may as well be unusually fast"
    rotating = verdict.kind is VerdictKind.ROTATING  # what costs more than that is said
    least = max(verdict.gain or 0.0, MUCH) if rotating else LARGE_TRANSFER
    yield from held_up(inputs, min(least, LARGE_TRANSFER))
    if verdict.cause == Phase.LOAD and inputs.run.ends_alone:
        yield (
            "where iterations begin is unknown, so load is all that the host does between them, "
            "such as logging"
        )
    played = int(judged.prices.played.sum())
    if inputs.run.missing_ranks:
        yield from _unreported(inputs)
    elif judged.why_bound is not None:
        yield f"{judged.why_bound}, so gains are upper bounds"
    elif played < len(inputs.numbers):
        yield f"gains are estimated from {played} of the iterations"
