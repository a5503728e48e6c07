"""The comparison that the detectors share: a slow rank's activities against its role's median."""

from typing import NamedTuple

import polars as pl

AMOUNTS = ("total_ns", "count", "size")
"""Columns of ACTIVITIES that are compared with the role's median."""

ACTIVITY_EXCESS = pl.Schema(
    {
        "kind": pl.String,
        "name": pl.String,
        "excess_total_ns": pl.Float64,
        "excess_count": pl.Float64,
        "excess_size": pl.Float64,
        "usual_count": pl.Float64,
        "usual_size": pl.Float64,
        "total_ns": pl.Float64,
        "usual_ns": pl.Float64,
        "more_overlap": pl.Float64,
    }
)
"""Columns of `activity_excess`."""


PEERS = 0.75
"""The quantile of the peers in an iteration that a slow rank must clearly exceed."""


class HostExcess(NamedTuple):
    """Time of threads beyond their role's lower median, over all flagged iterations (ns)."""

    slow: float  # of the slow ranks
    peers: float  # at the upper quartile of the ranks that are not slow, in the same iterations


def host_excess(
    states: pl.DataFrame, chosen: pl.Expr, roles: dict[int, str], slow: pl.DataFrame
) -> HostExcess:
    """How much longer the slow ranks did something, and how much longer some of their peers did.

    A rank and iteration without such rows did nothing of it. See METHOD.md#causes.

    Args:
        states: HOST_STATES of all ranks in the flagged iterations.
        chosen: which rows count, together.
        roles: rank → role.
        slow: rank, iteration of the slow ranks.
    """
    key, peers = ["rank", "iteration"], ["role", "iteration"]
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    sums = (
        states.select(*key, ns=pl.when(chosen).then("total_ns").otherwise(0))
        .group_by(key)
        .agg(pl.col("ns").sum())
        .join(slow.select(*key, slow=pl.lit(True)), on=key, how="left")
        .with_columns(role=role, slow=pl.col("slow").fill_null(False))
        .with_columns(over=pl.col("ns") - pl.col("ns").quantile(0.5, "lower").over(peers))
    )
    peer_excess = (
        sums.filter(~pl.col("slow")).group_by(peers).agg(pl.col("over").quantile(PEERS, "higher"))
    )
    accused = sums.filter("slow").join(peer_excess, on=peers, how="left", suffix="_peers")
    return HostExcess(float(accused["over"].sum()), float(accused["over_peers"].sum()))


def activity_excess(
    activities: pl.DataFrame, roles: dict[int, str], slow: pl.DataFrame, phase: str | None
) -> pl.DataFrame:
    """How much more of each activity the slow ranks have than their role, and what is usual.

    The usual amount is the lower of the middle two in the role and iteration, as for the flags: of
    two ranks the slow one is not half of the usual. A rank and iteration without the activity has 0
    of it. Kernels and ranges without a name (many small ones in one row) are left out. See
    METHOD.md#verdict.

    Args:
        activities: ACTIVITIES of all ranks and phases in the flagged iterations.
        roles: rank → role.
        slow: rank, iteration of the slow ranks.
        phase: what is compared; None: all phases.

    Returns:
        ACTIVITY_EXCESS; the amounts are sums over the rows of `slow`, and more_overlap is the share
        of operations (by their size) that overlap a collective, less the usual one; null where
        sizes are unknown.
    """
    values = [*AMOUNTS, "clear_size"]
    key = ["rank", "iteration", "kind", "name"]
    here = pl.lit(True) if phase is None else pl.col("phase") == phase
    sums = activities.filter(here).group_by(key).agg(pl.col(values).sum())
    names = sums.select("kind", "name").unique()
    # every rank and iteration that has activities in any phase, with every name: 0 where absent
    grid = activities.select("rank", "iteration").unique().join(names, how="cross")
    role = pl.col("rank").replace_strict(roles, default=None, return_dtype=pl.String)
    overlap = 1 - pl.col("clear_size") / pl.col("size")

    def usual(name: str) -> pl.Expr:
        return pl.col(name).quantile(0.5, "lower").over(["role", "iteration", "kind", "name"])

    nameless = pl.col("kind").is_in(["kernel", "range"]) & (pl.col("name") == "")
    return (
        grid.join(sums, on=key, how="left")
        .filter(~nameless)
        .with_columns(pl.col(values).fill_null(0), role=role)
        .with_columns(
            *(usual(name).alias(f"usual_{name}") for name in AMOUNTS),
            overlap=pl.when(pl.col("size") > 0).then(overlap),
        )
        .with_columns(more_overlap=pl.col("overlap") - usual("overlap"))
        .join(slow, on=["rank", "iteration"], how="semi")
        .group_by("kind", "name")
        .agg(
            *(
                (pl.col(name) - pl.col(f"usual_{name}")).sum().alias(f"excess_{name}")
                for name in AMOUNTS
            ),
            pl.col("total_ns", "usual_count", "usual_size").sum(),
            usual_ns=pl.col("usual_total_ns").sum(),
            more_overlap=pl.col("more_overlap").mean(),
        )
    )
