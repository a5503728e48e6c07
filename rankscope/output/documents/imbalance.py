"""The document of `imbalance`."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import polars as pl
from msgspec import UNSET, Struct, UnsetType

from rankscope.compare.comparison import Comparison
from rankscope.model import metrics, results
from rankscope.model.metrics import METRICS
from rankscope.output.documents.common import Answer, Document, run_of, struct_of
from rankscope.util.meaning import says


class Score(Struct, kw_only=True):
    """A rank and its score: `value_ns` of a time, else `value`."""

    rank: Annotated[int | None, says("the rank with this score")]
    value_ns: Annotated[int | UnsetType | None, says("the score of a time")] = UNSET
    value: Annotated[float | UnsetType | None, says("the score of another unit")] = UNSET


class Metric(Struct, kw_only=True):
    """One metric compared across ranks."""

    metric: Annotated[str, says("the name of the metric")]
    unit: Annotated[metrics.Unit, says("the unit of its values")]
    mean: Annotated[float | None, says("the mean of the ranks' scores")]
    min: Annotated[Score, says("the rank with the lowest score")]
    median: Annotated[Score, says("the rank in the lower middle")]
    max: Annotated[Score, says("the rank with the highest score")]
    imbalance: Annotated[float | None, says("max / mean - 1")]
    lost_ns: Annotated[
        float | UnsetType | None, says("the sum over ranks and iterations of (max - value)")
    ] = UNSET
    lost: Annotated[float | UnsetType | None, says("`lost_ns` of another unit")] = UNSET


class Rank(Struct, kw_only=True):
    """A rank and its scores."""

    rank: Annotated[int, says("the rank")]
    host: Annotated[str | None, says("its host")]
    role: Annotated[str | None, says("its role: ranks of a role do the same work")]
    report: Annotated[str, says("its report")]
    values_ns: Annotated[dict[str, int | None], says("by metric: its score")]
    values: Annotated[
        dict[str, float | None] | UnsetType, says("by metric of another unit: its score")
    ] = UNSET
    z: Annotated[
        dict[str, float | None], says("by metric: the modified z of its score within the role")
    ]
    last_arriver_share: Annotated[
        float | None,
        says("share of its collectives, without sends and receives, to which it came last"),
    ]
    cost_ns: Annotated[int | None, says("what others waited for it in these collectives")]
    gain_ns: Annotated[
        int | None,
        says(
            "of that, what ends if it alone arrives in time, by the arrivals. What its repair "
            "saves by replay is in `what_if[]`"
        ),
    ]


class Iteration(Struct, kw_only=True):
    """An iteration across ranks."""

    iteration: Annotated[int, says("the number of the iteration")]
    iteration_ns: Annotated[int | None, says("its length on the median rank")]
    spread_ns: Annotated[int | UnsetType | None, says("the spread between ranks")] = UNSET
    spread: Annotated[float | UnsetType | None, says("`spread_ns` of another unit")] = UNSET
    slowest_rank: Annotated[int | None, says("the slowest rank")]
    cause: Annotated[str | None, says("phase of the largest flagged excess")]
    flagged_ranks: Annotated[list[int] | None, says("flagged ranks, worst first")]
    cluster: Annotated[str | None, says("`normal`, or `slow: …` with the reason")]


class WhatIf(Struct, kw_only=True):
    """What one repair would save."""

    kind: Annotated[str, says("`verdict`, `rank`, `role`, `phase`, `iterations`, `all`")]
    name: Annotated[str, says("who or what is repaired")]
    time_ns: Annotated[int, says("the time with it at the role's median")]
    gain_ns: Annotated[int, says("what the repair saves")]
    gain: Annotated[float, says("`gain_ns` as a fraction of the time")]


class Imbalance(Answer, kw_only=True, tag="rankscope/imbalance/1"):
    """Which ranks are slow, in which iterations and phases, and what it costs."""

    metrics: Annotated[tuple[Metric, ...], says("metrics across ranks")]
    ranks: Annotated[tuple[Rank, ...], says("ranks and their scores")]
    iterations: Annotated[tuple[Iteration, ...], says("iterations across ranks")]
    verdict: Annotated[results.Verdict, says("who is slow, in what, when, and what it costs")]
    efficiency: Annotated[
        results.Efficiency | None, says("POP's efficiencies of work; null where work is unknown")
    ]
    what_if: Annotated[
        tuple[WhatIf, ...] | None,
        says("what repairs would save; null where the run cannot be replayed"),
    ]
    rows: Annotated[
        list[dict[str, Any]], says("the rows of the table that `--by` selects, named columns")
    ]


def imbalance(
    db: Path | None,
    comparison: Comparison,
    result: results.Imbalance,
    rows: pl.DataFrame,
    only: Collection[int] | None = None,
) -> Imbalance:
    """The document of `imbalance`.

    Args:
        rows: the rows of `--by`.
        only: the ranks of `ranks`; None: all.
    """
    what_if = result.what_if
    return Imbalance(
        run=run_of(db, comparison.facts),
        warnings=comparison.warnings,
        metrics=tuple(map(_metric, result.metrics)),
        ranks=_ranks(result, only),
        iterations=tuple(Iteration(**row) for row in result.iterations.iter_rows(named=True)),
        verdict=result.verdict,
        efficiency=result.efficiency,
        what_if=None
        if what_if is None
        else tuple(WhatIf(**row) for row in what_if.iter_rows(named=True)),
        rows=rows.to_dicts(),
    )


def _metric(summary: results.MetricSummary) -> Metric:
    metric = METRICS[summary.metric]
    lost = {metric.key("lost"): summary.lost}
    absent = {name: UNSET for name in ("lost", "lost_ns") if name not in lost}
    scores = {name: _score(metric, getattr(summary, name)) for name in ("min", "median", "max")}
    return struct_of(Metric, summary, unit=metric.unit, **scores, **lost, **absent)


def _score(metric: metrics.Metric, score: results.Score | None) -> Score:
    """A rank and its score; both null where it is unknown."""
    if score is None:
        return Score(rank=None, **{metric.key("value"): None})
    value: Document = {metric.key("value"): score.value}
    return Score(rank=score.rank, **value)


def _ranks(result: results.Imbalance, only: Collection[int] | None) -> tuple[Rank, ...]:
    """The ranks, without those that are not in `only`."""
    names = [name.removesuffix("_z") for name in result.ranks.columns if name.endswith("_z")]
    return tuple(
        Rank(
            **{name: row[name] for name in ("rank", "host", "role", "report")},
            **_values(row, names),
            z={name: row[f"{name}_z"] for name in names},
            **{name: row[name] for name in ("last_arriver_share", "cost_ns", "gain_ns")},
        )
        for row in result.ranks.iter_rows(named=True)
        if only is None or row["rank"] in only
    )


def _values(row: Document, names: list[str]) -> Document:
    """A rank's scores: times under `values_ns`, those in other units under `values`."""
    values: Document = {"values_ns": {}}
    for name in names:
        metric = METRICS[name]
        values.setdefault(metric.key("values"), {})[name] = row[metric.column]
    return values
