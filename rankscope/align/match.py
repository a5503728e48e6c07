"""Collectives across ranks: which calls are one instance, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.align.clocks import ClockFit, fit_clock

SPLITTABLE = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that nobody leaves before all have arrived."""

KEY = ["place", "communicator", "operation", "iteration", "ordinal"]

TOGETHER_NS = 100_000
TOGETHER_SHARE = 0.2
"""Ranks share a communicator where their ends agree to 0.1 ms, or five times better than their
arrivals do: members of different groups end as far apart as they arrive."""

LEAST_INSTANCES = 4
"""Fewer shared instances than this say nothing about who shares a communicator."""


@dataclass(frozen=True, slots=True)
class Matched:
    """Collectives of a run, matched.

    `instances` has the columns of COLLECTIVES, `group` (members of a communicator), `size` (how
    many of them take part in the instance), `members` (how many the group has) and
    `duration_ns` (arrival to end). `unmatched` counts rows that fit no instance.
    """

    instances: pl.DataFrame
    unmatched: int
    clocks: dict[int, ClockFit]  # rank → against the lowest rank; those tied to it


def match(collectives: pl.DataFrame, utc_starts: dict[int, int | None]) -> Matched:
    """Match instances by communicator, operation, iteration and ordinal.

    A stream number is private to a rank; the n-th communication stream that a rank uses stands
    for the n-th communicator. Whether ranks share it is then read off the ends.

    Args:
        collectives: COLLECTIVES of the chosen iterations.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
    """
    named = _communicators(collectives).with_columns(
        utc_ns=pl.col("end_ns")
        + pl.col("rank").replace_strict(
            {rank: start or 0 for rank, start in utc_starts.items()}, return_dtype=pl.Int64
        )
    )
    groups: list[tuple[str, int, int]] = []
    clocks: dict[int, ClockFit] = {}
    lowest = min(utc_starts, default=0)
    splittable = named.filter(pl.col("operation").is_in(SPLITTABLE))
    for (communicator,), part in sorted(
        splittable.partition_by("communicator", as_dict=True).items()
    ):
        members, fits = _groups(part, told_apart=part["place"][0] == "device")
        groups += [(str(communicator), rank, group) for rank, group in members.items()]
        for rank, fit in fits.items():
            known = clocks.get(rank)
            tied = members[rank] == members.get(lowest)
            if tied and (known is None or fit.spread_ns < known.spread_ns):
                clocks[rank] = fit
    membership = pl.DataFrame(
        groups,
        schema={"communicator": pl.String, "rank": pl.Int64, "group": pl.Int64},
        orient="row",
    )
    joined = splittable.join(membership, on=["communicator", "rank"])
    sizes = joined.group_by("communicator", "group").agg(members=pl.col("rank").n_unique())
    instances = joined.join(sizes, on=["communicator", "group"]).with_columns(
        size=pl.len().over(*KEY, "group"),
        duration_ns=pl.col("end_ns") - pl.col("arrival_ns"),
    )
    complete = (pl.col("size") == pl.col("members")) & (pl.col("members") > 1)
    return Matched(
        instances=instances.filter(complete).drop("utc_ns"),
        unmatched=instances.filter(~complete).height,
        clocks=clocks,
    )


def _communicators(collectives: pl.DataFrame) -> pl.DataFrame:
    """COLLECTIVES with communicators that mean the same on every rank."""
    order = (
        collectives.group_by("rank", "place", "communicator")
        .agg(first=pl.col("start_ns").min())
        .sort("rank", "place", "first")
        .with_columns(nth=pl.int_range(pl.len()).over("rank", "place"))
        .with_columns(common=pl.format("{} {}", "place", "nth"))
        .select("rank", "place", "communicator", "common")
    )
    return (
        collectives.join(order, on=["rank", "place", "communicator"])
        .with_columns(communicator=pl.col("common"))
        .drop("common")
    )


def _groups(part: pl.DataFrame, told_apart: bool) -> tuple[dict[int, int], dict[int, ClockFit]]:
    """Which ranks share one communicator, and the clocks of each against its group's lowest.

    Args:
        part: one communicator's rows of the splittable operations, all ranks.
        told_apart: ends are sharp enough to tell members of different groups apart; those of
            host calls, which wake up when the scheduler lets them, are not.
    """
    ends, arrivals = (_by_rank(part, value) for value in ("utc_ns", "arrival_ns"))
    groups: dict[int, int] = {}
    fits: dict[int, ClockFit] = {}
    leaders: list[int] = []
    for rank in sorted(ends):
        for group, leader in enumerate(leaders):
            fit, together = _compare(ends[leader], ends[rank], arrivals[leader], arrivals[rank])
            if together or not told_apart:
                groups[rank] = group
                if fit is not None:
                    fits[rank] = fit
                break
        else:
            groups[rank] = len(leaders)
            fits[rank] = ClockFit(0, 0.0, 0)
            leaders.append(rank)
    return groups, fits


def _by_rank(part: pl.DataFrame, value: str) -> dict[int, pl.DataFrame]:
    rows = part.select("rank", *KEY, value=pl.col(value))
    return {
        int(rank): frame.drop("rank")
        for (rank,), frame in rows.partition_by("rank", as_dict=True).items()
    }


def _compare(
    lead_ends: pl.DataFrame, ends: pl.DataFrame, lead_arrivals: pl.DataFrame, arrivals: pl.DataFrame
) -> tuple[ClockFit | None, bool]:
    """The clock of one rank against another's, and whether they leave collectives together."""
    shared = lead_ends.join(ends, on=KEY, suffix="_other").sort("value")
    if shared.height < LEAST_INSTANCES:
        return None, shared.height > 0  # too few to tell: take the sequence's word for it
    fit = fit_clock(shared["value"].to_numpy(), shared["value_other"].to_numpy())
    arrived = lead_arrivals.join(arrivals, on=KEY, suffix="_other").sort("value")
    lateness = fit_clock(arrived["value"].to_numpy(), arrived["value_other"].to_numpy())
    limit = max(TOGETHER_NS, TOGETHER_SHARE * lateness.spread_ns)
    return fit, bool(np.less_equal(fit.spread_ns, limit))
