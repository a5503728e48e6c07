"""The answer to `rankscope imbalance`, put together from a comparison."""

from __future__ import annotations

import polars as pl

from rankscope.compare import scores
from rankscope.compare.comparison import Comparison
from rankscope.compare.iteration_clusters import by_iteration
from rankscope.compare.metric_table import role_of
from rankscope.match.waits import shown_error
from rankscope.model.metrics import METRICS, columns_of
from rankscope.model.results import Imbalance


def imbalance(comparison: Comparison, metrics: list[str] | None = None) -> Imbalance:
    """Metrics across ranks, ranks, iterations, verdict and what-if.

    Args:
        comparison: up to its summary.
        metrics: names; None: all. The first of them is that of the iterations; default work.
    """
    names = metrics or list(METRICS)
    summary, groups = comparison.summary, comparison.matching.groups
    first = metrics[0] if metrics else "work"
    iterations = summary.by_iteration
    if first != "work":
        numbers = comparison.selection.numbers
        iterations = by_iteration(comparison.rows(), comparison.flags(), numbers, first)
    ranks = comparison.tables.ranks.select(
        "rank", "host", role=role_of(comparison.roles), report="path"
    )
    scored = ranks.join(comparison.scores.select("rank", *columns_of(names)), on="rank")
    waits = scores.UNKNOWN_WAITS
    if not comparison.missing_ranks and comparison.outliers.metric == "work":
        waits = comparison.waits()
    elif not comparison.missing_ranks and comparison.outliers.metric is None:
        # without exposed waits nothing tells a cost, but the calls tell who comes last
        costs = (pl.lit(None, pl.Int64).alias(name) for name in ("cost_ns", "gain_ns"))
        waits = comparison.waits().with_columns(costs)
    return Imbalance(
        metrics=tuple(summary.metrics[name] for name in names),
        ranks=scores.by_rank(scored, waits, names),
        iterations=iterations,
        verdict=comparison.verdict,
        statistic=comparison.options.statistic,
        wait_error_ns=shown_error(groups),
        efficiency=summary.efficiency,
        what_if=summary.what_if,
        chained=bool((groups["members"] < comparison.tables.ranks.height).any()),
    )
