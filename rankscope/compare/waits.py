"""Who waits for whom, by duration and by arrival (method section 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.align.clocks import ROBUST
from rankscope.align.match import Matched
from rankscope.align.peers import OPERATION
from rankscope.intervals import Times, length_before, union


@dataclass(frozen=True, slots=True)
class Waits:
    """The split of communication into waiting and transfer.

    `by_iteration`: rank, iteration, wait_ns (exposed waiting), collective_wait_ns,
    collective_transfer_ns.

    `by_rank`: rank, last_arriver_share (of its collectives), cost_ns (the others' exposed waiting
    for it), gain_ns (of that, what its mending alone would have saved: in each iteration the
    waiting of the rank that waited least, for that one comes last then).

    `by_group`: group, label, ends_error_ns (how far the ends of its members scatter, which is
    the error of waits by duration), clock_error_ns (the largest residual of its members, that of
    waits by arrival; null where one is not tied), apart_ns (median difference of both), shown
    (`duration` or `arrival`, whichever errs less).
    """

    by_iteration: pl.DataFrame
    by_rank: pl.DataFrame
    by_group: pl.DataFrame

    @property
    def error_ns(self) -> int | None:
        """The largest error of the split that is shown, over all groups; None where unknown."""
        arrival = pl.col("shown") == "arrival"
        errors = self.by_group.select(
            pl.when(arrival).then("clock_error_ns").otherwise("ends_error_ns")
        ).to_series()
        largest = errors.max()
        return largest if isinstance(largest, int) else None


def timed(matched: Matched, utc_starts: dict[int, int | None]) -> pl.DataFrame:
    """The instances with both splits.

    With a the arrival, e the end and D = e - a: by duration a rank waits D less the shortest D
    of the instance, which is the transfer; by arrival, on aligned clocks, it waits until the
    last a, and the transfer lasts from there to the last e.

    Returns:
        `matched.instances` with wait, transfer (of the split that is shown for its group),
        by_duration, by_arrival (the wait either way, the latter null without clocks), last (the
        rank that came last; null where the two last came closer than the split's error),
        arrived and ended (ns since the middle of the run on aligned clocks), and the columns
        of `Waits.by_group` but `apart_ns`.
    """
    solved = matched.solved
    each = matched.instances.with_columns(
        arrived=solved.aligned("arrival_ns", utc_starts),
        ended=solved.aligned("end_ns", utc_starts),
    )
    blocks = _Blocks(each["members"].to_numpy())
    duration = each["duration_ns"].to_numpy()
    shortest = blocks.spread(np.minimum, duration)
    arrived, ended = (each[name].fill_null(0).to_numpy() for name in ("arrived", "ended"))
    by_arrival = blocks.spread(np.maximum, arrived) - arrived
    lasting = blocks.spread(np.maximum, ended) - blocks.spread(np.maximum, arrived)
    each = each.with_columns(
        by_duration=pl.Series(duration - shortest),
        by_arrival=pl.when(pl.col("arrived").is_not_null()).then(pl.Series(by_arrival)),
        shortest=pl.Series(shortest),
        lasting=pl.Series(np.maximum(lasting, 0)),
    ).join(_errors(matched, each), on="group", maintain_order="left")
    arrival = pl.col("shown") == "arrival"
    each = each.with_columns(
        wait=pl.when(arrival).then("by_arrival").otherwise("by_duration"),
        transfer=pl.when(arrival).then("lasting").otherwise("shortest"),
        error=pl.when(arrival).then("clock_error_ns").otherwise("ends_error_ns").fill_null(0),
    ).drop("shortest", "lasting")
    # whoever is late to a transfer of a pipeline may be so for having waited for the stage before
    chained = pl.col("operation") == OPERATION
    last = pl.when(~chained).then(_last(each, blocks))
    return each.with_columns(last=last).drop("error")


def split(timed: pl.DataFrame, exposed: pl.DataFrame, places: tuple[str, ...]) -> Waits:
    """Waits of matched instances, summed.

    Waits that overlap (queued collectives) count once, for the collective that the rank arrived
    at first.

    Args:
        timed: what `timed` gives, in the chosen iterations.
        exposed: EXPOSED of those iterations, on one clock.
        places: instances whose waits can expose communication on that clock.
    """
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
        by_group=_by_group(timed),
    )


class _Blocks:
    """Rows that belong together, one instance after the other."""

    def __init__(self, members: NDArray[np.int64]) -> None:
        starts, at = [], 0
        # every row says how many its instance has; equal neighbours are walked in one step
        change = np.flatnonzero(np.diff(members)) + 1
        for low, high in zip([0, *change], [*change, len(members)], strict=True):
            if high > low:
                size = int(members[low])
                starts.append(np.arange(low, high, size))
                at = high
        self.starts = np.concatenate(starts) if starts else np.zeros(0, dtype=np.int64)
        self.sizes = np.diff(np.append(self.starts, at))

    def spread(self, reduce: np.ufunc, values: Times) -> Times:
        """Each row's block reduced."""
        if not len(values):
            return values
        return np.repeat(reduce.reduceat(values, self.starts), self.sizes)


def _errors(matched: Matched, each: pl.DataFrame) -> pl.DataFrame:
    """group, ends_error_ns, clock_error_ns, shown."""
    rows = []
    for part in each.select("group", "rank", "members", "ended").partition_by("group"):
        members = int(part["members"][0])
        ranks = part["rank"].head(members).to_list()
        spreads = [matched.clocks[rank].spread_ns for rank in ranks if rank in matched.clocks]
        tied = len(spreads) == members
        ends = part["ended"].fill_null(0).to_numpy().reshape(-1, members)
        scatter = np.abs(ends - np.median(ends, axis=1, keepdims=True))
        by_ends = round(ROBUST * float(np.median(scatter))) if tied else None
        by_clock = max(spreads) if tied else None
        arrival = by_clock is not None and by_ends is not None and by_clock < by_ends
        shown = "arrival" if arrival else "duration"
        rows.append((int(part["group"][0]), by_ends, by_clock, shown))
    return pl.DataFrame(
        rows,
        schema={
            "group": pl.Int64,
            "ends_error_ns": pl.Int64,
            "clock_error_ns": pl.Int64,
            "shown": pl.String,
        },
        orient="row",
    )


def _last(each: pl.DataFrame, blocks: _Blocks) -> pl.Series:
    """Who came last to each row's instance; null where the two last came too close to tell."""
    wait, rank = each["wait"].to_numpy(), each["rank"].to_numpy()
    least = blocks.spread(np.minimum, wait)
    nobody = np.iinfo(np.int64).max
    last = blocks.spread(np.minimum, np.where(wait == least, rank, nobody))
    second = blocks.spread(np.minimum, np.where(rank == last, nobody, wait))
    clear = second - least > each["error"].to_numpy()
    return pl.select(pl.when(pl.Series(clear)).then(pl.Series(last, dtype=pl.Int64))).to_series()


def _by_group(timed: pl.DataFrame) -> pl.DataFrame:
    apart = (pl.col("by_duration") - pl.col("by_arrival")).abs().median()
    return (
        timed.group_by("group")
        .agg(
            pl.col("label", "ends_error_ns", "clock_error_ns", "shown").first(),
            apart_ns=apart.round().cast(pl.Int64),
        )
        .sort("group")
    )


def _exposed_waits(each: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """rank, iteration, last, exposed_wait: exposed communication that no earlier wait claims."""
    axis = _Axis(each, exposed)
    begin = axis.shift(each, "arrival_ns")
    order = np.lexsort((each["end_ns"].to_numpy(), begin))
    begin = begin[order]
    end = begin + each["wait"].to_numpy()[order]
    fresh = begin.copy()
    fresh[1:] = np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])
    start, stop = union(axis.shift(exposed, "start_ns"), axis.shift(exposed, "end_ns"))
    inside = length_before(start, stop, np.maximum(end, fresh)) - length_before(start, stop, fresh)
    claimed = np.empty_like(inside)
    claimed[order] = inside
    return each.select("rank", "iteration", "last", exposed_wait=pl.Series(claimed, dtype=pl.Int64))


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

    def __init__(self, each: pl.DataFrame, exposed: pl.DataFrame) -> None:
        spans = (
            pl.concat(
                [
                    frame.group_by("rank").agg(low=pl.col(start).min(), high=pl.col("end_ns").max())
                    for frame, start in ((each, "arrival_ns"), (exposed, "start_ns"))
                ]
            )
            .group_by("rank")
            .agg(pl.col("low").min(), pl.col("high").max())
            .sort("rank")
        )
        self._ranks = spans["rank"].to_numpy()
        length = (spans["high"] - spans["low"] + 1).to_numpy()
        self._shifts = np.cumsum(length) - length - spans["low"].to_numpy()

    def shift(self, frame: pl.DataFrame, column: str) -> Times:
        where = np.searchsorted(self._ranks, frame["rank"].to_numpy())
        return np.asarray(frame[column].to_numpy() + self._shifts[where], dtype=np.int64)
