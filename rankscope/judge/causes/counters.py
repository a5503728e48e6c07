"""Counters of the devices that ranks use, and how those of slow ranks differ. See METHOD.md#causes.

They are recorded once for a host, in one rank's report, and found again by host and device.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from rankscope.judge.causes.context import CauseContext, Tables
from rankscope.model.kinds import Counter

TABLE = "counters"

LOWER_CLOCK = 0.05
"""A clock that is lower by this share than the peers' is named."""

MORE_FAULTS = 1.0
"""Page faults are named where a slow rank has more than the peers' by this share of them."""

MORE_WAITS = 2.0
"""Adapters that wait to send this many times as long as those of other hosts are named."""

OF_RANKS = pl.Schema(
    {
        "rank": pl.Int64,  # that uses the device
        "iteration": pl.Int64,
        "metric": pl.String,
        "value": pl.Float64,
    }
)
"""Columns of `by_rank`: a mean over the devices of the rank; bytes and waits of adapters add up."""

_SUMS = [str(each) for each in (Counter.SENT, Counter.RECEIVED, Counter.SEND_WAITS)]


def by_rank(rows: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """Counters by the rank whose devices they count.

    Args:
        rows: COUNTERS, by the rank in whose report they are.
        ranks: the table `ranks`.

    Returns:
        OF_RANKS. A GPU belongs to the ranks of the host that computed on it, an adapter to all
        ranks of the host. Ranks without a known host are on that of their report.
    """
    home = pl.coalesce("host", "path")
    homes = ranks.select("rank", home=home)
    counted = rows.rename({"rank": "recorded"}).join(
        homes.rename({"rank": "recorded"}), on="recorded", how="left"
    )
    gpus = pl.concat(
        ranks.select("rank", home=home, device=name).drop_nulls("device")
        for name in ("gpu_uuid", "gpu_bus")
    )
    columns = ["rank", "iteration", "metric", "device", "recorded", "value"]
    parts = [
        counted.filter(source="process").with_columns(rank="recorded").select(columns),
        counted.filter(source="gpu").join(gpus.unique(), on=["home", "device"]).select(columns),
        counted.filter(source="nic").join(homes, on="home").select(columns),
    ]
    key = ["rank", "iteration", "metric"]
    by_device = pl.concat(parts).group_by(*key, "device").agg(pl.col("value").mean())
    total = pl.col("metric").first().is_in(_SUMS)
    value = pl.when(total).then(pl.col("value").sum()).otherwise(pl.col("value").mean())
    return by_device.group_by(key).agg(value).match_to_schema(OF_RANKS)


class Compared(NamedTuple):
    """Means of a counter over the flagged iterations."""

    slow: float  # of the slow ranks
    usual: float  # lower medians of their peers in the same iterations


def compared(context: CauseContext, metric: Counter) -> Compared | None:
    """A counter of the slow ranks beside that of their peers; None where either is unknown."""
    rows = context.table(TABLE)
    if rows is None:
        return None
    slow = context.flagged.select("rank", "iteration", slow=pl.lit(True))
    role = pl.col("rank").replace_strict(context.roles, default=None, return_dtype=pl.String)
    known = (
        rows.filter(pl.col("metric") == str(metric))
        .join(slow, on=["rank", "iteration"], how="left")
        .with_columns(role=role)
    )
    peers = known.filter(pl.col("slow").is_null()).group_by("role", "iteration")
    pairs = known.filter("slow").join(
        peers.agg(usual=pl.col("value").quantile(0.5, "lower")), on=["role", "iteration"]
    )
    if pairs.is_empty():
        return None
    means = pairs.select(pl.col("value").mean(), pl.col("usual").mean())
    return Compared(*map(float, means.row(0)))


def device_words(context: CauseContext) -> str:
    """`clock 1,200 MHz where peers have 1,980`, and page faults; empty without a difference."""
    parts = []
    clock = compared(context, Counter.CLOCK)
    if clock is not None and clock.slow < (1 - LOWER_CLOCK) * clock.usual:
        parts.append(f"clock {clock.slow:,.0f} MHz where peers have {clock.usual:,.0f}")
    faults = compared(context, Counter.GPU_PAGE_FAULTS)
    if faults is not None and faults.slow > (1 + MORE_FAULTS) * faults.usual:
        parts.append(
            f"{faults.slow:,.0f} page faults of unified memory per iteration where peers have "
            f"{faults.usual:,.0f}"
        )
    return ", ".join(parts)


def network_words(
    tables: Tables,
    members: set[int],
    slow: set[int],
    numbers: Collection[int],
    hosts: Mapping[int, str | None],
) -> str:
    """`wait 12.0 times as long to send as those of other hosts`: of adapters; else empty.

    They are compared with other hosts in the same iterations; where there are none whose counters
    are known, with themselves in the other iterations.

    Args:
        tables: of the run.
        members: ranks whose transfers are slow.
        slow: the iterations in which they are.
        numbers: the selected iterations.
        hosts: rank → host.
    """
    rows = tables(TABLE, numbers)
    if rows is None or rows.is_empty():
        return ""
    homes = {hosts[rank] for rank in members}
    others = [rank for rank, host in hosts.items() if host is not None and host not in homes]
    waits = rows.filter(pl.col("metric") == str(Counter.SEND_WAITS))
    in_slow, is_member = pl.col("iteration").is_in(slow), pl.col("rank").is_in(members)
    own = waits.filter(in_slow, is_member)["value"].to_numpy()
    usual, compared_with = (
        waits.filter(in_slow, pl.col("rank").is_in(others))["value"].to_numpy(),
        "those of other hosts",
    )
    if not len(usual):
        usual, compared_with = (
            waits.filter(~in_slow, is_member)["value"].to_numpy(),
            "in other iterations",
        )
    if not len(own) or not len(usual) or own.mean() <= MORE_WAITS * usual.mean():
        return ""
    if not usual.mean():
        return f"wait to send, unlike {compared_with}"
    return f"wait {own.mean() / usual.mean():,.1f} times as long to send as {compared_with}"
