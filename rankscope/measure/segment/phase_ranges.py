"""The phase ranges of the training thread: phases, blocking collectives, foreign ranges."""

from collections.abc import Callable

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.measure.segment.iterations import IterationRanges
from rankscope.measure.segment.labelled_ranges import LabelledRanges
from rankscope.measure.segment.operators import backward_threads, operator_phases
from rankscope.model.arrays import holds, known_if, of_process, rows_of, taken
from rankscope.model.events import Events
from rankscope.model.frames import stacked, with_series
from rankscope.model.intervals import Flags, Times
from rankscope.model.kinds import PHASES
from rankscope.model.schema import GLOO, MARKS
from rankscope.util.numbers import NEVER

SOURCES = pl.Series("source", [None, "annotation", "mpi"])
"""Where marks come from: null for phases."""


class PhaseRanges(Struct, frozen=True):
    """The marked ranges of one rank's training thread."""

    frame: pl.DataFrame  # MARKS
    foreign: Events  # start, end, name: ranges without a known meaning (validation, logging)
    phases: frozenset[str]  # phases that have ranges in this report
    fetches: bool  # ranges around data fetching exist
    launches_collectives: bool  # host ranges that launch, but do not wait for, collectives
    derived: frozenset[str] = (
        frozenset()
    )  # phases without ranges, derived from the framework's operators
    autograd: tuple[int, ...] = ()  # threads that run backward's operators, if it is derived
    unclosed: tuple[int, ...] = ()  # rows of the iterations in which a phase begins without an end

    def without_unclosed(self, iterations: IterationRanges) -> IterationRanges:
        """The iterations; those in which a phase begins without an end are incomplete."""
        if not self.unclosed:
            return iterations
        complete = iterations.frame["complete"].to_numpy().copy()
        complete[[*self.unclosed]] = False
        frame = with_series(iterations.frame, pl.Series("complete", complete))
        return replace(iterations, frame=frame)


def find_marks(
    process: int,
    named: LabelledRanges,
    iterations: IterationRanges,
    device_communicates: Callable[[], bool],
    launches: Callable[[int], Times],
) -> PhaseRanges:
    """The marks on the training thread.

    A hand-annotated collective covers the communication only where no device kernels run it, or
    where hosts do by its name and none is launched within; otherwise its range only launches them,
    and is not a mark.

    Args:
        process: key of the process.
        named: the ranges of the report.
        iterations: the iterations, whose thread is the training thread.
        device_communicates: whether the process has communication kernels; called if needed.
        launches: thread → its sorted launches of such kernels; called if needed.
    """
    meaningful = of_process(named.meaningful, process)
    start, end = meaningful["start"].to_numpy(), meaningful["end"].to_numpy()
    is_gloo = (meaningful["domain"] == GLOO).to_numpy()
    on_thread = (meaningful["thread"] == iterations.thread).to_numpy() & ((end > start) | is_gloo)
    is_phase = on_thread & meaningful["means"].is_in(PHASES).to_numpy()
    opened, closed = _closed(start, end, iterations.frame)
    for phase in PHASES:  # some last long by design: they are of batches that come later
        own = is_phase & holds(meaningful["means"] == phase)
        closed |= own & (2 * np.count_nonzero(own & ~closed) > np.count_nonzero(own))
    unclosed, is_phase = opened[is_phase & ~closed], is_phase & closed
    is_collective = (meaningful["means"] == "collective").to_numpy()
    is_mpi, blocking = (meaningful["domain"] == "MPI").to_numpy(), holds(meaningful["blocking"])
    waits = on_thread & is_collective & blocking
    on_host = is_mpi | holds(meaningful["on_host"])
    if (waits & ~on_host).any() and device_communicates():
        waits &= on_host
    by_name = np.flatnonzero(waits & on_host & ~is_mpi & ~is_gloo)
    if len(by_name) and device_communicates():
        launched = launches(iterations.thread)
        within = np.searchsorted(launched, (start[by_name], end[by_name]))
        waits[by_name] = within[0] == within[1]
    phases, calls = np.flatnonzero(is_phase), _innermost(start, end, waits)
    rows, source = np.append(phases, calls), np.append(0 * phases, 1 + is_mpi[calls])
    called = meaningful["start"] - known_if(meaningful["payload"], is_gloo)
    meaningful = with_series(meaningful, called.alias("called"))
    marks = taken(meaningful[["start", "end", "means", "fetch", "operation", "called"]], rows)
    label = marks["means"].zip_with(pl.Series(source == 0), pl.Series(["exposed_communication"]))
    named_like = {*label.unique()}
    marks = with_series(marks, label.alias("label"), taken(SOURCES, source))[MARKS.names()]
    derived = frozenset[str]()
    if unnamed := {"forward", "backward"} - named_like:
        operator_marks = operator_phases(process, named, iterations, marks)
        own = rows_of(operator_marks, operator_marks["label"].is_in(unnamed).to_numpy())
        derived, marks = frozenset(own["label"].unique()), stacked([marks, own])
    return PhaseRanges(
        frame=marks,
        foreign=named.foreign.map(lambda part: _lasting(part, process, iterations.thread)),
        phases=frozenset(named_like | derived) - {"exposed_communication"},
        fetches=bool(marks["fetch"].any()),
        launches_collectives=bool((is_collective & ~blocking).any()),
        derived=derived,
        autograd=backward_threads(process, named, iterations) if "backward" in derived else (),
        unclosed=tuple(np.unique(unclosed).tolist()),
    )


def _closed(start: Times, end: Times, iterations: pl.DataFrame) -> tuple[Times, Flags]:
    """The row of the iteration in which each range begins, and whether it ends before another does.

    A range that holds the whole next iteration was never left: profilers end it with the capture.

    Args:
        start: ns.
        end: ns.
        iterations: ITERATIONS.
    """
    row = np.searchsorted(iterations["window_start"].to_numpy(), start, side="right") - 1
    row = np.maximum(row, 0)
    next_end = np.append(iterations["window_end"].to_numpy(), NEVER)[row + 1]
    return row, end < next_end


def _lasting(ranges: pl.DataFrame, process: int, thread: int) -> pl.DataFrame:
    """start, end, name of the ranges of a thread that have a length."""
    own = (ranges["process"] == process) & (ranges["thread"] == thread)
    lasting = own & (ranges["end"] > ranges["start"])
    return rows_of(ranges[["start", "end", "name"]], lasting.to_numpy())


def _innermost(start: Times, end: Times, calls: Flags) -> Times:
    """The places of the calls that hold no other call, by their starts.

    Of `all_reduce` > `MPI_Allreduce` the inner range is the call: time inside the annotation
    before the call (packing, for example) is not communication.
    """
    places = np.flatnonzero(calls)
    last = np.where(end > start, -end, -NEVER)  # an empty wait is over before the next call
    places = places[np.lexsort((last[places], start[places]))]
    innermost: Times = places[np.append(start[places[1:]] >= end[places[:-1]], True)[: len(places)]]
    return innermost
