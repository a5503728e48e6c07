"""Whether two runs look like runs of one job."""

import polars as pl

from rankscope.model.kinds import NAMED_PHASES
from rankscope.model.metrics import column_of
from rankscope.store.tables import RunTables
from rankscope.util.wording import counted

TIMES_AS_LONG = 5.0
"""Ratio of the lengths of iterations that no change of a job causes."""

LEAST_SHARED = 0.1
"""Least share of a run's kernel time in kernels whose names the other run has, too."""


def differences(
    before: RunTables, after: RunTables, old: pl.DataFrame, new: pl.DataFrame
) -> tuple[str, ...]:
    """Signs that two runs are of different jobs, in words; a single one may be chance.

    Args:
        before, after: the tables of the runs.
        old, new: their selected rows: rank, `<metric>_ns`.
    """
    signs = (_sizes(before, after), _lengths(old, new), _phases(old, new), _kernels(before, after))
    return tuple(sign for sign in signs if sign is not None)


def _sizes(before: RunTables, after: RunTables) -> str | None:
    old, new = (
        size if isinstance(size := run.ranks["world_size"].max(), int) else run.ranks.height
        for run in (before, after)
    )
    return None if old == new else f"{counted(old, 'rank')} → {new}"


def _lengths(old: pl.DataFrame, new: pl.DataFrame) -> str | None:
    medians = [run["iteration_ns"].cast(pl.Float64).median() for run in (old, new)]
    known = [each for each in medians if isinstance(each, float) and each > 0]
    if len(known) < 2:
        return None
    ratio = known[1] / known[0]
    if max(ratio, 1 / ratio) < TIMES_AS_LONG:
        return None
    return f"iterations {max(ratio, 1 / ratio):.0f} times as {'long' if ratio > 1 else 'short'}"


def _phases(old: pl.DataFrame, new: pl.DataFrame) -> str | None:
    first, second = (
        {
            name
            for name in NAMED_PHASES
            if column_of(name) in run.columns and (run[column_of(name)] > 0).any()
        }
        for run in (old, new)
    )
    if first & second or not first | second:
        return None
    names = [", ".join(sorted(each)) or "none known" for each in (first, second)]
    return f"no phase in common ({names[0]} → {names[1]})"


def _kernels(before: RunTables, after: RunTables) -> str | None:
    first, second = (
        run.read("activities", ["kind", "name"], sums=["total_ns"]).filter(
            (pl.col("kind") == "kernel") & (pl.col("name") != "")
        )
        for run in (before, after)
    )
    if first.is_empty() or second.is_empty():
        return None
    common = first.join(second, on="name").height
    shares = [
        int(run.join(other, on="name", how="semi")["total_ns"].sum())
        / max(int(run["total_ns"].sum()), 1)
        for run, other in ((first, second), (second, first))
    ]
    if max(shares) >= LEAST_SHARED:
        return None
    return f"{counted(common, 'kernel') if common else 'no kernel'} in common"
