"""How the ranks of a run communicate: collectives matched, clocks aligned, waits.

The matched calls are the largest frames of a comparison (20 million rows for 1,024 ranks and 1,000
iterations): drop a `RunCalls` as soon as possible. A result holds only `Matching`, from which the
calls of some iterations can be matched again.
"""

from collections.abc import Collection, Iterator

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.match.calls import COLUMNS
from rankscope.match.clocks import with_hosts
from rankscope.match.collectives import Matched, match
from rankscope.match.point_to_point import TRANSFERS
from rankscope.match.records import Matching, Roles, Scope
from rankscope.match.roles import MAKEUP, given_roles, inferred_roles
from rankscope.match.selection import common_iterations
from rankscope.match.wait_sums import Waits, sum_waits
from rankscope.match.waits import WaitedCollectives, with_waits
from rankscope.store.tables import RunTables
from rankscope.util.memory import give_back
from rankscope.util.numbers import sampled

CALLS_AT_ONCE = 2_000_000
"""Calls that are read together: fewer take more time, more take more memory."""

FIRST_RANKS = 8
"""Ranks in the first chunk that is read; its size determines the ranks in the next chunks."""


class RunCalls(Struct, frozen=True, eq=False):
    """The calls of a run's collectives, matched, without and with their waits.

    `iterations`: those of the calls; None: all that are complete on every rank.
    """

    matched: Matched
    waited: WaitedCollectives
    iterations: tuple[int, ...] | None

    @property
    def matching(self) -> Matching:
        """The result without the calls."""
        return Matching(self.matched.summary, self.matched.streams, self.waited.groups)

    def instances(self) -> pl.DataFrame:
        """The instances: group, operation, iteration, ordinal, transfer (ns), bytes and hidden.

        Sizes are null where they are unknown. `hidden`: a send whose receiver came last, so that
        the message may have been under way before.
        """
        rows, shared = self.matched.rows, self.waited.shared.drop("last")
        shared = shared.with_columns(hidden=self._hidden())
        if "bytes" not in rows.columns:
            return shared.with_columns(bytes=pl.lit(None, pl.Int64))
        first = [rows["bytes"][of.start : of.start + where.stop - where.start]
                 for _, _, where, of in self.matched.blocks()]  # fmt: skip
        return shared.with_columns(bytes=pl.concat([rows["bytes"].clear(), *first]))

    def _hidden(self) -> pl.Series:
        """Whether the receiver of each instance came last; false where nobody is the sender."""
        hidden, senders = np.zeros(self.waited.shared.height, dtype=np.bool_), self.matched.senders
        if senders:
            calls = self.waited.rows.select("rank", "instance", "wait").with_columns(
                group=self.waited.shared["group"].gather(self.waited.rows["instance"])
            )
            sender = pl.col("group").replace_strict(senders, default=None, return_dtype=pl.Int64)
            late = calls.filter((pl.col("rank") != sender) & (pl.col("wait") <= 0))
            hidden[late["instance"].to_numpy()] = True
        return pl.Series(hidden)


def match_calls(scope: Scope, links: list[tuple[int, int]]) -> RunCalls:
    """The calls of all iterations that are complete on every rank.

    Args:
        scope: the ranks, the clock and the iterations.
        links: pairs of ranks that send to each other, where known.
    """
    return _with_waits(scope, match_run(scope, links), None, None)


def match_again(
    scope: Scope,
    matching: Matching,
    links: list[tuple[int, int]],
    iterations: tuple[int, ...] | None = None,
) -> RunCalls:
    """The calls of some iterations, matched as they were before.

    Args:
        scope: the ranks, the clock and the iterations.
        matching: the result of matching all iterations.
        links: pairs of ranks that send to each other; with them, or with transfers whose peers the
            reports name, all iterations are matched.
        iterations: only calls in these; None: in all that are complete on every rank.
    """
    if matching.streams["label"].cast(pl.String).str.contains(TRANSFERS).any():
        return match_calls(scope, links)
    matched = match_run(scope, [], matching, iterations)
    return _with_waits(scope, matched, matching.groups, iterations)


def _with_waits(
    scope: Scope,
    matched: Matched,
    groups: pl.DataFrame | None,
    iterations: tuple[int, ...] | None,
) -> RunCalls:
    give_back()
    return RunCalls(matched, with_waits(matched, scope.utc_starts, groups), iterations)


def waits_of(scope: Scope, calls: RunCalls) -> Waits:
    """The split of communication into waiting and transfer.

    `by_rank` is that of the selected iterations, if some can be compared.
    """
    comparable = not isinstance(scope.choice, Exception)
    return sum_waits(
        calls.waited,
        lambda ranks: exposed(scope, ranks, calls.iterations),
        ("device", "host") if scope.clock == "gpu" else ("host",),
        scope.selection.numbers if comparable else None,
    )


def match_run(
    scope: Scope,
    links: list[tuple[int, int]],
    reuse: Matching | None = None,
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
    if reuse is not None:
        return match(calls, scope.utc_starts, links, reuse)
    matched = match(calls, scope.utc_starts, links, spans=_spans(scope))
    ranks = scope.tables.ranks
    hosts = {
        rank: None if scope.utc_starts[rank] is None else host
        for rank, host in ranks.select("rank", "host").iter_rows()
    }
    paths = dict(ranks.select("rank", "path").iter_rows())
    return replace(matched, clocks=with_hosts(matched.clocks, hosts, paths))


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
    """The roles that follow from which ranks reduce gradients together."""
    tables, rank_rows = scope.tables, scope.tables.ranks
    chosen = sampled(common_iterations(tables.iterations))
    return inferred_roles(
        rank_rows["rank"].sort().to_list(),
        dict(rank_rows.select("rank", "host").iter_rows()),
        matched.reducing,
        lambda ranks: tables.read(
            "activities", MAKEUP, ranks=ranks, iterations=chosen, narrow=True
        ),
    )


def _read_calls(tables: RunTables, iterations: tuple[int, ...] | None) -> Iterator[pl.DataFrame]:
    """COLLECTIVES in chunks of ranks, in the iterations that are complete on every rank."""
    common = iterations or common_iterations(tables.iterations)
    ranks = tables.ranks["rank"].sort().to_list()
    first, count = 0, FIRST_RANKS
    while first < len(ranks):
        chunk = tables.read(
            "collectives",
            COLUMNS,
            ranks=ranks[first : first + count],
            iterations=iterations,
            narrow=True,
        )
        is_common = chunk["iteration"].is_in(common)
        yield chunk if is_common.all() else chunk.filter(is_common)
        first, count = first + count, max(1, CALLS_AT_ONCE * count // max(chunk.height, 1))


def exposed(
    scope: Scope, ranks: list[int], iterations: Collection[int] | None = None
) -> pl.DataFrame:
    """rank, start_ns and end_ns of EXPOSED, of some ranks on the clock of the comparison."""
    columns = ("rank", "start_ns", "end_ns")
    return scope.tables.read(
        "exposed", columns, ranks=ranks, iterations=iterations, narrow=True, clock=scope.clock
    )
