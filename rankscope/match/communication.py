"""How the ranks of a run communicate: collectives matched, clocks aligned, waits, the replay.

The matched calls are the largest frames of a comparison (20 million rows for 1,024 ranks and 1,000
iterations). They live in `RunCollectives` while a comparison is computed; the result holds only
`Matching`, from which the calls of some iterations can be matched again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import polars as pl

from rankscope.judge.replay import Replay
from rankscope.judge.replay_inputs import RankChunk, windows_of
from rankscope.match.calls import COLUMNS
from rankscope.match.clocks import Aligner, Clocks, with_hosts
from rankscope.match.collectives import Matched, MatchSummary, ReusedMatching, match
from rankscope.match.roles import MAKEUP, Roles, given_roles, inferred_roles
from rankscope.match.selection import Scope, Selection, common_iterations
from rankscope.match.wait_sums import Waits, rank_chunks, split
from rankscope.match.waits import WaitedCollectives, timed
from rankscope.store.tables import RunTables, measured
from rankscope.util.memory import give_back

CALLS_AT_ONCE = 2_000_000
"""Calls that are read together: fewer take longer, more take more memory."""

FIRST_RANKS = 8
"""Ranks in the first chunk that is read; its size says how many ranks the next chunks may have."""


UNMATCHED = 0.01
"""A run is replayed if calls that were not matched take at most this share of its time."""


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """What stays of a run's collectives: who communicates with whom, and the ranks' clocks.

    `summary`: how many calls were matched, which were not, the clocks. `streams` as in `Matched`.
    `groups`: the communicators, with the columns of `waits.GROUPS`.
    """

    summary: MatchSummary
    streams: pl.DataFrame
    groups: pl.DataFrame

    @property
    def clocks(self) -> Clocks:
        """The clocks of the ranks that collectives tie together."""
        return self.summary.solved

    def reused(self) -> ReusedMatching:
        """What matching the calls of some iterations takes from here."""
        return ReusedMatching(self.streams, self.groups, self.clocks)


class RunCollectives:
    """The matched calls of a run while it is compared: matched when they are first needed.

    Args:
        scope: the ranks, the clock and the iterations.
        links: pairs of ranks that send to each other, where known.
        reuse: the result of matching all iterations, if there is one.
        iterations: only calls in these; None: in all that are complete on every rank.
        summary: of matching all iterations, if known.
    """

    def __init__(
        self,
        scope: Scope,
        links: list[tuple[int, int]],
        reuse: ReusedMatching | None = None,
        iterations: tuple[int, ...] | None = None,
        summary: MatchSummary | None = None,
    ) -> None:
        self._scope = scope
        self._summary = summary
        self._links = links
        self._reuse = reuse
        self._iterations = iterations
        self._calls: tuple[Matched, WaitedCollectives] | None = None

    def calls(self) -> tuple[Matched, WaitedCollectives]:
        """The calls, without and with their waits."""
        if self._calls is None:
            matched = match_run(self._scope, self._links, self._reuse, self._iterations)
            give_back()
            groups = None if self._reuse is None else self._reuse.groups
            self._calls = matched, timed(matched, self._scope.utc_starts, groups)
        return self._calls

    def size(self) -> tuple[int, int]:
        """The number of matched calls, and of their iterations."""
        if self._calls is None and self._summary is not None and self._iterations is None:
            return self._summary.calls, self._summary.iterations
        met = self.calls()[0].met
        return met.calls, met.iterations

    def some(self, iterations: tuple[int, ...] | None) -> RunCollectives:
        """The collectives of some iterations, or of more: only these are read where none are."""
        if self._calls is not None or self._reuse is None or iterations is None:
            return self
        return RunCollectives(self._scope, self._links, self._reuse, iterations)

    def matching(self) -> Matching:
        """What stays of them."""
        matched, waited = self.calls()
        return Matching(matched.met, matched.streams, waited.groups)

    def waits(self) -> Waits:
        """The split of communication into waiting and transfer.

        `by_rank` is that of the selected iterations, if some can be compared.
        """
        scope = self._scope
        comparable = not isinstance(scope.choice, Exception)
        return split(
            self.calls()[1],
            lambda ranks: _exposed(scope, ranks, self._iterations),
            ("device", "host") if scope.clock == "gpu" else ("host",),
            scope.selection.numbers if comparable else None,
        )

    def instances(self) -> pl.DataFrame:
        """group, operation, iteration, ordinal and bytes (null where unknown) of each instance."""
        matched, _ = self.calls()
        rows, shared = matched.rows, matched.shared
        if "bytes" not in rows.columns:
            return shared.with_columns(bytes=pl.lit(None, pl.Int64))
        first = [rows["bytes"][of.start : of.start + where.stop - where.start]
                 for _, _, where, of in matched.blocks()]  # fmt: skip
        return shared.with_columns(bytes=pl.concat([rows["bytes"].clear(), *first]))

    def replay(
        self, table: pl.DataFrame, iterations: Collection[int] | None = None
    ) -> Replay | None:
        """The run, to be played again with less work; None if its communication is not understood.

        There is no room for the calls next to the replay: they are released, and asking for them
        again matches them again.

        Args:
            table: rank, iteration and `<phase>_ns` of the iterations to play.
            iterations: those of them that are played; None: all.
        """
        played = self._scope.in_range if iterations is None else iterations
        parts = _replay_parts(self._scope, *self.calls(), table, played)
        self._calls = None
        return None if parts is None else Replay(*parts)


def match_run(
    scope: Scope,
    links: list[tuple[int, int]],
    reuse: ReusedMatching | None = None,
    iterations: tuple[int, ...] | None = None,
) -> Matched:
    """The collectives of the iterations that are complete on every rank, matched across ranks.

    Args:
        scope: the ranks and their clocks' starts.
        links: pairs of ranks that send to each other, where known.
        reuse: the result of matching all iterations, to match some of them alike.
        iterations: only calls in these; None: in all.
    """
    calls = _read_calls(scope.tables, iterations)
    matched = match(calls, scope.utc_starts, links, reuse, _spans(scope))
    if reuse is not None:
        return matched
    ranks = scope.tables.ranks
    hosts = {
        rank: None if scope.utc_starts[rank] is None else host
        for rank, host in ranks.select("rank", "host").iter_rows()
    }
    paths = dict(ranks.select("rank", "path").iter_rows())
    return replace(matched, solved=with_hosts(matched.solved, hosts, paths))


def _spans(scope: Scope) -> dict[int, tuple[int, int]]:
    """rank → first and last moment of its complete iterations on its own UTC, ns."""
    spans = (
        scope.tables.iterations.filter("complete")
        .group_by("rank")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        .drop_nulls()
    )
    starts = {rank: scope.utc_starts[rank] or 0 for rank in spans["rank"]}
    return {
        rank: (starts[rank] + first, starts[rank] + last) for rank, first, last in spans.iter_rows()
    }


def roles_by_option(scope: Scope) -> Roles | None:
    """The roles that `--roles` gives; None without that option."""
    if scope.options.roles is None:
        return None
    ranks = scope.tables.ranks["rank"].sort().to_list()
    return given_roles(scope.options.roles, ranks, scope.world_size)


def roles_by_gradients(scope: Scope, matched: Matched) -> Roles:
    """The roles that follow from who reduces gradients together."""
    ranks = scope.tables.ranks
    return inferred_roles(
        ranks["rank"].sort().to_list(),
        dict(ranks.select("rank", "host").iter_rows()),
        matched.reducing,
        lambda some: scope.tables.read("activities", MAKEUP, ranks=some, narrow=True),
    )


def waited_in(
    scope: Scope, matching: Matching, links: list[tuple[int, int]], iterations: Collection[int]
) -> WaitedCollectives:
    """The matched calls of some iterations, or of more, with their waits.

    Args:
        scope: what was compared.
        matching: the result of matching all iterations.
        links: pairs of ranks that send to each other; with them all iterations are matched.
        iterations: those that are complete on every rank among them count.
    """
    if links:
        return RunCollectives(scope, links).calls()[1]
    common = {*common_iterations(scope.tables.iterations)}
    numbers = tuple(number for number in iterations if number in common)
    return RunCollectives(scope, [], matching.reused(), numbers or None).calls()[1]


def all_tied(clocks: Clocks, tables: RunTables) -> bool:
    """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
    return len(clocks.fits) > 1 and {*clocks.fits} >= {*tables.ranks["rank"]}


