"""Groups of ranks: hosts whose ranks are all slow, and a role that has more work by design."""

from __future__ import annotations

from collections.abc import Collection

import polars as pl

from rankscope.compare.verdict.outliers import LEAST_EXCESS, lower_median
from rankscope.compare.verdict.temporal import PERSISTENT
from rankscope.model.metrics import PHASE_METRICS, column_of, columns_of


def whole_hosts(ranks: Collection[int], hosts: dict[int, str | None]) -> tuple[str, ...]:
    """The hosts whose ranks, taken together, are exactly `ranks`; none if there are no other hosts.

    A host with a single rank does not count: the rank is named instead.
    """
    names = {hosts.get(rank) for rank in ranks}
    on_them = {rank for rank, host in hosts.items() if host in names}
    if None in names or on_them != {*ranks} or on_them == {*hosts}:
        return ()
    if any(sum(hosts[rank] == name for rank in ranks) < 2 for name in names):
        return ()
    return tuple(sorted(str(name) for name in names))


def heavy_role(wide: pl.DataFrame, metric: str) -> tuple[str, pl.DataFrame] | None:
    """The role that needs most in most iterations, and its excess over the median role.

    The excess must be more than 5 % of the iteration in most iterations.

    Args:
        wide: rank, role, iteration, `<metric>_ns`, iteration_ns, and the phases.
        metric: the metric that is judged, as in `<metric>_ns`.

    Returns:
        The role, and a frame of iteration, excess_ns, length_ns and `<phase>_excess`; None where
        no role stands out.
    """
    if wide["role"].n_unique() < 2:
        return None
    phases = PHASE_METRICS
    columns = [column_of(metric), "iteration_ns", *columns_of(phases)]
    by_role = (
        wide.group_by("role", "iteration")
        .agg(lower_median(pl.col(c)) for c in columns)
        .sort("role", "iteration")  # a bootstrap draws by position: the same samples every time
    )
    value = pl.col(column_of(metric))
    apart = by_role.with_columns(
        excess_ns=value - lower_median(value).over("iteration"),
        length_ns=pl.col("iteration_ns").max().over("iteration"),
        **{
            f"{name}_excess": pl.col(column_of(name))
            - lower_median(pl.col(column_of(name))).over("iteration")
            for name in phases
        },
    )
    matters = apart.with_columns(
        matters=(pl.col("excess_ns") > LEAST_EXCESS * pl.col("length_ns")).fill_null(False)
    )
    ranked = (
        matters.group_by("role")
        .agg(pl.col("matters").mean(), pl.col("excess_ns").mean())
        .filter(pl.col("matters") >= PERSISTENT)
        .sort("excess_ns", "role", descending=[True, False])
    )
    if ranked.is_empty():
        return None
    role = str(ranked["role"][0])
    return role, apart.filter(pl.col("role") == role)
