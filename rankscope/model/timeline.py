"""The rows of a timeline: the columns of its frames, and the keys of its JSON document."""

from types import NoneType
from typing import Annotated, Literal, get_args, get_type_hints

import polars as pl
from msgspec import Struct

from rankscope.model.kinds import Clock
from rankscope.util.meaning import says

DTYPES: dict[type, pl.DataType] = {int: pl.Int64(), bool: pl.Boolean()}
"""Dtype of a column by the type of its values; texts and enums are String."""

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
    iteration: Annotated[
        int | None,
        says("the iteration that launched it; without a record of the launch: in which it starts"),
    ]
    device: Annotated[int | None, says("the device")]
    stream: Annotated[int | None, says("the stream, as the profiler numbers it")]
    context: Annotated[int | None, says("the context, in which streams have their numbers")]
    start_ns: Start
    end_ns: End
    kind: Annotated[str, says("`kernel`, `copy`, `set` or `collective`")]
    name: Annotated[str, says("the name of the kernel; of copies and sets their kind")]
    phase: Annotated[
        str | None, says("the phase that launched it; null: unknown, or no training thread did")
    ]
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
    communicator: Annotated[
        str | None, says("the ranks that take part; where they do not match: the rank's own name")
    ]
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


def frame_schema(shape: type[Struct]) -> pl.Schema:
    """The schema of a frame whose rows have a shape."""
    kinds = {
        name: next((each for each in get_args(hint) if each is not NoneType), hint)
        for name, hint in get_type_hints(shape).items()
    }
    return pl.Schema(
        {name: DTYPES.get(kinds[name], pl.String()) for name in shape.__struct_fields__}
    )


TIMELINE_RANKS = frame_schema(ShownRank)
TIMELINE_WINDOWS = frame_schema(ShownWindow)
"""A row per rank, iteration and clock that has a window."""

TIMELINE_PHASES = frame_schema(ShownPhase)
"""`phase` is one of PARTS. An instant whose phase is unknown is `other`, as it is in MEASURES."""

TIMELINE_STATES = frame_schema(ShownState)
"""`state` is a HostState, never unknown; the rows of a rank lie on the host clock, disjoint."""

TIMELINE_OPERATIONS = frame_schema(ShownOperation)
TIMELINE_COLLECTIVES = frame_schema(ShownCollective)
"""A row per rank and instance, waits by all ranks of the run."""
