"""The run's time if one thing were at its role's median, by replay. See METHOD.md#what-if."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import polars as pl

from rankscope.judge.healing import Prices
from rankscope.judge.inputs import VerdictInputs
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.intervals import Floats
from rankscope.model.results import Verdict
from rankscope.util.wording import MOST_LISTED, agreeing, ranks_text, span

RANKS = 3
"""Ranks with most excess, each of which is a scenario."""

Healings = Iterator[tuple[str, str, Floats]]
"""kind, name and healing of scenarios."""

Gain = tuple[str, str, int]
"""kind, name and gain (ns) of a scenario."""


def whatever_the_verdict(inputs: VerdictInputs, prices: Prices) -> list[Gain]:
    """The phases, the ranks with most excess, and the roles."""
    return _priced(prices, chain(_phases(inputs, prices), _ranks_and_roles(inputs, prices)))


def scenarios(
    inputs: VerdictInputs, prices: Prices, verdict: Verdict, others: list[Gain]
) -> pl.DataFrame:
    """The time that putting one thing at its role's median would save, most first.

    Args:
        inputs: the input of the verdict.
        prices: what healing saves, by replay.
        verdict: its ranks, in its iterations, are one of the scenarios, and its iterations.
        others: `whatever_the_verdict`.

    Returns:
        Rows of the table `what_if`: kind (verdict | rank | role | phase | iterations | all), name,
        time_ns (the median rank's, with the gain taken off), gain_ns, gain (share of the time as it
        was); `all` gives the ideal time.
    """
    all_ns = verdict.gain_all_ns
    if all_ns is None:  # without a judgement nothing is priced
        (all_ns,) = prices.of([prices.everything], [True])
        all_ns = prices.most(prices.everything, all_ns)
    rows = [("all", "every rank", all_ns)]
    names = verdict.ranks or verdict.more_work_ranks
    if verdict.gain_ns is not None and (names or verdict.roles):
        rows.append(
            (
                "verdict",
                f"{ranks_text(names, MOST_LISTED)} in {listed(verdict.iterations)}",
                verdict.gain_ns,
            )
        )
    rows += others
    if verdict.iterations and len(verdict.iterations) < len(inputs.numbers):
        excess = inputs.excess
        healed = excess.only(prices.everything, excess.cells(excess.ranks, verdict.iterations))
        rows += _priced(prices, iter([("iterations", listed(verdict.iterations), healed)]))
    took = int(inputs.total_ns)
    table = [
        (kind, name, took - min(gain, took), min(gain, took), min(gain, took) / took if took else 0)
        for kind, name, gain in rows
    ]
    frame = pl.DataFrame(table, schema=COMPARED_TABLES["what_if"].schema, orient="row")
    return frame.sort("gain_ns", descending=True, maintain_order=True)


def listed(iterations: tuple[int, ...]) -> str:
    """`iteration 18`, `iterations 2, 7, 12-20`."""
    return f"{agreeing(len(iterations), 'iteration')} {span(iterations, MOST_LISTED)}"


def _priced(prices: Prices, healings: Healings) -> list[Gain]:
    """The gains of healings, each of which is needed only until the next is taken."""
    names: list[tuple[str, str]] = []
    least: list[int] = []

    def played() -> Iterator[Floats]:
        for kind, name, healed in healings:
            names.append((kind, name))
            least.append(prices.most(healed, 0))
            yield healed

    gains = map(max, prices.of(played()), least)
    return [(kind, name, gain) for (kind, name), gain in zip(names, gains, strict=True)]


def _phases(inputs: VerdictInputs, prices: Prices) -> Healings:
    excess, everything = inputs.excess, prices.everything
    for place, phase in enumerate(excess.phases):
        if np.isnan(excess.spent[:, :, place]).all():
            continue
        healed = excess.no_time()
        healed[:, :, place] = everything[:, :, place]
        yield "phase", phase, healed


def _ranks_and_roles(inputs: VerdictInputs, prices: Prices) -> Healings:
    excess, everything = inputs.excess, prices.everything
    cost = everything.sum(axis=(1, 2))
    for rank in np.argsort(-cost, kind="stable")[:RANKS]:
        healed = excess.only(everything, np.arange(len(cost)) == rank)
        yield "rank", f"rank {excess.ranks[rank]}", healed
    if prices.role is not None:
        for role, name in enumerate(excess.role_names):
            yield "role", name, excess.only(prices.role, excess.roles == role)
