"""Waits of matched instances, summed by rank and iteration, and by who was waited for.

See METHOD.md#waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.match.collectives import blocks_of
from rankscope.match.rank_axis import RankAxis, firsts
from rankscope.match.waits import NOBODY, WaitedCollectives
from rankscope.model.intervals import Flags, Times, length_before
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.util.threads import threaded

Exposed = Callable[[list[int]], pl.DataFrame]
"""EXPOSED of some ranks on one clock."""

_Intervals = tuple[NDArray[np.int32], Times, Times]
"""rank, start_ns and end_ns of EXPOSED."""

CALLS_AT_ONCE = 200_000
"""Calls that are handled together: more take more memory, fewer more queries for EXPOSED."""

UNWAITED = np.iinfo(np.int64).max
"""Placeholder for the shortest wait where no rank waited."""


class Waits(Struct, frozen=True):
    """The split of communication into waiting and transfer.

    `by_iteration`: rank, iteration, wait_ns (exposed waiting), collective_wait_ns,
    collective_transfer_ns, of all iterations.

    `by_rank`, of the requested iterations and of ranks that do more than send and receive: rank,
    last_arriver_share (of their other collectives), cost_ns (the others' exposed waiting for it),
    gain_ns (the part of the cost that fixing it alone would have saved: in each iteration the
    waiting of the rank that waited least, which would then come last). `by_rank_of_all`: the same
    of all iterations.
    """

    by_iteration: pl.DataFrame
    by_rank: pl.DataFrame
    by_rank_of_all: pl.DataFrame


def sum_waits(
    waited: WaitedCollectives,
    exposed: Exposed,
    places: tuple[str, ...],
    numbers: Collection[int] | None = None,
) -> Waits:
    """Waits of matched instances, summed.

    Waits that overlap (queued collectives) count once, for the collective that the rank arrived
    at first.

    Args:
        waited: the instances.
        exposed: gives the exposed communication, on one clock.
        places: `place` of the calls whose waits can expose communication on that clock.
        numbers: the iterations that `by_rank` is about; None: all.
    """
    exposing_groups = waited.streams.filter(pl.col("place").is_in(places))["group"].unique()
    iterations, last = waited.shared["iteration"], waited.shared["last"].fill_null(NOBODY)
    # ranks and iterations are counted, so that both index a table of sums
    blocks, numbered = _blocks(waited), iterations.unique().sort().to_numpy()
    ranks = blocks["rank"].unique().sort().to_numpy()
    iteration_index = np.searchsorted(numbered, iterations.to_numpy())
    instances = [
        waited.shared["transfer"].to_numpy(),
        last.to_numpy(),
        np.searchsorted(ranks, last.to_numpy()) * len(numbered) + iteration_index,
        iteration_index,
        waited.shared["group"].cast(pl.Int64).is_in(exposing_groups.implode()).to_numpy(),
        (waited.shared["operation"].cast(pl.String) != POINT_TO_POINT).to_numpy(),
    ]
    calls = [waited.rows[name].to_numpy() for name in ("rank", "wait", "arrival_ns", "end_ns")]

    def chunks() -> Iterator[tuple[_Calls, _Intervals]]:
        for of_ranks in rank_chunks(blocks["rank"], blocks) or [[]]:
            spans = (
                blocks.filter(pl.col("rank").is_in(of_ranks)).select("low", "first", "count").rows()
            )
            spans = spans or [(0, 0, 0)]
            parts = [np.concatenate([each[low : low + count] for low, _, count in spans])
                     for each in calls]  # fmt: skip
            parts += [np.concatenate([each[first : first + count] for _, first, count in spans])
                      for each in instances]  # fmt: skip
            rank, start, end = exposed(of_ranks).select("rank", "start_ns", "end_ns")
            yield _Calls(*parts), (rank.to_numpy(), start.to_numpy(), end.to_numpy())

    sums: list[pl.DataFrame] = []
    costs = _Costs(ranks, len(numbered))
    for part, waited_for in threaded(lambda each: _chunk_waits(*each, numbered, ranks), chunks()):
        sums.append(part)
        costs.add(waited_for)
    everything = np.ones(len(numbered), dtype=np.bool_)
    selected = everything if numbers is None else np.isin(numbered, [*numbers])
    return Waits(pl.concat(sums), costs.by_rank(selected), costs.by_rank(everything))


def _blocks(waited: WaitedCollectives) -> pl.DataFrame:
    """rank, low, first, count: rows of a rank and a group, and their first instance, by rank.

    With them, columns that calls share are copied in blocks, not gathered call by call.
    """
    blocks = []
    for _, _, where, rows in blocks_of(waited.shared, waited.groups):
        count = where.stop - where.start
        lows = range(rows.start, rows.stop, count)
        blocks += [(waited.rows["rank"][low], low, where.start, count) for low in lows]
    schema = dict.fromkeys(("rank", "low", "first", "count"), pl.Int64)
    return pl.DataFrame(blocks, schema, orient="row").sort("rank", maintain_order=True)


def rank_chunks(ranks: pl.Series, counts: pl.DataFrame) -> list[list[int]]:
    """`ranks` ascending, in chunks that have about `CALLS_AT_ONCE` rows each.

    Args:
        ranks: all that there are.
        counts: rank and count: numbers of rows, to be added up.
    """
    chunks = (
        pl.DataFrame({"rank": ranks.unique().cast(pl.Int64)})
        .join(
            counts.select(pl.col("rank", "count").cast(pl.Int64)).group_by("rank").sum(),
            on="rank",
            how="left",
        )
        .sort("rank")
        .with_columns(chunk=pl.col("count").fill_null(0).cum_sum() // CALLS_AT_ONCE)
    )
    return chunks.group_by("chunk", maintain_order=True).agg("rank")["rank"].to_list()


class _Calls(NamedTuple):
    """Calls of some ranks, one rank after the other; the second half is that of their instances."""

    rank: NDArray[np.int32]
    wait: Times
    arrival: Times
    end: Times
    transfer: Times
    last: NDArray[np.int32]  # or NOBODY
    late: Times  # last and iteration, counted, as one number
    at: Times  # the iteration, counted
    exposing: Flags  # whether waits for it can expose communication
    meeting: Flags  # whether somebody may come last: a sender may have waited before

    @property
    def first(self) -> Times:
        """Where the calls of each rank begin."""
        return firsts(self.rank)


class _Waited(NamedTuple):
    """The waits of some ranks, call by call, one rank after the other, and who came last.

    A cell is a rank and an iteration, both counted, as one number.
    """

    rank: NDArray[np.int32]
    late: Times  # the cell of who came last, as in `_Calls`
    wait: Times
    meeting: Times  # cells of the calls to which somebody may come last
    came_last: Times  # and of those to which the rank itself did


class _Costs:
    """The waiting that each rank causes in each iteration, summed, and how often it comes last."""

    def __init__(self, ranks: Times, iterations: int) -> None:
        """`ranks`: all, ascending. `iterations`: how many."""
        self._ranks, self._shape = ranks, (len(ranks), iterations)
        size = len(ranks) * iterations
        self._cost = np.zeros(size, dtype=np.int64)
        self._own = np.zeros_like(self._cost)  # of a rank, until the next one is added
        self._least = np.full(size, UNWAITED)
        self._often, self._calls = np.zeros((2, size), dtype=np.int64)

    def add(self, waited: _Waited) -> None:
        """Add the waits of some ranks."""
        np.add.at(self._often, waited.came_last, 1)
        np.add.at(self._calls, waited.meeting, 1)
        np.add.at(self._cost, waited.late, waited.wait)
        for low, high in pairwise([*firsts(waited.rank), len(waited.rank)]):
            late = waited.late[low:high]
            np.add.at(self._own, late, waited.wait[low:high])
            # the same value where an index comes twice
            self._least[late] = np.minimum(self._least[late], self._own[late])
            self._own[late] = 0

    def by_rank(self, counted: Flags) -> pl.DataFrame:
        """The columns of `Waits.by_rank`; `counted`: which iterations count."""
        gain = np.where(self._least == UNWAITED, 0, self._least)
        often, calls, cost, gain = (
            each.reshape(self._shape)[:, counted].sum(axis=1)
            for each in (self._often, self._calls, self._cost, gain)
        )
        share = often / np.maximum(calls, 1)
        columns = {"last_arriver_share": share, "cost_ns": cost, "gain_ns": gain}
        return pl.DataFrame({"rank": self._ranks, **columns}).filter(calls > 0)


def _chunk_waits(
    calls: _Calls, exposed: _Intervals, numbered: Times, ranks: Times
) -> tuple[pl.DataFrame, _Waited]:
    """`Waits.by_iteration` of some ranks, and for whom they waited.

    Args:
        calls: of these ranks.
        exposed: of these ranks.
        numbered: all iterations, ascending.
        ranks: all, ascending.
    """
    rank, last, exposing = calls.rank, calls.last, calls.exposing
    # all ranks are on one axis, so that each step is one pass over all of them
    axis = RankAxis((rank, calls.arrival, calls.end), exposed)
    begin = axis.shift(rank, calls.arrival)
    order = _order(begin, calls.end)
    order = order if exposing.all() else order[exposing[order]]
    # time in which waits overlap is claimed by the call that came first
    claimed = _claimed(begin, calls.wait, order, axis.union(*exposed))
    others = np.flatnonzero((last != rank) & (last != NOBODY) & exposing)
    meeting = np.searchsorted(ranks, rank) * len(numbered) + calls.at
    came_last = meeting[calls.meeting & (last == rank)]
    cells = meeting[calls.meeting], came_last
    waited = _Waited(rank[others], calls.late[others], claimed[others], *cells)
    return _summed(calls, claimed, numbered), waited


def _summed(calls: _Calls, claimed: Times, numbered: Times) -> pl.DataFrame:
    """`Waits.by_iteration` of some ranks, in order.

    Args:
        calls: of these ranks.
        claimed: the exposed waiting of each.
        numbered: all iterations, ascending.
    """
    # a cell is an iteration of a rank: both are counted
    first = calls.first
    lengths = np.diff(first, append=len(calls.rank))
    cell = np.repeat(np.arange(len(first)) * len(numbered), lengths) + calls.at
    size = len(first) * len(numbered)
    occupied = np.flatnonzero(np.bincount(cell, minlength=size))
    sums = []
    for values in (claimed, calls.wait, calls.transfer):
        cells = np.zeros(size, dtype=np.int64)
        np.add.at(cells, cell, values)
        sums.append(cells[occupied])
    place, iteration_index = np.divmod(occupied, max(len(numbered), 1))
    # unknown where no call could have exposed communication
    waits = pl.Series(sums[0])
    if not calls.exposing.all():
        exposing = np.bincount(cell[calls.exposing], minlength=size)[occupied] > 0
        waits = waits.set(pl.Series(~exposing), None)
    return pl.DataFrame(
        {
            "rank": calls.rank[first][place].astype(np.int64),
            "iteration": numbered[iteration_index],
            "collective_wait_ns": sums[1],
            "collective_transfer_ns": sums[2],
            "wait_ns": waits,
        }
    )


def _order(begin: Times, end: Times) -> NDArray[np.int64]:
    """The order of calls by their begin on one axis; those that begin together by their ends."""
    order = np.argsort(begin, kind="stable")  # quick: few runs are merged
    later = begin[order]
    if (later[1:] == later[:-1]).any():
        order = np.lexsort((end, begin))
    return order


def _claimed(
    begin: Times, wait: Times, order: NDArray[np.int64], exposed: tuple[Times, Times]
) -> Times:
    """Exposed communication in each call's wait that no earlier wait claims.

    Args:
        begin: of all calls, on one axis.
        wait: how long each waits.
        order: `_order` of the calls that claim time; the others have 0.
        exposed: disjoint intervals on their axis.
    """
    first = begin[order]
    until = np.maximum.accumulate(first + wait[order])
    first[1:] = np.maximum(first[1:], until[:-1])
    spans = np.stack((first, until), axis=1).ravel()
    claimed = np.zeros(len(begin), dtype=np.int64)
    before = length_before(*exposed, spans, in_order=True)
    claimed[order] = before[1::2] - before[::2]
    return claimed
