"""How the ranks of a run communicate: collectives matched, clocks aligned, waits, the replay."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property

import polars as pl

from rankscope.align.clocks import Clocks, with_hosts
from rankscope.align.match import Matched, match
from rankscope.align.peers import OPERATION
from rankscope.compare.replay import Replay
from rankscope.compare.selection import common_iterations
from rankscope.compare.waits import Timed, Waits, portions, split, timed
from rankscope.compare.what_if import windows_of
from rankscope.frames import RunFrames

MANY = 4_000_000
"""So many calls, and what is known of each, fill a good part of a small machine's memory."""


def all_tied(solved: Clocks, frames: RunFrames) -> bool:
    """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
    return len(solved.fits) > 1 and {*solved.fits} >= {*frames.ranks["rank"]}


class Communication:
    """Computes what is asked for, once.

    Args:
        frames: the run.
        utc_starts: rank → UTC of its report's time 0, None where unknown.
        links: pairs of ranks that send to each other, where known.
    """

    def __init__(
        self,
        frames: RunFrames,
        utc_starts: dict[int, int | None],
        links: list[tuple[int, int]],
    ) -> None:
        self._frames = frames
        self._utc_starts = utc_starts
        self._links = links

    @cached_property
    def matched(self) -> Matched:
        """Collectives of the iterations that are complete on every rank, matched."""
        matched = match(self._common("collectives"), self._utc_starts, self._links)
        ranks = self._frames.ranks
        hosts = {
            rank: None if self._utc_starts[rank] is None else host
            for rank, host in ranks.select("rank", "host").iter_rows()
        }
        paths = dict(ranks.select("rank", "path").iter_rows())
        return replace(matched, solved=with_hosts(matched.solved, hosts, paths))

    @cached_property
    def timed(self) -> Timed:
        """The matched collectives with their waits."""
        return timed(self.matched, self._utc_starts)

    @property
    def aligned(self) -> bool:
        """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
        return all_tied(self.matched.solved, self._frames)

    def waits(self, clock: str, numbers: tuple[int, ...] | None = None) -> Waits:
        """The split of communication on a clock, in the iterations `numbers` (None: all)."""
        places = ("device", "host") if clock == "gpu" else ("host",)
        return split(
            self.timed.instances,
            lambda ranks: self._exposed(clock, ranks, numbers),
            places,
            numbers,
        )

    def replay(self, clock: str, measures: pl.DataFrame, wide: pl.DataFrame) -> Replay | None:
        """The run on a clock, to be played again with less work; None where it cannot be."""
        instances = self.timed.instances
        if not self.aligned or instances.is_empty() or not self._understood(instances):
            return None
        solved = self.matched.solved

        def aligned(column: str) -> pl.Expr:
            return solved.aligned(column, self._utc_starts)

        windows = windows_of(measures, wide, aligned)
        parts = portions(windows["rank"], instances["rank"])
        calls = [instances.select("rank", "group", "instance", "arrival_ns", "end_ns")]
        del instances
        if calls[0].height > MANY:
            # there is no room for both; whoever asks for them again has them made again
            self.__dict__.pop("timed")
            self.__dict__.pop("matched")

        def stretches() -> Iterator[tuple[list[int], pl.DataFrame, pl.DataFrame]]:
            for ranks in parts:
                some = calls[0].lazy().filter(pl.col("rank").is_between(ranks[0], ranks[-1]))
                rows = some.select(
                    pl.col("rank").cast(pl.Int64),
                    "group",
                    "instance",
                    "end_ns",
                    arrived=aligned("arrival_ns"),
                    ended=aligned("end_ns"),
                ).collect()
                exposed = self._exposed(clock, ranks).select(
                    pl.col("rank").cast(pl.Int64),
                    "end_ns",
                    began=aligned("start_ns"),
                    stopped=aligned("end_ns"),
                )
                yield ranks, rows.filter(pl.col("rank").is_in(ranks)), exposed
            calls.clear()

        return Replay(stretches(), windows)

    def _common(self, table: str, columns: Collection[str] | None = None) -> pl.DataFrame:
        """A table in the iterations that are complete on every rank."""
        frame = self._frames.some(table, columns, narrow=True)
        common = common_iterations(self._frames.iterations)
        here = frame["iteration"].is_in(common)
        return frame if here.all() else frame.filter(here)

    def _exposed(
        self, clock: str, ranks: list[int], numbers: tuple[int, ...] | None = None
    ) -> pl.DataFrame:
        wanted = ("rank", "iteration", "clock", "start_ns", "end_ns")
        return self._frames.some("exposed", wanted, ranks, numbers, True).filter(clock=clock)

    def _understood(self, instances: pl.DataFrame) -> bool:
        """Whether all transfers between ranks found their other side."""
        sent = self._common("collectives", ("rank", "iteration", "operation"))
        sent = sent.filter(pl.col("operation") == OPERATION)
        sent = sent.filter(pl.col("iteration").is_in(instances["iteration"].unique().implode()))
        found = instances.select((pl.col("operation") == OPERATION).sum()).item()
        return sent.height <= int(found)
