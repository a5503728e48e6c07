"""Waits of matched instances, summed by rank and iteration, and by who was waited for.

See METHOD.md#waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.compare.waits import NOBODY, WaitedCollectives
from rankscope.model.intervals import Times, length_before, union
from rankscope.store.tables import ROWS_AT_ONCE

Exposed = Callable[[list[int]], pl.DataFrame]
"""EXPOSED of some ranks on one clock."""


@dataclass(frozen=True, slots=True)
class Waits:
    """The split of communication into waiting and transfer.

    `by_iteration`: rank, iteration, wait_ns (exposed waiting), collective_wait_ns,
    collective_transfer_ns, of all iterations.

    `by_rank`, of those that are asked for: rank, last_arriver_share (of its collectives), cost_ns
    (the others' exposed waiting for it), gain_ns (of that, what fixing it alone would have saved:
    in each iteration the waiting of the rank that waited least, for that one comes last then).
    `by_rank_of_all`: the same of all iterations.
    """

    by_iteration: pl.DataFrame
    by_rank: pl.DataFrame
    by_rank_of_all: pl.DataFrame


def split(
    timed: WaitedCollectives,
    exposed: Exposed,
    places: tuple[str, ...],
    numbers: Collection[int] | None = None,
) -> Waits:
    """Waits of matched instances, summed.

    Waits that overlap (queued collectives) count once, for the collective that the rank arrived
    at first.

    Args:
        timed: the instances.
        exposed: gives the exposed communication, on one clock.
        places: instances whose waits can expose communication on that clock.
        numbers: the iterations that `by_rank` is about; None: all.
    """
    here = timed.streams.filter(pl.col("place").is_in(places))["group"].unique()
    iterations = timed.shared["iteration"]
    shared = _Shared(
        timed.shared["transfer"].to_numpy(),
        timed.shared["last"].fill_null(NOBODY).to_numpy(),
        iterations.to_numpy(),
        iterations.rank("dense").cast(pl.Int64).to_numpy(),
        timed.shared["group"].cast(pl.Int64).is_in(here.implode()).to_numpy(),
        None if numbers is None else iterations.is_in(list(numbers)).to_numpy(),
    )
    ranks = timed.rows["rank"]
    edges = [*np.flatnonzero(np.diff(ranks.to_numpy(), prepend=-1)).tolist(), len(ranks)]
    blocks = pl.DataFrame(pairwise(edges), schema=["low", "high"], orient="row").with_columns(
        rank=ranks.gather(edges[:-1])
    )
    calls = timed.rows.select("rank", "instance", "wait", "arrival_ns", "end_ns")
    parts = []
    for some in rank_chunks(ranks.unique(), ranks) or [[]]:
        mine = blocks.filter(pl.col("rank").is_in(some)).select("low", "high").rows()
        rows = pl.concat([calls[low:high] for low, high in mine or [(0, 0)]])
        parts.append(_chunk_waits(rows, shared, exposed(some), numbers))
    sums, selected, every = zip(*parts, strict=True)
    return Waits(pl.concat(sums), _per_rank(selected), _per_rank(every))


def _per_rank(parts: Sequence[_ByLast]) -> pl.DataFrame:
    """`Waits.by_rank`, from `_by_last` of all chunks."""
    shares = pl.concat([each for each, _ in parts])
    costs = pl.concat([each for _, each in parts])
    return (
        shares.join(_costs(costs), on="rank", how="left")
        .with_columns(pl.col("cost_ns", "gain_ns").fill_null(0))
        .sort("rank")
    )


def rank_chunks(ranks: pl.Series, of_rows: pl.Series) -> list[list[int]]:
    """`ranks` ascending, in chunks that have about `ROWS_AT_ONCE` rows each.

    Args:
        ranks: all that there are.
        of_rows: the rank of each row.
    """
    chunks = (
        pl.DataFrame({"rank": ranks.unique().cast(pl.Int64)})
        .join(of_rows.value_counts().cast(pl.Int64), on="rank", how="left")
        .sort("rank")
        .with_columns(chunk=pl.col("count").fill_null(0).cum_sum() // ROWS_AT_ONCE)
    )
    return chunks.group_by("chunk", maintain_order=True).agg("rank")["rank"].to_list()


_ByLast = tuple[pl.DataFrame, pl.DataFrame]


class _Shared(NamedTuple):
    """Columns of the instances."""

    transfer: Times
    last: NDArray[np.int32]  # or NOBODY
    iteration: Times
    at: Times  # the iteration, counted
    exposing: NDArray[np.bool_]  # whether waits for it can expose communication
    selected: NDArray[np.bool_] | None  # whether `by_rank` is about it; None: all are


def _chunk_waits(
    rows: pl.DataFrame, shared: _Shared, exposed: pl.DataFrame, numbers: Collection[int] | None
) -> tuple[pl.DataFrame, _ByLast, _ByLast]:
    """Of some ranks `Waits.by_iteration`, and `_by_last` of the selected and of all iterations."""
    rank, instance, wait, arrival, end = (column.to_numpy() for column in rows)
    axis = _Axis((rank, arrival, end), _held(exposed))
    begin = axis.shift(rank, arrival)
    exposing = shared.exposing[instance]
    order = _order(rank, begin, end)
    order = order if exposing.all() else order[exposing[order]]
    claimed = _claimed(begin, wait, order, axis.union(exposed))
    iteration = shared.iteration[instance]
    sums = _summed(
        rank,
        iteration,
        collective_wait_ns=wait,
        collective_transfer_ns=shared.transfer[instance],
        wait_ns=claimed,
    )
    if not exposing.all():
        known = _summed(rank[exposing], iteration[exposing]).select("rank", "iteration")
        there = known.with_columns(there=pl.lit(True))
        sums = sums.join(there, on=["rank", "iteration"], how="left").select(
            "rank", "iteration", "collective_wait_ns", "collective_transfer_ns",
            wait_ns=pl.when("there").then("wait_ns"),
        )  # fmt: skip
    every = _by_last(rank, instance, claimed, exposing, shared)
    if numbers is None or shared.selected is None:
        return sums, every, every
    # what overlaps with other iterations' counts in these alone
    chosen = shared.selected[instance]
    some = order[chosen[order]]
    here = exposed.filter(pl.col("iteration").is_in(list(numbers)))
    own = _claimed(begin, wait, some, axis.union(here))[chosen]
    alike = np.array_equal(own, claimed[chosen])
    selected = _by_last(rank[chosen], instance[chosen], own, exposing[chosen], shared, not alike)
    if alike:
        costs = every[1].filter(pl.col("iteration").is_in(list(numbers)))
        selected = selected[0], costs
    return sums, selected, every


def _by_last(
    rank: NDArray[np.int32],
    instance: NDArray[np.int32],
    waits: Times,
    exposing: NDArray[np.bool_],
    shared: _Shared,
    costs: bool = True,
) -> _ByLast:
    """How often each rank came last, and what the ranks waited for whom, if asked for."""
    last = shared.last[instance]
    calls = np.bincount(rank)
    ranks = np.flatnonzero(calls)
    often = np.bincount(rank[last == rank], minlength=len(calls))[ranks]
    shares = pl.DataFrame({"rank": ranks, "last_arriver_share": often / calls[ranks]})
    others = (last != rank) & (last != NOBODY) & exposing & costs
    return shares, _waited(rank[others], last[others], instance[others], waits[others], shared)


def _summed(rank: NDArray[np.int32], iteration: Times, **columns: Times) -> pl.DataFrame:
    """Sums per rank and iteration of rows that mostly stand together."""
    fresh = np.ones(len(rank), dtype=np.bool_)
    fresh[1:] = (rank[1:] != rank[:-1]) | (iteration[1:] != iteration[:-1])
    starts = np.flatnonzero(fresh)
    runs = {name: np.add.reduceat(values, starts) for name, values in columns.items()}
    frame = pl.DataFrame(
        {"rank": rank[starts].astype(np.int64), "iteration": iteration[starts], **runs}
    )
    return frame.group_by("rank", "iteration").agg(pl.col(name).sum() for name in columns)


def _waited(
    rank: NDArray[np.int32],
    last: NDArray[np.int32],
    instance: NDArray[np.int32],
    waits: Times,
    shared: _Shared,
) -> pl.DataFrame:
    """last, iteration, cost_ns, gain_ns: what others waited for it, in all and each at least."""
    at = shared.at[instance]
    spans = [int(each.max(initial=0)) + 1 for each in (at, rank)]
    late = last.astype(np.int64) * spans[0] + at
    order = np.argsort(late * spans[1] + rank)
    of_pair = (late * spans[1] + rank)[order]
    starts = np.flatnonzero(np.diff(of_pair, prepend=-1))
    each = np.add.reduceat(waits[order], starts)
    of_late = of_pair[starts] // spans[1]
    firsts = np.flatnonzero(np.diff(of_late, prepend=-1))
    which = order[starts[firsts]]
    return pl.DataFrame(
        {
            "last": last[which].astype(np.int64),
            "iteration": shared.iteration[instance[which]],
            "cost_ns": np.add.reduceat(each, firsts),
            "gain_ns": np.minimum.reduceat(each, firsts),
        }
    )


def _order(rank: NDArray[np.int32], begin: Times, end: Times) -> NDArray[np.int64]:
    """The order of calls by their begin on one axis; those that begin together by their ends."""
    low = rank.min(initial=0)
    span = int(rank.max(initial=0) - low) + 1
    order = np.argsort((rank - low).astype(np.min_scalar_type(span)), kind="stable")
    order = order[np.argsort(begin[order], kind="stable")]  # quick: few runs are merged
    later = begin[order]
    if (later[1:] == later[:-1]).any():
        order = np.lexsort((end, begin))
    return order


def _claimed(
    begin: Times, wait: Times, order: NDArray[np.int64], exposed: tuple[Times, Times]
) -> Times:
    """Exposed communication in each call's wait that no earlier wait claims.

    Args:
        begin: of the calls, on one axis.
        wait: how long each waits.
        order: `_order` of those that claim time; the others have 0.
        exposed: disjoint intervals on that axis.
    """
    first = begin[order]
    until = np.maximum.accumulate(first + wait[order])
    fresh = first.copy()
    fresh[1:] = np.maximum(first[1:], until[:-1])
    claimed = np.zeros(len(begin), dtype=np.int64)
    claimed[order] = length_before(*exposed, until) - length_before(*exposed, fresh)
    return claimed


def _costs(others: pl.DataFrame) -> pl.DataFrame:
    """rank, cost_ns, gain_ns of the ranks that came last, from the waits of all chunks."""
    return (
        others.group_by("last", "iteration")
        .agg(pl.col("cost_ns").sum(), pl.col("gain_ns").min())
        .group_by(rank="last")
        .agg(pl.col("cost_ns", "gain_ns").sum())
    )


def _held(exposed: pl.DataFrame) -> tuple[Times, Times, Times]:
    """rank, start and end."""
    rank, start, end = (exposed[name].to_numpy() for name in ("rank", "start_ns", "end_ns"))
    return rank, start, end


class _Axis:
    """One axis on which every rank has a span of its own, so that one sweep serves all."""

    def __init__(self, *parts: tuple[NDArray[Any], Times, Times]) -> None:
        """`parts`: rank, start and end of intervals; those of a rank mostly stand together."""
        self._first = min((int(rank.min()) for rank, *_ in parts if len(rank)), default=0)
        count = max((int(rank.max()) for rank, *_ in parts if len(rank)), default=0) + 1
        low = np.full(count - self._first, np.iinfo(np.int64).max)
        high = np.full(count - self._first, np.iinfo(np.int64).min)
        for rank, start, end in parts:
            if len(rank):
                edges = np.flatnonzero(np.diff(rank, prepend=-1))
                place = rank[edges] - self._first
                np.minimum.at(low, place, np.minimum.reduceat(start, edges))
                np.maximum.at(high, place, np.maximum.reduceat(end, edges))
        low, high = np.where(low <= high, low, 0), np.where(low <= high, high + 1, 0)
        self._shifts = np.cumsum(high - low) - high

    def shift(self, rank: NDArray[Any], times: Times) -> Times:
        """The times on this axis."""
        return np.asarray(times + self._shifts[rank - self._first], dtype=np.int64)

    def union(self, exposed: pl.DataFrame) -> tuple[Times, Times]:
        """The intervals of a frame, merged, on this axis."""
        rank, start, end = _held(exposed)
        return union(self.shift(rank, start), self.shift(rank, end))
