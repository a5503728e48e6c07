"""What a verdict is found from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rankscope.compare.verdict.candidates import Candidates, candidates_of
from rankscope.compare.verdict.outliers import summed
from rankscope.compare.verdict.stragglers import Stragglers, stragglers_of


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What is known of a run before its ranks are judged."""

    ranks: int
    iterations: int
    missing_ranks: tuple[int, ...]
    blind_ranks: tuple[int, ...]  # without the collectives that the others have
    flag_metric: str | None  # what can be judged: work, load, or nothing
    roles: int  # kinds of work that the ranks do


@dataclass(frozen=True, eq=False)
class VerdictInputs:
    """All that the rules may look at. What several rules need is computed once, at first use."""

    run: RunSummary
    flags: pl.DataFrame | None  # as `outliers.flag` gives it; None where nothing can be judged
    wide: pl.DataFrame  # rank, role, iteration, `<metric>_ns`
    hosts: dict[int, str | None]
    replicas: bool  # it is known that the ranks of a role do the same work
    tables: Callable[[str, Collection[int]], pl.DataFrame | None]
    """Table and iterations → its rows of all ranks; None where the run has no such table."""
    replayed: Callable[[tuple[int, ...], list[int]], int | None]
    """Time saved if the ranks were at their role's median in the iterations; None: unknown."""

    @property
    def metric(self) -> str:
        """What was flagged: work, or load where work is unknown."""
        assert self.run.flag_metric is not None, "the preconditions come first"
        return self.run.flag_metric

    @property
    def judged(self) -> pl.DataFrame:
        """The rows of `flags`."""
        assert self.flags is not None, "the preconditions come first"
        return self.flags

    @cached_property
    def flagged(self) -> pl.DataFrame:
        """The flagged rows of `flags`."""
        return self.judged.filter("flagged")

    @cached_property
    def numbers(self) -> list[int]:
        """The selected iterations, ascending."""
        return self.judged["iteration"].unique().sort().to_list()

    @cached_property
    def ranks(self) -> list[int]:
        """The ranks that are judged, ascending."""
        return self.judged["rank"].unique().sort().to_list()

    @cached_property
    def total_ns(self) -> int:
        """The selected iterations' time: the sum of the median rank's iterations."""
        per = self.judged.group_by("iteration").agg(pl.col("length_ns").max())
        return summed(per["length_ns"])

    @cached_property
    def candidates(self) -> Candidates:
        """Ranks that may be stragglers."""
        return candidates_of(self)

    @cached_property
    def stragglers(self) -> Stragglers | None:
        """The worst candidate, with those that are slow in the same way; None without any."""
        return stragglers_of(self)

    def rows_of(self, rank: int, iterations: Collection[int] | None = None) -> pl.DataFrame:
        """The rows of `flags` of one rank, in all or some iterations."""
        rows = self.judged.filter(pl.col("rank") == rank)
        return rows if iterations is None else rows.filter(pl.col("iteration").is_in(iterations))

    def gain_over_rest(self, ranks: Collection[int], iterations: Collection[int]) -> int | None:
        """Time saved if the ranks had been like the slowest of the others in those iterations."""
        if self.metric != "work":
            return None
        work = self.wide.filter(pl.col("iteration").is_in(iterations))
        per = work.group_by("iteration").agg(
            slowest=pl.col("work_ns").max(),
            rest=pl.col("work_ns").filter(~pl.col("rank").is_in(ranks)).max(),
        )
        return summed((per["slowest"] - per["rest"]).drop_nulls())
