"""How the ranks of a run communicate: collectives matched, clocks aligned, waits, the replay."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import polars as pl

from rankscope.align.clocks import with_hosts
from rankscope.align.match import Matched, match
from rankscope.compare.selection import common_iterations
from rankscope.compare.waits import Waits, split, timed
from rankscope.compare.what_if import Replay, replay_of
from rankscope.records import RunFrames


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
        common = common_iterations(self._frames.iterations)
        collectives = self._frames.collectives.filter(pl.col("iteration").is_in(common))
        matched = match(collectives, self._utc_starts, self._links)
        ranks = self._frames.ranks
        hosts = {
            rank: None if self._utc_starts[rank] is None else host
            for rank, host in ranks.select("rank", "host").iter_rows()
        }
        paths = dict(ranks.select("rank", "path").iter_rows())
        return replace(matched, solved=with_hosts(matched.solved, hosts, paths))

    @cached_property
    def instances(self) -> pl.DataFrame:
        """The matched collectives with their waits, as `waits.timed` gives them."""
        return timed(self.matched, self._utc_starts)

    @property
    def aligned(self) -> bool:
        """Whether all ranks' clocks are tied together; a single rank has nobody to be tied to."""
        clocks = self.matched.clocks
        return len(clocks) > 1 and {*clocks} >= {*self._frames.ranks["rank"]}

    def waits(self, clock: str, numbers: tuple[int, ...] | None = None) -> Waits:
        """The split of communication on a clock, in the iterations `numbers` (None: all)."""
        instances, exposed = self.instances, self._frames.exposed.filter(clock=clock)
        if numbers is not None:
            here = pl.col("iteration").is_in(numbers)
            instances, exposed = instances.filter(here), exposed.filter(here)
        places = ("device", "host") if clock == "gpu" else ("host",)
        return split(instances, exposed, places)

    def replay(self, clock: str, measures: pl.DataFrame, wide: pl.DataFrame) -> Replay | None:
        """The run on a clock, to be played again with less work; None where it cannot be."""
        if not self.aligned:
            return None
        return replay_of(
            self.instances,
            self._frames.collectives,
            self._frames.exposed.filter(clock=clock),
            measures,
            wide,
            lambda column: self.matched.solved.aligned(column, self._utc_starts),
        )
