"""The run's time if one thing were at its role's median, by replay. See METHOD.md#verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl

from rankscope.compare.verdict.outliers import lower_median
from rankscope.compare.warnings import listed
from rankscope.compare.whatif.replay import ORDER, Replay, Target
from rankscope.model.metrics import column_of, columns_of
from rankscope.model.results import Verdict

MOST_ROWS = 500_000
"""In larger runs only the verdict and the ideal are played."""

RANKS = 3
"""Ranks with most excess, each of which is a scenario."""


def scenarios(
    replay: Replay | None, rows: pl.DataFrame, verdict: Verdict, numbers: Collection[int]
) -> pl.DataFrame | None:
    """The time that putting one thing at its role's median would save, most first.

    Args:
        replay: None where the run cannot be played again.
        rows: of the metric table, in the selected iterations.
        verdict: whom it names, and in which iterations, is one of the scenarios.
        numbers: the selected iterations.

    Returns:
        kind (verdict | rank | role | phase | iterations | all), name, time_ns (the median rank's,
        with the gain taken off), gain_ns, gain (share of the time as it was); `all` gives the
        ideal time. None without a replay.
    """
    if replay is None:
        return None
    targets: list[tuple[str, str, Target]] = [("all", "every rank", Target())]
    if verdict.ranks:
        many = "rank" if len(verdict.ranks) == 1 else "ranks"
        name = f"{many} {listed(verdict.ranks)} in those iterations"
        targets.append(("verdict", name, Target(verdict.ranks, None, verdict.iterations)))
    if replay.size <= MOST_ROWS:
        phases = [phase for phase in ORDER if rows[column_of(phase)].is_not_null().any()]
        targets += [("phase", phase, Target(phases=(phase,))) for phase in phases]
        slowest = (
            rows.with_columns(
                excess=pl.col("work_ns") - lower_median(pl.col("work_ns")).over("role", "iteration")
            )
            .group_by("rank")
            .agg(pl.col("excess").clip(0).sum())
            .sort("excess", "rank", descending=[True, False])
        )
        targets += [
            ("rank", f"rank {rank}", Target(ranks=(rank,))) for rank in slowest["rank"].head(RANKS)
        ]
        roles = rows["role"].unique().sort().to_list()
        targets += [("role", role, Target(role=role)) for role in roles if len(roles) > 1]
        if verdict.iterations and len(verdict.iterations) < len(numbers):
            name = f"iterations {listed(verdict.iterations)}"
            targets.append(("iterations", name, Target(iterations=verdict.iterations)))
    per = rows.group_by("iteration").agg(lower_median(pl.col("iteration_ns")))
    took = int(per["iteration_ns"].sum())
    found = []
    gains = replay.gains_ns([target for _, _, target in targets], numbers)
    for (kind, name, _), gain_ns in zip(targets, gains, strict=True):
        gain = min(gain_ns, took)
        found.append((kind, name, took - gain, gain, gain / took if took else 0.0))
    schema = {
        "kind": pl.String,
        "name": pl.String,
        "time_ns": pl.Int64,
        "gain_ns": pl.Int64,
        "gain": pl.Float64,
    }
    frame = pl.DataFrame(found, schema=schema, orient="row")
    return frame.sort("gain_ns", descending=True, maintain_order=True)


def windows_of(
    measures: pl.DataFrame, wide: pl.DataFrame, aligned: Callable[[str], pl.Expr]
) -> pl.DataFrame:
    """`windows` of a replay.

    Args:
        measures: MEASURES on one clock.
        wide: rank, iteration and `<phase>_ns`.
        aligned: the aligned time of a column of times.
    """
    return (
        measures.filter(pl.col("window_start_ns").is_not_null())
        .with_columns(end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"))
        .select("rank", "iteration", begin=aligned("window_start_ns"), end=aligned("end_ns"))
        .join(wide.select("rank", "iteration", *columns_of(ORDER)), on=["rank", "iteration"])
    )
