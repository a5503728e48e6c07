"""Waits of matched instances, summed by rank and iteration, and by who was waited for.

See METHOD.md#waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.compare.waits import NOBODY, WaitedCollectives
from rankscope.model.intervals import Flags, Times, length_before, union
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
    last = timed.shared["last"].fill_null(NOBODY).to_numpy()
    numbered = iterations.unique().sort().to_numpy()
    at = np.searchsorted(numbered, iterations.to_numpy())
    instances = {
        "transfer": timed.shared["transfer"].to_numpy(),
        "last": last,
        "late": last.astype(np.int64) * len(numbered) + at,
        "iteration": iterations.to_numpy(),
        "exposing": timed.shared["group"].cast(pl.Int64).is_in(here.implode()).to_numpy(),
        "chosen": np.ones(len(last), dtype=np.bool_)
        if numbers is None
        else iterations.is_in(list(numbers)).to_numpy(),
    }
    calls = {
        name: timed.rows[column].to_numpy()
        for name, column in (
            ("rank", "rank"), ("wait", "wait"), ("arrival", "arrival_ns"), ("end", "end_ns")
        )
    }  # fmt: skip
    ranks, blocks = timed.rows["rank"], _blocks(calls["rank"], timed.rows["instance"].to_numpy())
    parts = []
    for some in rank_chunks(ranks.unique(), ranks) or [[]]:
        mine = blocks.filter(pl.col("rank").is_in(some)).rows() or [(0, 0, 0, 0)]
        chunk = _Calls(
            **{
                name: np.concatenate([values[low:high] for _, low, high, _ in mine])
                for name, values in calls.items()
            },
            **{
                name: np.concatenate([values[first : first + high - low]
                                      for _, low, high, first in mine])
                for name, values in instances.items()
            },
        )  # fmt: skip
        parts.append(_chunk_waits(chunk, numbered, exposed(some), numbers))
    sums, selected, every = zip(*parts, strict=True)
    return Waits(pl.concat(sums), _per_rank(selected), _per_rank(every))


def _blocks(rank: NDArray[np.int32], instance: NDArray[np.int32]) -> pl.DataFrame:
    """rank, low, high, first: rows of a rank whose instances follow each other, by rank.

    So what calls share is copied in blocks, not gathered call by call.
    """
    apart = np.ones(len(rank), dtype=np.bool_)
    apart[1:] = (rank[1:] != rank[:-1]) | (np.diff(instance) != 1)
    low = np.flatnonzero(apart)
    high = np.append(low[1:], len(rank))[: len(low)]
    frame = pl.DataFrame({"rank": rank[low], "low": low, "high": high, "first": instance[low]})
    return frame.sort("rank", maintain_order=True)


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


class _Calls(NamedTuple):
    """Calls of some ranks, one rank after the other; the second half is that of their instances."""

    rank: NDArray[np.int32]
    wait: Times
    arrival: Times
    end: Times
    transfer: Times
    last: NDArray[np.int32]  # or NOBODY
    late: Times  # last and iteration, counted, as one number
    iteration: Times
    exposing: Flags  # whether waits for it can expose communication
    chosen: Flags  # whether `by_rank` is about it


def _chunk_waits(
    calls: _Calls, numbered: Times, exposed: pl.DataFrame, numbers: Collection[int] | None
) -> tuple[pl.DataFrame, _ByLast, _ByLast]:
    """Of some ranks `Waits.by_iteration`, and what others waited in selected and all iterations.

    Args:
        calls: of these ranks.
        numbered: all iterations, ascending.
        exposed: EXPOSED of these ranks.
        numbers: the selected iterations; None: all.
    """
    rank, exposing, chosen = calls.rank, calls.exposing, calls.chosen
    axis = _Axis((rank, calls.arrival, calls.end), _held(exposed))
    begin = axis.shift(rank, calls.arrival)
    order = _order(begin, calls.end)
    order = order if exposing.all() else order[exposing[order]]
    spans = _spans(begin, calls.wait, order)
    claimed = _claimed(len(begin), spans, order, axis.union(exposed))
    sums = _summed(
        rank,
        calls.iteration,
        collective_wait_ns=calls.wait,
        collective_transfer_ns=calls.transfer,
        wait_ns=claimed,
    )
    if not exposing.all():
        known = _summed(rank[exposing], calls.iteration[exposing]).select("rank", "iteration")
        there = known.with_columns(there=pl.lit(True))
        sums = sums.join(there, on=["rank", "iteration"], how="left").select(
            "rank", "iteration", "collective_wait_ns", "collective_transfer_ns",
            wait_ns=pl.when("there").then("wait_ns"),
        )  # fmt: skip
    costs = _waited(calls, exposing, claimed, numbered)
    every = _shares(rank, calls.last), costs
    if numbers is None or chosen.all():
        return sums, every, every
    # what overlaps with other iterations' counts in these alone
    here = pl.col("iteration").is_in(list(numbers))
    if _apart(spans, chosen[order], axis.union(exposed.filter(~here))):
        costs = costs.filter(here)
    else:
        some = order[chosen[order]]
        own = _spans(begin, calls.wait, some)
        claimed = _claimed(len(begin), own, some, axis.union(exposed.filter(here)))
        costs = _waited(calls, exposing & chosen, claimed, numbered)
    return sums, (_shares(rank[chosen], calls.last[chosen]), costs), every


def _shares(rank: NDArray[np.int32], last: NDArray[np.int32]) -> pl.DataFrame:
    """How often each rank came last to its calls: rank, last_arriver_share."""
    calls = np.bincount(rank)
    ranks = np.flatnonzero(calls)
    often = np.bincount(rank[last == rank], minlength=len(calls))[ranks]
    return pl.DataFrame({"rank": ranks, "last_arriver_share": often / calls[ranks]})


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


def _waited(calls: _Calls, some: Flags, waits: Times, numbered: Times) -> pl.DataFrame:
    """last, iteration, cost_ns, gain_ns: what others waited for it, in all and each at least.

    Args:
        calls: of some ranks.
        some: which of them count.
        waits: how much each waits.
        numbered: all iterations, ascending.
    """
    others = np.flatnonzero((calls.last != calls.rank) & (calls.last != NOBODY) & some)
    rank, late = calls.rank[others], calls.late[others]
    first = int(rank.min(initial=0))
    span = int(rank.max(initial=0)) - first + 1
    pair = late * span + (rank - first)
    order = np.argsort(pair)
    pair = pair[order]
    starts = np.flatnonzero(np.diff(pair, prepend=-1))
    each = np.add.reduceat(waits[others[order]], starts)
    late = pair[starts] // span
    firsts = np.flatnonzero(np.diff(late, prepend=-1))
    last, at = np.divmod(late[firsts], max(len(numbered), 1))
    return pl.DataFrame(
        {
            "last": last,
            "iteration": numbered[at],
            "cost_ns": np.add.reduceat(each, firsts),
            "gain_ns": np.minimum.reduceat(each, firsts),
        }
    )


def _order(begin: Times, end: Times) -> NDArray[np.int64]:
    """The order of calls by their begin on one axis; those that begin together by their ends."""
    order = np.argsort(begin, kind="stable")  # quick: few runs are merged
    later = begin[order]
    if (later[1:] == later[:-1]).any():
        order = np.lexsort((end, begin))
    return order


def _spans(begin: Times, wait: Times, order: NDArray[np.int64]) -> Times:
    """Start and end in turn of what each call waits after the waits before it, ascending.

    Args:
        begin: of the calls, on one axis.
        wait: how long each waits.
        order: `_order` of those that count.
    """
    first = begin[order]
    until = np.maximum.accumulate(first + wait[order])
    first[1:] = np.maximum(first[1:], until[:-1])
    return np.stack((first, until), axis=1).ravel()


def _claimed(
    count: int, spans: Times, order: NDArray[np.int64], exposed: tuple[Times, Times]
) -> Times:
    """Exposed communication in each call's wait that no earlier wait claims.

    Args:
        count: of all calls.
        spans: `_spans` of the calls that claim time; the others have 0.
        order: of these.
        exposed: disjoint intervals on their axis.
    """
    claimed = np.zeros(count, dtype=np.int64)
    before = length_before(*exposed, spans)
    claimed[order] = before[1::2] - before[::2]
    return claimed


def _apart(spans: Times, chosen: Flags, others: tuple[Times, Times]) -> bool:
    """Whether calls claim what they would claim without those of other iterations.

    Args:
        spans: `_spans` of all calls.
        chosen: which of the calls stay, in that order.
        others: exposed communication of the other iterations.
    """
    first, until = spans[::2], spans[1::2]
    follows = np.flatnonzero(chosen[1:] & ~chosen[:-1])
    if (first[follows + 1] <= until[follows]).any():
        return False
    start, end = others
    first, until = first[chosen], np.append(until[chosen], np.iinfo(np.int64).min)
    return bool((until[np.searchsorted(first, end) - 1] <= start).all())


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