def _read_calls(tables: RunTables, iterations: tuple[int, ...] | None) -> Iterator[pl.DataFrame]:
    """COLLECTIVES in chunks of ranks, in the iterations that are complete on every rank."""
    common = iterations or common_iterations(tables.iterations)
    ranks = tables.ranks["rank"].sort().to_list()
    at, many = 0, FIRST_RANKS
    while at < len(ranks):
        chunk = tables.read(
            "collectives", COLUMNS, ranks=ranks[at : at + many], iterations=iterations, narrow=True
        )
        here = chunk["iteration"].is_in(common)
        yield chunk if here.all() else chunk.filter(here)
        at, many = at + many, max(1, CALLS_AT_ONCE * many // max(chunk.height, 1))


def _exposed(
    scope: Scope, ranks: list[int], iterations: Collection[int] | None = None
) -> pl.DataFrame:
    """EXPOSED of some ranks on the clock of the comparison."""
    columns = ("rank", "iteration", "start_ns", "end_ns")
    return scope.tables.read(
        "exposed", columns, ranks=ranks, iterations=iterations, narrow=True, clock=scope.clock
    )


def _replay_parts(
    scope: Scope,
    matched: Matched,
    waited: WaitedCollectives,
    table: pl.DataFrame,
    iterations: Collection[int] | None,
) -> tuple[Iterator[RankChunk], pl.DataFrame, Aligner, int] | None:
    """The arguments of a `Replay`; its chunks alone hold the calls, until the last is read."""
    rows, shared, clocks = waited.rows, waited.shared, matched.solved
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
    calls = rows.select("rank", "instance", "arrival_ns", "end_ns")
    parts = _replay_chunks(scope, chunks, calls, shared["group"], iterations)
    return parts, windows, Aligner(clocks, scope.utc_starts), size


def _replay_chunks(
    scope: Scope,
    chunks: list[list[int]],
    calls: pl.DataFrame,
    groups: pl.Series,
    iterations: Collection[int] | None,
) -> Iterator[RankChunk]:
    """The calls and the exposed communication of some ranks at a time."""
    for ranks in chunks:
        rows = calls.lazy().filter(pl.col("rank").is_in(ranks)).collect()
        exposed = _exposed(scope, ranks, iterations)
        yield RankChunk(ranks, rows.with_columns(group=groups.gather(rows["instance"])), exposed)


def _unmatched_ns(matched: Matched, iterations: pl.Series) -> int:
    """The time of the calls of all ranks that belong to no instance.

    A replay would keep their length, also where they wait for another rank.
    """
    played = iterations.unique()
    lasted = matched.lasted.filter(pl.col("iteration").is_in(played.implode()))["lasted_ns"].sum()
    here = matched.shared["iteration"].is_in(played.implode()).gather(matched.rows["instance"])
    times = matched.rows.filter(here).select(pl.col("end_ns").sum() - pl.col("arrival_ns").sum())
    return int(lasted) - int(times.item())
