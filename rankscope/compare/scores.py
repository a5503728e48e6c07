"""Scores of ranks and how far they lie apart. See METHOD.md#imbalance."""

from collections.abc import Collection

import polars as pl

from rankscope.errors import UsageError
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.kinds import NAMED_PHASES, Phase, Statistic
from rankscope.model.metrics import METRICS, column_of, columns_of
from rankscope.model.results import Efficiency, MetricSummary, Score
from rankscope.util.robust import modified_z, summed

UNKNOWN_WAITS = COMPARED_TABLES["waits_of_all"].schema.to_frame()
"""`Waits.by_rank` if waits are unknown."""

LEAST_KNOWN = 0.5
"""Share of the selected iterations in which a rank must have a metric to have a score."""


def check_statistic(statistic: str) -> None:
    """Raises `UsageError` unless there is such a statistic."""
    if statistic not in [*Statistic]:
        raise UsageError(f"--statistic {statistic}", hint=f"one of {', '.join(Statistic)}")


def score(column: str, statistic: str, *, is_time: bool = True) -> pl.Expr:
    """A rank's score from its iterations: whole ns of times, Float64 of other units."""
    values = pl.col(column)
    by_name = {
        "mean": values.mean(),
        "median": values.quantile(0.5, "lower"),
        "p95": values.quantile(0.95, "higher"),
    }
    value = by_name[statistic]
    value = value.round().cast(pl.Int64) if is_time else value.cast(pl.Float64)
    known = values.count() >= LEAST_KNOWN * pl.len()
    return pl.when(known).then(value).alias(column)


def scores(wide: pl.DataFrame, metrics: list[str], statistic: str) -> pl.DataFrame:
    """Each rank's scores: rank and the metrics' columns, null where it mostly lacks the metric."""
    chosen = (METRICS[name] for name in metrics)
    values = (score(each.column, statistic, is_time=each.is_time) for each in chosen)
    return wide.group_by("rank").agg(values).sort("rank")


def summaries(
    wide: pl.DataFrame, ranked: pl.DataFrame, names: Collection[str] = METRICS
) -> dict[str, MetricSummary]:
    """Metrics across ranks; all None where a rank lacks one, and no spread of one rank.

    `other` is the rest beside the named phases: None where only some ranks name any.

    Args:
        wide: rank, iteration, `<metric>_ns` of the selected iterations.
        ranked: what `scores` returned.
        names: of metrics.
    """
    values = [pl.col(column) for column in columns_of(names)]
    lost = wide.group_by("iteration").agg(each.max() * each.count() - each.sum() for each in values)
    return {name: _summary(ranked, name, summed(lost[column_of(name)])) for name in names}


def _summary(ranked: pl.DataFrame, metric: str, lost: int) -> MetricSummary:
    column = column_of(metric)
    unnamed = pl.all_horizontal(pl.col(column_of(phase)).is_null() for phase in NAMED_PHASES)
    is_rest = metric == Phase.OTHER and ranked.select(unnamed).to_series().n_unique() > 1
    if ranked.is_empty() or ranked[column].null_count() or is_rest:
        return MetricSummary(metric, None, None, None, None, None, None)
    order = ranked.sort(column, "rank").select("rank", column).rows()
    mean = sum(value for _, value in order) / len(order)
    low, middle = (Score(*order[index]) for index in (0, (len(order) - 1) // 2))
    highest = min(rank for rank, value in order if value == order[-1][1])
    high = Score(highest, order[-1][1])
    several = len(order) > 1
    return MetricSummary(
        metric=metric,
        mean=mean,
        min=low,
        median=middle,
        max=high,
        imbalance=high.value / mean - 1 if mean and several else None,
        lost=lost if several else None,
    )


def efficiency(rows: pl.DataFrame) -> Efficiency | None:
    """POP's efficiencies over the selected iterations; None where some rank's work is unknown."""
    sums = rows.group_by("rank").agg(
        pl.col("work_ns", "iteration_ns").sum(), unknown=pl.col("work_ns").null_count()
    )
    if sums.height < 2 or sums["unknown"].sum():
        return None
    work, longest, time = sums.select(
        pl.col("work_ns").mean(),
        longest=pl.col("work_ns").max(),
        time=pl.col("iteration_ns").mean(),
    ).row(0)
    if not longest or not time:
        return None
    return Efficiency(work / longest, longest / time, work / time)


def by_rank(scored: pl.DataFrame, waits: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """A row per rank: its scores, how far they lie from its role's, and who waited for it.

    Args:
        scored: rank, host, role, report and `<metric>_ns`.
        waits: `Waits.by_rank`, or `UNKNOWN_WAITS`.
    """
    frame = scored.with_columns(role_z(name) for name in names)
    return frame.join(waits, on="rank", how="left").sort("rank")


def role_z(metric: str) -> pl.Expr:
    """`<metric>_z`: the modified z of the scores within `role`; null where all are 0."""
    value = pl.col(column_of(metric))
    z = modified_z(value.cast(pl.Float64), ["role"])
    return pl.when(value.median().over("role").is_not_null()).then(z).alias(f"{metric}_z")
