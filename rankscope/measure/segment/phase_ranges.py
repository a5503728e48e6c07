"""The phase ranges of the training thread: phases, blocking collectives, foreign ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from rankscope.measure.segment.iterations import IterationRanges
from rankscope.measure.segment.labelled_ranges import LabelledRanges
from rankscope.measure.segment.operators import operator_phases
from rankscope.model.events import Events
from rankscope.model.kinds import PHASES
from rankscope.model.schema import MARKS, conform


@dataclass(frozen=True, slots=True)
class PhaseRanges:
    """The marked ranges of one rank's training thread."""

    frame: pl.DataFrame  # MARKS
    foreign: Events  # start, end, name: ranges without a known meaning (validation, logging)
    phases: frozenset[str]  # phases that have ranges in this report
    fetches: bool  # ranges around data fetching exist
    launches_collectives: bool  # host ranges that launch, but do not wait for, collectives
    derived: frozenset[str] = (
        frozenset()
    )  # phases without ranges, derived from the framework's operators


def find_marks(
    process: int,
    named: LabelledRanges,
    found: IterationRanges,
    device_communicates: Callable[[], bool],
) -> PhaseRanges:
    """The marks on the training thread.

    A hand-annotated collective covers the communication only where no device kernels run it;
    otherwise its range only launches them, and is not a mark.

    Args:
        process: key of the process.
        named: the ranges of the report.
        found: the iterations, whose thread is the training thread.
        device_communicates: whether the process has communication kernels; called if needed.
    """
    mine = pl.col("process") == process
    meaningful = named.meaningful.filter(mine)
    on_thread = mine & (pl.col("thread") == found.thread) & (pl.col("end") > pl.col("start"))
    is_phase = pl.col("means").is_in(PHASES)
    is_collective = pl.col("means") == "collective"
    is_mpi = pl.col("domain") == "MPI"
    waits = is_collective & pl.col("blocking")
    if not meaningful.filter(on_thread & waits & ~is_mpi).is_empty() and device_communicates():
        waits &= is_mpi
    marks = meaningful.filter(on_thread & (is_phase | waits)).with_columns(
        label=pl.when(is_phase).then("means").otherwise(pl.lit("exposed_communication")),
        source=pl.when(is_phase)
        .then(None)
        .when(is_mpi)
        .then(pl.lit("mpi"))
        .otherwise(pl.lit("annotation")),
    )
    marks = _calls_once(conform(marks, MARKS, drop_others=True))
    unnamed = {"forward", "backward"} - {*marks["label"].unique()}
    derived = marks.clear()
    if unnamed:
        phases = operator_phases(process, named.every, found, marks)
        derived = phases.filter(pl.col("label").is_in(unnamed))
    marks = pl.concat([marks, derived])
    launches = meaningful.select((is_collective & ~pl.col("blocking")).any()).item()
    return PhaseRanges(
        frame=marks,
        foreign=named.foreign.map(
            lambda part: part.filter(on_thread).select("start", "end", "name")
        ),
        phases=frozenset(marks["label"].unique()) - {"exposed_communication"},
        fetches=bool(marks["fetch"].fill_null(False).any()),
        launches_collectives=bool(launches),
        derived=frozenset(derived["label"].unique()),
    )


def _calls_once(marks: pl.DataFrame) -> pl.DataFrame:
    """MARKS without annotations around a collective that has a mark of its own.

    Of `all_reduce` > `MPI_Allreduce` the inner range is the call: time inside the annotation
    before the call (packing, for example) is not communication.
    """
    is_collective = pl.col("label") == "exposed_communication"
    calls = marks.filter(is_collective).sort("start", "end", descending=[False, True])
    inner = calls.filter((pl.col("start").shift(-1) >= pl.col("end")).fill_null(True))
    return pl.concat([marks.filter(~is_collective), inner])
