"""The document of the tool `timeline` of `rankscope mcp`."""

from pathlib import Path
from typing import Annotated

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.model import results
from rankscope.model.kinds import Clock
from rankscope.model.timeline import (
    ShownCollective,
    ShownOperation,
    ShownPhase,
    ShownRank,
    ShownState,
    ShownWindow,
)
from rankscope.output.documents.common import Answer, S, run_of
from rankscope.util.meaning import says


class Timeline(Answer, kw_only=True, tag="rankscope/timeline/1"):
    """Some ranks in some iterations in detail, on one axis; the longest come first."""

    clock: Annotated[Clock, says("the clock of the run's numbers")]
    iterations: Annotated[tuple[int, ...], says("the iterations of the timeline")]
    origin_utc_ns: Annotated[
        int | None, says("UTC of time 0 by the clock of the lowest rank; null: unknown")
    ]
    ranks: Annotated[tuple[ShownRank, ...], says("the ranks, and whether their times compare")]
    windows: Annotated[tuple[ShownWindow, ...], says("the windows of the iterations")]
    phases: Annotated[tuple[ShownPhase, ...], says("the windows, cut into phases")]
    states: Annotated[
        tuple[ShownState, ...],
        says("what the training threads did; empty where the reports do not record it"),
    ]
    operations: Annotated[tuple[ShownOperation, ...], says("the work of the devices")]
    collectives: Annotated[tuple[ShownCollective, ...], says("collectives, by their waits")]


def timeline(db: Path, comparison: Comparison, shown: results.Timeline) -> Timeline:
    """The document of a timeline."""
    length = pl.col("end_ns") - pl.col("start_ns")
    return Timeline(
        run=run_of(db, comparison.facts),
        warnings=shown.problems,
        clock=Clock(shown.clock),
        iterations=shown.iterations,
        origin_utc_ns=shown.origin_utc_ns,
        ranks=_rows(ShownRank, shown.ranks),
        windows=_rows(ShownWindow, shown.windows),
        phases=_rows(ShownPhase, _largest(shown.phases, length)),
        states=_rows(ShownState, _largest(shown.states, length)),
        operations=_rows(ShownOperation, _largest(shown.operations, length)),
        collectives=_rows(ShownCollective, _largest(shown.collectives, pl.col("wait_ns"))),
    )


def _largest(frame: pl.DataFrame, size: pl.Expr) -> pl.DataFrame:
    """The rows, the largest first."""
    return frame.sort(size, descending=True, nulls_last=True, maintain_order=True)


def _rows(shape: type[S], frame: pl.DataFrame) -> tuple[S, ...]:
    return tuple(shape(**row) for row in frame.iter_rows(named=True))
