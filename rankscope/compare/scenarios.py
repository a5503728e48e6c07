"""The run's time if one thing were at its role's median, by replay. See METHOD.md#what-if."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from rankscope.judge.healing import Prices, only
from rankscope.judge.inputs import VerdictInputs
from rankscope.model.results import Verdict
from rankscope.util.robust import Floats
from rankscope.util.wording import MOST_LISTED, agreeing, listed, ranks_text

RANKS = 3
"""Ranks with most excess, each of which is a scenario."""

SCENARIOS = pl.Schema(
    {
        "kind": pl.String,
        "name": pl.String,
        "time_ns": pl.Int64,
        "gain_ns": pl.Int64,
        "gain": pl.Float64,
    }
)
"""Columns of `scenarios`."""


def scenarios(inputs: VerdictInputs, prices: Prices, verdict: Verdict) -> pl.DataFrame:
    """The time that putting one thing at its role's median would save, most first.

    Args:
        inputs: the input of the verdict.
        prices: what healing saves, by replay.
        verdict: its ranks, in its iterations, are one of the scenarios.

    Returns:
        SCENARIOS: kind (verdict | rank | role | phase | iterations | all), name, time_ns (the
        median rank's, with the gain taken off), gain_ns, gain (share of the time as it was); `all`
        gives the ideal time.
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
                f"{ranks_text(names, MOST_LISTED)} in {_listed(verdict.iterations)}",
                verdict.gain_ns,
            )
        )
    names_of: list[tuple[str, str]] = []
    least: list[int] = []

    def healings() -> Iterator[Floats]:
        for kind, name, healed in _played(inputs, prices, verdict):
            names_of.append((kind, name))
            least.append(prices.most(healed, 0))
            yield healed

    gains = map(max, prices.of(healings()), least)
    rows += [(kind, name, gain) for (kind, name), gain in zip(names_of, gains, strict=True)]
    took = int(inputs.total_ns)
    table = [
        (kind, name, took - min(gain, took), min(gain, took), min(gain, took) / took if took else 0)
        for kind, name, gain in rows
    ]
    frame = pl.DataFrame(table, schema=SCENARIOS, orient="row")
    return frame.sort("gain_ns", descending=True, maintain_order=True)


def _listed(iterations: tuple[int, ...]) -> str:
    """`iteration 18`, `iterations 2, 7, 12`."""
    return f"{agreeing(len(iterations), 'iteration')} {listed(iterations)}"


def _played(
    inputs: VerdictInputs, prices: Prices, verdict: Verdict
) -> Iterator[tuple[str, str, Floats]]:
    """kind, name and healing of the scenarios that are not priced yet."""
    excess, everything = inputs.excess, prices.everything
    for place, phase in enumerate(excess.phases):
        if np.isnan(excess.spent[:, :, place]).all():
            continue
        healed = np.zeros_like(everything)
        healed[:, :, place] = everything[:, :, place]
        yield "phase", phase, healed
    cost = everything.sum(axis=(1, 2))
    for rank in np.argsort(-cost, kind="stable")[:RANKS]:
        yield "rank", f"rank {excess.ranks[rank]}", only(everything, np.arange(len(cost)) == rank)
    if prices.role is not None:
        for role, name in enumerate(excess.role_names):
            yield "role", name, only(prices.role, excess.roles == role)
    if verdict.iterations and len(verdict.iterations) < len(inputs.numbers):
        where = np.isin(excess.numbers, verdict.iterations)
        name = _listed(verdict.iterations)
        yield "iterations", name, np.where(where[None, :, None], everything, 0.0)
