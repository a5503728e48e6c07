"""The sentence of a verdict, by its class.

Each says who or what, when, what it costs, in which phase, and why, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from rankscope.compare.causes.counters import network_words
from rankscope.compare.causes.registry import finding_sentence
from rankscope.compare.robust import lower_median
from rankscope.compare.verdict.inputs import VerdictInputs
from rankscope.compare.verdict.phrases import ordinal, who
from rankscope.compare.warnings import listed
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.util.wording import agreeing, counted, ms, percent

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
    if len(verdict.spells) == 1:
        return f"from iteration {verdict.spells[0][0]} to {verdict.spells[0][1]}"
    return f"in {len(hits)} of {counted(count, 'iteration')}"


def _straggler(verdict: Verdict, inputs: VerdictInputs) -> str:
    name = who(verdict.ranks, inputs.hosts, verdict.hosts)
    verb, them = ("is", "it") if len(verdict.hosts or verdict.ranks) == 1 else ("are", "them")
    return (
        f"{name} {verb} slow {_when_exactly(verdict, len(inputs.numbers))}. "
        f"Fixing {them} would save {_gain(verdict)}. {_excess(verdict, inputs)}"
        f"{_why(verdict)}{_rest(verdict)}{_reservations(verdict, inputs)}"
    )


def _when_exactly(verdict: Verdict, count: int) -> str:
    hits, short = verdict.iterations, when(verdict, count)
    if verdict.period:
        return f"{short} ({listed(hits)})"
    if len(verdict.spells) > 1:
        spells = ", ".join(f"{first} to {last}" for first, last in verdict.spells[:4])
        return f"{short} ({spells}{', …' if len(verdict.spells) > 4 else ''})"
    if verdict.kind is VerdictKind.TRANSIENT and len(hits) > 1:
        return f"{short} ({listed(hits)})"
    if verdict.since is not None or verdict.spells:
        return f"{short} ({len(hits)} of {counted(count, 'iteration')})"
    return f"in {len(hits)} of {counted(count, 'iteration')}" if len(hits) == count else short


def _gain(verdict: Verdict) -> str:
    """`at most 120.0 ms, 2.9 % of the time`."""
    bound = "at most " if verdict.gain_is_bound else ""
    return f"{bound}{ms(verdict.gain_ns or 0)}, {percent(verdict.gain or 0)} of the time"


def _excess(verdict: Verdict, inputs: VerdictInputs) -> str:
    """How much longer the ranks take than the median rank, and in which phase."""
    pronoun = "It needs" if len(verdict.hosts or verdict.ranks) == 1 else "They need"
    each = " then" if len(verdict.iterations) < len(inputs.numbers) else ""
    phase = (
        ""
        if verdict.cause is None
        else f"; {percent(verdict.cause_share)} of it in {verdict.cause}"
    )
    return (
        f"{pronoun} {ms(verdict.excess_ns or 0)} more {inputs.excess.metric} than the median "
        f"rank{each}, {percent(verdict.excess or 0)} of the median iteration "
        f"({ms(_typical(verdict, inputs))}){phase}."
    )


def _typical(verdict: Verdict, inputs: VerdictInputs) -> int:
    """The median iteration that the excess is a share of."""
    if verdict.excess_ns and verdict.excess:
        return round(verdict.excess_ns / verdict.excess)
    return int(inputs.flags.select(lower_median(pl.col("length_ns"))).item() or 0)


def _why(verdict: Verdict) -> str:
    inside = "; ".join(map(finding_sentence, verdict.findings))
    return f" Why: {inside}." if inside else ""


def _rest(verdict: Verdict) -> str:
    """What else there is, and what all imbalance costs."""
    others = "".join(f" {each.sentence}" for each in verdict.also)
    return f"{others} {_everything(verdict)}"


def _everything(verdict: Verdict) -> str:
    """What all imbalance costs."""
    bound = "at most " if verdict.gain_is_bound else ""
    return f"All imbalance together costs {bound}{percent(verdict.gain_all or 0)} of the time."


def _reservations(verdict: Verdict, inputs: VerdictInputs) -> str:
    """What weakens the verdict."""
    missing = len(inputs.run.missing_ranks)
    played, count = inputs.prices.played, len(inputs.numbers)
    if not verdict.gain_is_bound:
        return f" Gains are estimated from {played} of the iterations." if played < count else ""
    if missing:
        have = agreeing(missing, "has", "have")
        return f" {counted(missing, 'rank')} of the job {have} no report: the gain is at most that."
    return " The run cannot be replayed: the gain is at most that."


def _structural(verdict: Verdict, inputs: VerdictInputs) -> str:
    ranks = verdict.more_work_ranks
    name = f"{agreeing(len(ranks), 'Rank')} {listed(ranks)}"
    count, hits = len(inputs.numbers), len(verdict.iterations)
    often = f"in {hits} of {counted(count, 'iteration')}"
    phase = (
        ""
        if verdict.cause is None
        else f", {percent(verdict.cause_share)} of it in {verdict.cause}"
    )
    which = f" (role {verdict.roles[0]!r})" if verdict.roles else ""
    verb, compared = ("is", "the others") if len(ranks) == 1 else ("are", "the others")
    compared = "the median role" if verdict.roles else compared
    return (
        f"{name}{which} {verb} given more work than {compared} {often}. "
        f"Giving all ranks the same would save {_gain(verdict)}. "
        f"The additional work takes {ms(verdict.excess_ns or 0)}, "
        f"{percent(verdict.excess or 0)} of the median iteration "
        f"({ms(_typical(verdict, inputs))}){phase}; no rank is to blame."
        f"{_why(verdict)}{_rest(verdict)}{_reservations(verdict, inputs)}"
    )


def _communication(verdict: Verdict, inputs: VerdictInputs) -> str:
    slow = inputs.transfers()
    assert slow is not None, "the class needs slow transfers"
    first = slow.slow.row(0, named=True)
    several = slow.slow.height
    more = "" if several == 1 else f", one of {several} slow ones,"
    where = (
        f" All slow ones and no others have ranks on {', '.join(verdict.hosts)}."
        if verdict.hosts
        else f" All slow ones and no others include rank {verdict.ranks[0]}."
        if verdict.ranks
        else ""
    )
    told = network_words(
        inputs.tables, {*first["members"]}, {*first["iterations"]}, inputs.numbers, inputs.hosts
    )
    network = f" The network adapters of its hosts {told}." if told else ""
    ratio = first["transfer_ns"] / max(first["usual_ns"], 1)
    return (
        f"The transfer is slow: {first['operation']} on {first['label']} "
        f"({counted(len(first['members']), 'member')}){more} takes {ratio:.1f} times as long as "
        f"usual in "
        f"{len(verdict.iterations)} of {counted(len(inputs.numbers), 'iteration')}. "
        f"At the usual speed the run would save {_gain(verdict)}. "
        f"Once all ranks have arrived it takes {ms(first['transfer_ns'])}, usually "
        f"{ms(first['usual_ns'])}.{where}{network}{_rest(verdict)}"
    )


def _rotating(verdict: Verdict, inputs: VerdictInputs) -> str:
    amount = np.nan_to_num(inputs.components.everything.sum(axis=2))
    hit = np.isin(inputs.excess.numbers, verdict.iterations)
    ranks = len(np.unique(amount[:, hit].argmax(axis=0))) if hit.any() else 0
    phase = "" if verdict.cause is None else f", mostly in {verdict.cause}"
    others = "".join(f" {each.sentence}" for each in verdict.also)
    return (
        f"A different rank is slow each time: {counted(ranks, 'rank')} take turns in "
        f"{len(verdict.iterations)} of {counted(len(inputs.numbers), 'iteration')}. "
        f"Without imbalance the run would save {_gain(verdict)}. The slowest rank needs "
        f"{ms(verdict.excess_ns or 0)} more {inputs.excess.metric} than the median rank on "
        f"average{phase}; no rank is to blame.{others}{_reservations(verdict, inputs)}"
    )


def _balanced(verdict: Verdict, inputs: VerdictInputs) -> str:
    ranks = len(inputs.excess.ranks)
    bound = "at most " if verdict.gain_is_bound else ""
    return (
        f"Balanced: over {counted(len(inputs.numbers), 'iteration')} of {counted(ranks, 'rank')} "
        f"no rank costs as much as 1 % of the time; jitter costs {bound}"
        f"{percent(verdict.gain_all or 0)} in all."
    )


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
    VerdictKind.COMMUNICATION: _communication,
    VerdictKind.INCONCLUSIVE: _inconclusive,
}

if missing := {*VerdictKind} - {*SENTENCES}:
    raise LookupError(f"verdict classes without a sentence: {', '.join(sorted(missing))}")
