"""The sentence of a verdict, by its class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from rankscope.compare.causes.registry import finding_sentence
from rankscope.compare.verdict.candidates import LEAST_COST, LONE_SPIKE
from rankscope.compare.verdict.groups import sudden, sudden_cost
from rankscope.compare.verdict.inputs import VerdictInputs
from rankscope.compare.verdict.outliers import FEW_RANKS, summed
from rankscope.compare.verdict.phrases import ms, ordinal, plural, who
from rankscope.compare.verdict.stragglers import cause_of
from rankscope.compare.warnings import listed
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

Sentence = Callable[[Verdict, VerdictInputs], str]
"""A verdict without its sentence, and what it was found from → the sentence."""


def sentence(verdict: Verdict, inputs: VerdictInputs) -> str:
    """The sentence of a verdict.

    Raises:
        LookupError: its class has no entry in SENTENCES.
    """
    if verdict.kind not in SENTENCES:
        raise LookupError(f"verdict class {verdict.kind!r}: no entry in {__name__}.SENTENCES")
    return SENTENCES[verdict.kind](verdict, inputs)


def when(verdict: Verdict, count: int) -> str:
    """When the ranks of a verdict are slow, as a title has room for.

    Args:
        verdict: of a run.
        count: how many iterations it is about.
    """
    hits = verdict.iterations
    if verdict.since is not None:
        return f"from iteration {verdict.since} on"
    if verdict.period:
        return f"in every {ordinal(verdict.period)} iteration"
    if len(hits) == count:
        return "in every iteration"
    if len(hits) == 1:
        return f"in iteration {hits[0]}"
    return f"in {len(hits)} of {plural(count, 'iteration')}"


def _straggler(verdict: Verdict, inputs: VerdictInputs) -> str:
    """Who is slow, when, by how much, in what, and what fixing it would save."""
    name = who(verdict.ranks, inputs.hosts, verdict.hosts)
    verb, them = ("is", "it") if len(verdict.hosts or verdict.ranks) == 1 else ("are", "them")
    phase = _phase(verdict, "; ", ".")
    inside = "; ".join(map(finding_sentence, verdict.findings))
    gain = (
        ""
        if verdict.gain_ns is None
        else f" Fixing {them} would save {ms(verdict.gain_ns)}, {verdict.gain:.1%} of the time."
    )
    return (
        f"{name} {verb} slow {_when_exactly(verdict, len(inputs.numbers))}: "
        f"{ms(verdict.excess_ns or 0)} more {inputs.metric} than the median rank, "
        f"{verdict.excess:.0%} of the median iteration{phase or '.'}"
        f"{f' In it: {inside}.' if inside else ''}{gain}"
        f"{_other_candidates(verdict, inputs)}{_spikes(inputs)}{_reservations(inputs)}"
    )


def _when_exactly(verdict: Verdict, count: int) -> str:
    hits = verdict.iterations
    if verdict.kind == VerdictKind.PERIODIC:
        found = f"{when(verdict, count)} ({listed(hits)})"
    elif verdict.kind == VerdictKind.TRANSIENT:
        found = f"in {len(hits)} of {count} iterations ({listed(hits)})"
    else:
        found = f"in {len(hits)} of {count} iterations"
    return found if verdict.since is None else f"{found}, all since iteration {verdict.since}"


def _phase(verdict: Verdict, before: str, after: str = "") -> str:
    """`; 97% of it in load.`; nothing where the phase is unknown."""
    if verdict.cause is None:
        return ""
    return f"{before}{verdict.cause_share:.0%} of it in {verdict.cause}{after}"


def _other_candidates(verdict: Verdict, inputs: VerdictInputs) -> str:
    """Ranks that are slow, too, but in another way than those that the verdict names."""
    candidates = inputs.candidates
    said = []
    for rank in [rank for rank in candidates.ranks if rank not in verdict.ranks][:3]:
        numbers = candidates.patterns[rank].iterations
        excess = inputs.rows_of(rank, numbers)["excess_ns"]
        mean = round(summed(excess) / max(len(excess), 1))
        said.append(_also(rank, numbers, mean, cause_of(inputs, rank)[0]))
    return "".join(said)


def _spikes(inputs: VerdictInputs) -> str:
    """Single large excesses of ranks that are no candidates."""
    spikes = inputs.flagged.filter(
        ~pl.col("rank").is_in(inputs.candidates.ranks)
        & (pl.col("excess_ns") >= LEAST_COST * inputs.total_ns)
        & (pl.col("excess_ns") >= LONE_SPIKE * pl.col("length_ns"))
    ).sort("excess_ns", descending=True)
    return "".join(
        _also(row["rank"], [row["iteration"]], row["excess_ns"], row["cause"])
        for row in spikes.head(3).iter_rows(named=True)
    )


def _also(rank: int, iterations: list[int], excess: int, cause: str | None) -> str:
    """Another rank that is slow, too, in a short sentence."""
    several = "" if len(iterations) == 1 else "s"
    return (
        f" Also rank {rank} in iteration{several} {listed(iterations)}: {ms(excess)} more"
        f"{'' if cause is None else ', in ' + cause}."
    )


def _reservations(inputs: VerdictInputs) -> str:
    """What weakens the verdict."""
    ranks, missing = len(inputs.ranks), len(inputs.run.missing_ranks)
    few = (
        f" With only {ranks} ranks, a bootstrap over the iterations decides."
        if ranks < FEW_RANKS
        else ""
    )
    others = (
        f" {plural(missing, 'rank')} of the job have no report."
        if missing > 1
        else " One rank of the job has no report."
        if missing
        else ""
    )
    return few + others


def _structural(verdict: Verdict, inputs: VerdictInputs) -> str:
    (role,) = verdict.roles
    ranks = inputs.wide.filter(pl.col("role") == role)["rank"].unique().sort().to_list()
    return (
        f"By design: the {plural(len(ranks), 'rank')} of role {role!r} ({listed(ranks)}) "
        f"need {ms(verdict.excess_ns or 0)} more {inputs.metric} than the median role in "
        f"{len(verdict.iterations)} of {len(inputs.numbers)} iterations, {verdict.excess:.0%} of "
        f"the iteration{_phase(verdict, ', ')}; no rank is to blame."
    )


def _rotating(verdict: Verdict, inputs: VerdictInputs) -> str:
    ranks = sudden(inputs)["rank"].n_unique()
    return (
        f"A different rank is slow each time: {ranks} ranks stand out in "
        f"{len(verdict.iterations)} of {len(inputs.numbers)} iterations, by "
        f"{ms(verdict.excess_ns or 0)} on average, together {sudden_cost(inputs):.1%} of the time"
        f"{'' if verdict.cause is None else f', mostly in {verdict.cause}'}; no rank is to blame."
    )


def _balanced(verdict: Verdict, inputs: VerdictInputs) -> str:
    del verdict
    flagged, ranks = inputs.flagged, len(inputs.ranks)
    lone = flagged.group_by("iteration").agg(pl.col("excess_ns").max())
    share = summed(lone["excess_ns"]) / max(inputs.total_ns, 1)
    rest = (
        "no rank stands out"
        if flagged.is_empty()
        else "no rank stands out, apart from "
        f"{plural(flagged.height, 'isolated excess', 'isolated excesses')}, "
        f"{share:.1%} of the time in all"
    )
    few = " (decided by bootstrap: there are only few ranks)" if ranks < FEW_RANKS else ""
    return f"Balanced: over {len(inputs.numbers)} iterations of {ranks} ranks {rest}{few}."


def _inconclusive(verdict: Verdict, inputs: VerdictInputs) -> str:
    """Each rule without a conclusion has a reason of its own: `preconditions.inconclusive`."""
    raise LookupError(f"an inconclusive verdict of {inputs.run} needs a reason: {verdict.next}")


SENTENCES: Mapping[VerdictKind, Sentence] = {
    VerdictKind.BALANCED: _balanced,
    VerdictKind.PERSISTENT: _straggler,
    VerdictKind.TRANSIENT: _straggler,
    VerdictKind.PERIODIC: _straggler,
    VerdictKind.ROTATING: _rotating,
    VerdictKind.STRUCTURAL: _structural,
    VerdictKind.INCONCLUSIVE: _inconclusive,
}

if missing := {*VerdictKind} - {*SENTENCES}:
    raise LookupError(f"verdict classes without a sentence: {', '.join(sorted(missing))}")
