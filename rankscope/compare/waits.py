"""Who waits for whom, by duration: no clocks needed (method section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.align.match import Matched
from rankscope.intervals import Times, length_before, union

INSTANCE = ["place", "communicator", "group", "operation", "iteration", "ordinal"]


@dataclass(frozen=True, slots=True)
class Waits:
    """The split of communication into waiting and transfer.

    `by_iteration`: rank, iteration, wait_ns (exposed waiting), collective_wait_ns,
    collective_transfer_ns.

    `by_rank`: rank, last_arriver_share (of its collectives), cost_ns (the others' exposed waiting
    for it), gain_ns (of that, what its mending alone would have saved: in each iteration the
    waiting of the rank that waited least, for that one comes last then).
    """

    by_iteration: pl.DataFrame
    by_rank: pl.DataFrame


def split(matched: Matched, exposed: pl.DataFrame, places: tuple[str, ...]) -> Waits:
    """Waits of matched instances.

    With D the time from arrival to end, a rank waits D less the shortest D of the instance, and
    the shortest is the transfer. The rank with the shortest D came last; nobody did where the
    two shortest differ by less than the ends' spread. Waits that overlap (queued collectives)
    count once, for the collective that the rank arrived at first.

    Args:
        matched: instances of the chosen iterations.
        exposed: EXPOSED of those iterations, on one clock.
        places: instances whose waits can expose communication on that clock.
    """
    spread = max((fit.spread_ns for fit in matched.clocks.values()), default=0)
    timed = (
        matched.instances.with_columns(
            transfer=pl.col("duration_ns").min().over(INSTANCE),
            second=pl.col("duration_ns").bottom_k(2).max().over(INSTANCE),
            last=pl.col("rank").sort_by("duration_ns", "rank").first().over(INSTANCE),
        )
        .with_columns(
            wait=pl.col("duration_ns") - pl.col("transfer"),
            last=pl.when(pl.col("second") - pl.col("transfer") > spread).then("last"),
        )
        .sort("rank", "arrival_ns", "end_ns")
    )
    sums = timed.group_by("rank", "iteration").agg(
        collective_wait_ns=pl.col("wait").sum(), collective_transfer_ns=pl.col("transfer").sum()
    )
    shares = timed.group_by("rank").agg(
        last_arriver_share=(pl.col("last") == pl.col("rank")).fill_null(False).mean()
    )
    waiting = _exposed_waits(timed.filter(pl.col("place").is_in(places)), exposed)
    by_iteration = waiting.group_by("rank", "iteration").agg(wait_ns=pl.col("exposed_wait").sum())
    return Waits(
        by_iteration=sums.join(by_iteration, on=["rank", "iteration"], how="left"),
        by_rank=shares.join(_costs(waiting), on="rank", how="left")
        .with_columns(pl.col("cost_ns", "gain_ns").fill_null(0))
        .sort("rank"),
    )


def _exposed_waits(timed: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """`timed` with `exposed_wait`: exposed communication in its wait that no earlier one claims."""
    axis = _Axis(timed, exposed)
    begin = axis.shift(timed, "arrival_ns")
    end = begin + timed["wait"].to_numpy()
    claimed = np.maximum.accumulate(end)[:-1] if len(end) else end
    fresh = begin.copy()
    fresh[1:] = np.maximum(begin[1:], claimed)
    start, stop = union(axis.shift(exposed, "start_ns"), axis.shift(exposed, "end_ns"))
    inside = length_before(start, stop, np.maximum(end, fresh)) - length_before(start, stop, fresh)
    return timed.with_columns(exposed_wait=pl.Series(inside, dtype=pl.Int64))


def _costs(waiting: pl.DataFrame) -> pl.DataFrame:
    """rank, cost_ns, gain_ns of those who came last."""
    others = (
        waiting.filter(pl.col("last").is_not_null() & (pl.col("last") != pl.col("rank")))
        .group_by("last", "iteration", "rank")
        .agg(pl.col("exposed_wait").sum())
    )
    return (
        others.group_by("last", "iteration")
        .agg(cost_ns=pl.col("exposed_wait").sum(), gain_ns=pl.col("exposed_wait").min())
        .group_by(rank="last")
        .agg(pl.col("cost_ns", "gain_ns").sum())
    )


class _Axis:
    """One axis on which every rank has a stretch of its own, so that one sweep serves all."""

    def __init__(self, timed: pl.DataFrame, exposed: pl.DataFrame) -> None:
        times = pl.concat(
            [
                timed.select("rank", low="arrival_ns", high="end_ns"),
                exposed.select("rank", low="start_ns", high="end_ns"),
            ]
        )
        spans = times.group_by("rank").agg(pl.col("low").min(), pl.col("high").max()).sort("rank")
        length = (spans["high"] - spans["low"] + 1).to_numpy()
        base = np.concatenate(([0], np.cumsum(length)[:-1])) if len(length) else length
        self._shifts = spans.select("rank", shift=pl.Series(base) - spans["low"])

    def shift(self, frame: pl.DataFrame, column: str) -> Times:
        shifted = frame.select("rank", column).join(
            self._shifts, on="rank", how="left", maintain_order="left"
        )
        return (shifted[column] + shifted["shift"]).to_numpy().astype(np.int64)
