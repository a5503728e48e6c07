"""A run made ready to be played again, if its communication is understood.

See METHOD.md#verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

import polars as pl

from rankscope.judge.replay_inputs import RankChunk, windows_of
from rankscope.match.clocks import Aligner
from rankscope.match.collectives import Matched
from rankscope.match.communication import RunCalls, all_tied, exposed
from rankscope.match.selection import Scope, Selection
from rankscope.match.wait_sums import rank_chunks
from rankscope.store.tables import measured

UNMATCHED = 0.01
"""A run is replayed if calls that were not matched take at most this share of its time."""


class ReplayParts(NamedTuple):
    """The arguments of a `Replay`."""

    chunks: Iterator[RankChunk]
    windows: pl.DataFrame
    aligner: Aligner
    size: int


def replay_parts(
    scope: Scope,
    calls: RunCalls,
    table: pl.DataFrame,
    iterations: Collection[int] | None = None,
) -> ReplayParts | None:
    """The input of a run's replay; None if its communication is not understood.

    There is no room for the calls beside the replay. The chunks hold what it needs of them, until
    the last one is read: let the calls go before that.

    Args:
        scope: what is compared.
        calls: of the iterations to play, or of more.
        table: rank, iteration and `<phase>_ns` of the iterations to play.
        iterations: those of them that are played; None: all that are in range.
    """
    iterations = scope.in_range if iterations is None else iterations
    matched, waited = calls.matched, calls.waited
    rows, shared, clocks = waited.rows, waited.shared, matched.clocks
    if iterations is not None:
        rows = rows.filter(shared["iteration"].is_in([*iterations]).gather(rows["instance"]))
        table = table.filter(pl.col("iteration").is_in([*iterations]))
    if not all_tied(clocks, scope.tables) or rows.is_empty():
        return None
    columns = ("rank", "iteration", "window_start_ns", "iteration_ns")
    measures = measured(scope.tables, scope.clock, columns, iterations)
    chosen = scope.choice.numbers if isinstance(scope.choice, Selection) else ()
    unknown = measures.filter(pl.col("iteration_ns").is_null())["iteration"]
    if chosen and unknown.is_between(chosen[0], chosen[-1]).any():
        return None  # the time in between would be played as it was not
    took = measures.select(pl.col("iteration_ns").sum()).item()
    if _unmatched_ns(matched, measures["iteration"]) > UNMATCHED * took:
        return None
    windows = windows_of(
        measures, table, lambda column: clocks.aligned(column, scope.utc_starts), scope.clock
    )
    chunks = rank_chunks(windows["rank"], rows["rank"].value_counts())
    size = int(rows["rank"].is_in(windows["rank"].unique().implode()).sum())
    slim = rows.select("rank", "instance", "arrival_ns", "end_ns")
    parts = _chunks(scope, chunks, slim, shared["group"], iterations)
    return ReplayParts(parts, windows, Aligner(clocks, scope.utc_starts), size)


def _chunks(
    scope: Scope,
    chunks: list[list[int]],
    calls: pl.DataFrame,
    groups: pl.Series,
    iterations: Collection[int] | None,
) -> Iterator[RankChunk]:
    """The calls and the exposed communication of some ranks at a time."""
    for ranks in chunks:
        rows = calls.lazy().filter(pl.col("rank").is_in(ranks)).collect()
        blocked = exposed(scope, ranks, iterations)
        yield RankChunk(ranks, rows.with_columns(group=groups.gather(rows["instance"])), blocked)


def _unmatched_ns(matched: Matched, iterations: pl.Series) -> int:
    """The time of the calls of all ranks that belong to no instance.

    A replay would keep their length, also where they wait for another rank.
    """
    played = iterations.unique()
    lasted = matched.lasted.filter(pl.col("iteration").is_in(played.implode()))["lasted_ns"].sum()
    here = matched.shared["iteration"].is_in(played.implode()).gather(matched.rows["instance"])
    times = matched.rows.filter(here).select(pl.col("end_ns").sum() - pl.col("arrival_ns").sum())
    return int(lasted) - int(times.item())
