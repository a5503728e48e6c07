"""How the ranks of a run communicate: collectives matched, clocks aligned, waits, the replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import polars as pl

from rankscope.align.clocks import Aligner, Clocks, with_hosts
from rankscope.align.match import Matched, ReusedMatching, match
from rankscope.align.point_to_point import OPERATION
from rankscope.compare.selection import common_iterations
from rankscope.compare.waits import WaitedCollectives, Waits, rank_chunks, split, timed
from rankscope.compare.whatif.replay import Replay
from rankscope.compare.whatif.scenarios import windows_of
from rankscope.store.tables import ROWS_AT_ONCE, RunTables, measured

MANY = 4_000_000
"""So many calls, and what is known of each, fill a good part of a small machine's memory."""

FIRST_RANKS = 8
"""Ranks that are read first, to see how many calls ranks have."""


def all_tied(solved: Clocks, frames: RunTables) -> bool:
    """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
    return len(solved.fits) > 1 and {*solved.fits} >= {*frames.ranks["rank"]}


class Communication:
    """Computes what is asked for, once.

    Args:
        frames: the run.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
        links: pairs of ranks that send to each other, where known.
        known: what comparing all iterations told, to look at some of them only.
        numbers: these; None: all that are complete on every rank.
    """

    def __init__(
        self,
        frames: RunTables,
        utc_starts: dict[int, int | None],
        links: list[tuple[int, int]],
        known: ReusedMatching | None = None,
        numbers: tuple[int, ...] | None = None,
    ) -> None:
        self._frames = frames
        self._utc_starts = utc_starts
        self._links = links
        self._known = known
        self._numbers = numbers

    @cached_property
    def matched(self) -> Matched:
        """Collectives of the iterations that are complete on every rank, matched."""
        matched = match(self._calls(), self._utc_starts, self._links, self._known)
        if self._known is not None:
            return matched
        ranks = self._frames.ranks
        hosts = {
            rank: None if self._utc_starts[rank] is None else host
            for rank, host in ranks.select("rank", "host").iter_rows()
        }
        paths = dict(ranks.select("rank", "path").iter_rows())
        return replace(matched, solved=with_hosts(matched.solved, hosts, paths))

    @cached_property
    def timed(self) -> WaitedCollectives:
        """The matched collectives with their waits."""
        known = None if self._known is None else self._known.groups
        return timed(self.matched, self._utc_starts, known)

    @property
    def aligned(self) -> bool:
        """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
        return all_tied(self.matched.solved, self._frames)

    def waits(self, clock: str, numbers: tuple[int, ...] | None = None) -> Waits:
        """The split of communication on a clock, by rank in the iterations `numbers`."""
        places = ("device", "host") if clock == "gpu" else ("host",)
        return split(self.timed, lambda ranks: self._exposed(clock, ranks), places, numbers)

    def replay(
        self,
        clock: str,
        wide: pl.DataFrame,
        numbers: tuple[int, ...] | None = None,
    ) -> Replay | None:
        """The run on a clock, to be played again with less work; None where it cannot be.

        Args:
            clock: host or gpu.
            wide: rank, role, iteration and `<phase>_ns`, of these iterations.
            numbers: play these iterations only; None: all.
        """
        rows, shared = self.timed.rows, self.timed.shared
        if numbers is not None:
            chosen = shared["iteration"].is_in(numbers)
            rows = rows.filter(chosen.gather(rows["instance"]))
        if not self.aligned or rows.is_empty() or not self._understood(shared):
            return None
        solved = self.matched.solved
        lengths = ("rank", "iteration", "window_start_ns", "iteration_ns")
        measures = measured(self._frames, clock, lengths, numbers)
        windows = windows_of(
            measures, wide, lambda column: solved.aligned(column, self._utc_starts)
        )
        parts = rank_chunks(windows["rank"], rows["rank"])
        group = shared["group"]
        calls = [rows.select("rank", "instance", "arrival_ns", "end_ns")]
        size = int(rows["rank"].is_in(windows["rank"].unique().implode()).sum())
        del rows, shared
        if size > MANY:
            # there is no room for both; whoever asks for them again has them made again
            self.__dict__.pop("timed")
            self.__dict__.pop("matched")

        def stretches() -> Iterator[tuple[list[int], pl.DataFrame, pl.DataFrame]]:
            for ranks in parts:
                mine = pl.col("rank").is_in(ranks)
                rows = calls[0].lazy().filter(mine).collect()
                exposed = self._exposed(clock, ranks)
                if numbers is not None:
                    exposed = exposed.filter(pl.col("iteration").is_in(numbers))
                yield ranks, rows.with_columns(group=group.gather(rows["instance"])), exposed
            calls.clear()

        return Replay(stretches(), windows, Aligner(solved, self._utc_starts).one, size)

    def _calls(self) -> Iterator[pl.DataFrame]:
        """COLLECTIVES of some ranks at a time, in the iterations that count."""
        common = self._numbers or common_iterations(self._frames.iterations)
        ranks = self._frames.ranks["rank"].sort().to_list()
        at, many = 0, FIRST_RANKS
        while at < len(ranks):
            some = ranks[at : at + many]
            part = self._frames.some("collectives", None, some, self._numbers, narrow=True)
            here = part["iteration"].is_in(common)
            yield part if here.all() else part.filter(here)
            at, many = at + many, max(1, ROWS_AT_ONCE * many // max(part.height, 1))

    def _exposed(self, clock: str, ranks: list[int]) -> pl.DataFrame:
        wanted = ("rank", "iteration", "clock", "start_ns", "end_ns")
        return self._frames.some("exposed", wanted, ranks, self._numbers, True).filter(clock=clock)

    def _understood(self, shared: pl.DataFrame) -> bool:
        """Whether all transfers between ranks found their other side."""
        iterations = shared["iteration"].unique()
        sent = self.matched.sent.filter(pl.col("iteration").is_in(iterations.implode()))
        found = shared.select((pl.col("operation") == OPERATION).sum()).item()
        return int(sent["calls"].sum()) <= 2 * int(found)
