"""Contradictions that no verdict may have, checked on each analysis: METHOD.md#verdict."""

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.judge.levels import LEAST_GAIN, MUCH
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict

RANKS_IN_WORDS = re.compile(r"\branks? (\d+(?:(?:, and |, | and )\d+)*)", re.IGNORECASE)

RANGE_GAIN = 0.02
"""Share of the time of a range from which on what the whole run names is told there as well."""

SLACK = 0.01
"""Share of the time by which two gains may differ that are priced separately."""


def assert_consistent(comparison: Comparison) -> None:
    """The verdict contradicts nothing else that the comparison says."""
    broken = list(contradictions(comparison))
    assert not broken, (broken, comparison.verdict.sentence)


def mentioned(verdict: Verdict) -> set[int]:
    """Every rank that a verdict names, lists, or says to lead or to have more to do."""
    leading = () if verdict.leading is None else verdict.leading.ranks
    also = (rank for each in verdict.also for rank in each.ranks)
    return {*verdict.ranks, *verdict.more_work_ranks, *leading, *also}


def untold(inputs: VerdictInputs, verdict: Verdict, names: set[int]) -> Iterator[str]:
    """What a verdict on a range denies, though it is true of the run and costs in the range."""
    output, total = mentioned(verdict), inputs.total_ns
    prices = Prices(inputs.excess)
    for claim in inputs.claims:
        (gain,) = prices.of([inputs.healed(claim)])
        known = claim.chance is not None and {*claim.ranks} <= names
        if known and not {*claim.ranks} & output and gain >= RANGE_GAIN * total:
            yield f"ranks {claim.ranks} cost {gain / total:.1%}: {verdict.sentence}"
    if verdict.kind is VerdictKind.BALANCED:
        excess, flagged = inputs.excess, inputs.flags.filter("flagged")
        for rank in flagged["rank"].unique():
            when = flagged.filter(pl.col("rank") == rank)["iteration"].to_list()
            where = (excess.ranks == rank)[:, None] & np.isin(excess.numbers, when)
            amount = np.where(where, np.nan_to_num(excess.total), 0.0)
            (gain,) = prices.of([excess.saved(amount, excess.by_phase)])
            if gain >= MUCH * total:
                yield f"rank {rank} is flagged and costs {gain / total:.1%}: {verdict.sentence}"


def contradictions(comparison: Comparison) -> Iterator[str]:
    """What the verdict of a comparison up to its summary contradicts."""
    verdict = comparison.verdict
    spoken = {
        int(number)
        for found in RANKS_IN_WORDS.findall(verdict.sentence)
        for number in re.findall(r"\d+", found)
    }
    leading = () if verdict.leading is None else verdict.leading.ranks
    unnamed = sorted(spoken - {*verdict.named, *leading})
    if verdict.kind is not VerdictKind.INCONCLUSIVE and unnamed and not verdict.members:
        yield f"the sentence names ranks {unnamed}, the verdict does not"
    if verdict.ranks and (verdict.gain is None or verdict.gain < LEAST_GAIN):
        yield f"ranks {verdict.ranks} are named for a gain of {verdict.gain}"
    if verdict.gain_all is not None:
        if verdict.kind is VerdictKind.BALANCED and verdict.gain_all >= MUCH:
            yield f"balanced, but all imbalance costs {verdict.gain_all:.1%}"
        is_network = verdict.kind is VerdictKind.COMMUNICATION  # all transfers are no imbalance
        if verdict.gain is not None and verdict.gain > verdict.gain_all + SLACK and not is_network:
            yield f"gain {verdict.gain:.1%}, but all imbalance costs {verdict.gain_all:.1%}"
    yield from _against_what_if(comparison)
    yield from _against_waits(comparison)


def _against_what_if(comparison: Comparison) -> Iterator[str]:
    verdict, table = comparison.verdict, comparison.summary.what_if
    if table is None:
        return
    rows = {kind: gain for kind, gain in table.select("kind", "gain_ns").iter_rows()}
    if verdict.gain_all_ns is not None and abs(rows["all"] - verdict.gain_all_ns) > 1:
        yield f"all: {rows['all']} ns in the table, {verdict.gain_all_ns} in the verdict"
    if verdict.ranks and abs(rows["verdict"] - (verdict.gain_ns or 0)) > 1:
        yield f"verdict: {rows['verdict']} ns in the table, {verdict.gain_ns} in the verdict"


def _against_waits(comparison: Comparison) -> Iterator[str]:
    """Whoever is accused is waited for: it waits less than the others of its role do."""
    verdict = comparison.verdict
    if not verdict.ranks or verdict.kind is VerdictKind.COMMUNICATION:
        return
    # the others wait for a slow optimizer in the next iteration
    numbers = {*verdict.iterations} | {number + 1 for number in verdict.iterations}
    rows = comparison.rows(["wait"]).filter(pl.col("iteration").is_in([*numbers]))
    if rows["wait_ns"].null_count():
        return
    named = pl.col("rank").is_in(verdict.ranks)
    roles = rows.filter(named)["role"].unique().implode()
    rows = rows.filter(pl.col("role").is_in(roles))
    mine, theirs = (rows.filter(some)["wait_ns"].mean() for some in (named, ~named))
    if isinstance(mine, float) and isinstance(theirs, float) and mine > theirs:
        yield f"ranks {verdict.ranks} wait {mine / 1e6:.2f} ms, the others {theirs / 1e6:.2f} ms"
