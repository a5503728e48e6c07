"""The document of the tool `timeline` of `rankscope mcp`."""

from pathlib import Path
from typing import Annotated, Literal

import polars as pl
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.model import results
from rankscope.model.kinds import Clock
from rankscope.output.documents.common import Answer, S, run_of, says, warnings_of

OfRank = Annotated[int, says("the rank")]
OfIteration = Annotated[int, says("the number of the iteration")]
Start = Annotated[int, says("its start")]
End = Annotated[int, says("its end")]


class ShownRank(Struct, kw_only=True):
    """A rank of the timeline, and how it came onto the axis."""

    rank: OfRank
    host: Annotated[str | None, says("its host")]
    path: Annotated[str, says("its report")]
    axis: Annotated[
        Literal["aligned", "utc", "own"],
        says(
            "`aligned`: its times may be compared with those of other aligned ranks; `utc`: it "
            "stands where the clock of its host has it; `own`: its times are comparable with none"
        ),
    ]
    residual_ns: Annotated[
        int | None, says("to which its times agree with the others'; null unless aligned")
    ]


class ShownWindow(Struct, kw_only=True):
    """The window of an iteration."""

    rank: OfRank
    iteration: OfIteration
    clock: Annotated[Clock, says("the clock of the window")]
    start_ns: Start
    end_ns: End


class ShownPhase(ShownWindow, kw_only=True):
    """A piece of a window; the pieces of a rank's clock are disjoint and fill it."""

    phase: Annotated[str, says("the phase, or `exposed_communication`")]


class ShownState(Struct, kw_only=True):
    """What the training thread did for a while."""

    rank: OfRank
    iteration: OfIteration
    start_ns: Start
    end_ns: End
    state: Annotated[str, says("what it did")]
    name: Annotated[str, says("the call; empty outside of calls")]


class ShownOperation(Struct, kw_only=True):
    """One piece of device work."""

    rank: OfRank
    iteration: Annotated[int | None, says("the iteration that launched it")]
    device: Annotated[int | None, says("the device")]
    stream: Annotated[int | None, says("the stream")]
    context: Annotated[int | None, says("the context, in which streams have their numbers")]
    start_ns: Start
    end_ns: End
    kind: Annotated[str, says("`kernel`, `copy`, `set` or `collective`")]
    name: Annotated[str, says("the name of the kernel; of copies and sets their kind")]
    phase: Annotated[str | None, says("the phase that launched it; null: unknown")]
    launch_ns: Annotated[int | None, says("its launch; null without a record")]
    training: Annotated[
        bool | None, says("whether the training threads launched it, not a loader's")
    ]
    bytes: Annotated[int | None, says("bytes that were moved; null: unknown")]


class ShownCollective(Struct, kw_only=True):
    """A rank's part in one collective."""

    rank: OfRank
    iteration: OfIteration
    place: Annotated[str, says("where it was recorded: on the device or the host")]
    communicator: Annotated[str | None, says("the ranks that take part")]
    instance: Annotated[
        int | None, says("the same number on all ranks of a collective; null: not matched")
    ]
    operation: Annotated[str, says("the operation")]
    ordinal: Annotated[int, says("its place among those of its communicator and iteration")]
    gradient: Annotated[bool | None, says("whether it reduces gradients")]
    bytes: Annotated[int | None, says("bytes of the message; null: unknown")]
    arrival_ns: Annotated[int | None, says("when the rank was ready for it")]
    start_ns: Annotated[int | None, says("its start on this rank")]
    end_ns: Annotated[int | None, says("its end on this rank")]
    wait_ns: Annotated[
        int | None, says("until the last rank arrives on this axis; null: not matched")
    ]
    last_rank: Annotated[
        int | None, says("who came last, of all ranks; null where nobody clearly did")
    ]


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
        warnings=warnings_of(shown.problems),
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
