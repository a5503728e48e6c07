"""Pieces of hardware in the runs they were part of. See METHOD.md#fleet."""

import polars as pl

from rankscope.model.schema import conform

APPEARANCES = pl.Schema(
    {
        "kind": pl.String,  # host | gpu | nic | slot | rank
        "id": pl.String,
        "run": pl.String,
        "order": pl.UInt32,  # of the run in time
        "rank": pl.Int64,  # null for pieces that several ranks share
        "host": pl.String,
        "slot": pl.String,  # of a GPU; null where unknown, and for the other kinds
        "name": pl.String,  # model
        "guilty": pl.Boolean,
        "guilt": pl.Float64,  # share of the compared iterations that it is guilty in
        "chance": pl.Float64,  # probability that guilt falls on it by chance
        "cost_ns": pl.Int64,
        "saved_ns": pl.Float64,  # of an iteration, if it were as fast as the others
        "cause": pl.String,
    }
)
"""A row per piece and run in which it was compared.

Kinds `slot` and `rank` are no hardware to swap. They show whether guilt stays where a GPU was, and
whether it follows the work of a rank, whatever the rank runs on.
"""


def appearances(runs: pl.DataFrame, evidence: pl.DataFrame) -> pl.DataFrame:
    """APPEARANCES of all pieces.

    Args:
        runs: RUNS in the order of time.
        evidence: EVIDENCE of these runs.
    """
    order = runs.select("run").with_row_index("order")
    rows = (
        evidence.filter(pl.col("iterations") > 0)
        .join(order, on="run", how="inner", maintain_order="left")
        .with_columns(
            accused=pl.col("guilty") > 0,
            guilt=pl.col("guilty") / pl.col("iterations"),
            saved_ns=pl.col("cost_ns") / pl.len().over("run") / pl.col("iterations"),
        )
        # Guilt falls on any rank of the same role.
        .with_columns(chance=pl.col("accused").mean().over("run", "role"))
    )
    of_ranks = [_of_ranks(rows, kind) for kind in ("gpu", "slot", "rank")]
    return pl.concat([_hosts(rows), _adapters(rows), *of_ranks])


def _of_ranks(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Pieces that belong to one rank of a run: its GPU, its slot, its number."""
    ids = {
        "gpu": pl.col("gpu"),
        "slot": pl.col("host") + " " + pl.col("slot"),
        "rank": pl.col("rank").cast(pl.String),
    }
    unknown = {"gpu": (), "slot": ("name",), "rank": ("slot", "name")}[kind]
    named = rows.with_columns(
        kind=pl.lit(kind), id=ids[kind], name=pl.col("gpu_name"), guilty=pl.col("accused")
    ).drop_nulls("id")
    return conform(named.drop(unknown), APPEARANCES, optional=unknown, drop_others=True)


def _hosts(rows: pl.DataFrame) -> pl.DataFrame:
    named = rows.drop_nulls("host").with_columns(id=pl.col("host"))
    return _of_shared(named, "host")


def _adapters(rows: pl.DataFrame) -> pl.DataFrame:
    """Network adapters that were in more than one host; others are judged as their host."""
    split = (
        rows.drop_nulls(["adapters", "host"])
        .with_columns(id=pl.col("adapters").str.split(" "))
        .explode("id")
    )
    moved = _of_shared(split.filter(pl.col("host").n_unique().over("id") > 1), "nic")
    hosts = _hosts(rows).select("run", "host", usual="chance")
    return (
        moved.join(hosts, on=["run", "host"], how="left", maintain_order="left")
        .with_columns(chance="usual")
        .drop("usual")
    )


def _of_shared(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Pieces that several ranks share: guilty if any of them is, compared within their roles."""
    together = rows.group_by("run", "order", "id", maintain_order=True).agg(
        pl.col("host").first(),
        pl.col("accused").any().alias("guilty"),
        pl.col("guilt").max(),
        pl.col("cost_ns", "saved_ns").sum(),
        pl.col("cause").sort_by("cost_ns", descending=True).first(),
        pl.col("role").unique().sort().str.join("\n").alias("roles"),
    )
    pieces = together.with_columns(
        kind=pl.lit(kind), chance=pl.col("guilty").mean().over("run", "roles")
    )
    return conform(pieces, APPEARANCES, optional=("rank", "slot", "name"), drop_others=True)
