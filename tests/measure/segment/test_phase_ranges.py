"""Marks: phases and blocking collectives of the training thread, each call once."""

import numpy as np
import polars as pl
import pytest

from rankscope.measure.segment import (
    IterationRanges,
    PhaseRanges,
    find_iterations,
    find_marks,
    with_meanings,
)
from rankscope.model.events import InMemoryEvents, StreamedEvents
from rankscope.model.intervals import Times
from rankscope.model.options import ShapingOptions
from rankscope.model.ranges import Ranges
from rankscope.sources.conventions import vocabulary
from tests.frames import LOADER, PROCESS, THREAD, named, ranges


def marks_of(
    frame: pl.DataFrame, device: bool = False, launches: tuple[int, ...] = (), **options: object
) -> PhaseRanges:
    result = find_iterations(named(frame, **options).meaningful, None)
    assert isinstance(result, IterationRanges)

    def launched(thread: int) -> Times:
        assert thread == THREAD
        return np.array(launches, dtype=np.int64)

    return find_marks(PROCESS, named(frame, **options), result, lambda: device, launched)


STEP = (0, 100, "step 0")


def labels(marks: PhaseRanges) -> list[tuple[str, int, int]]:
    return marks.frame.select("label", "start", "end").sort("start").rows()


def test_phases_and_annotated_collectives() -> None:
    marks = marks_of(
        ranges(STEP, (1, 9, "load"), (10, 30, "fwd"), (30, 90, "Backward"), (60, 80, "all_reduce"))
    )
    assert labels(marks) == [
        ("load", 1, 9),
        ("forward", 10, 30),
        ("backward", 30, 90),
        ("exposed_communication", 60, 80),
    ]
    assert marks.phases == {"load", "forward", "backward"}
    assert marks.fetches


def test_a_copy_to_the_device_fetches_nothing() -> None:
    marks = marks_of(ranges(STEP, (1, 9, "Copy to device"), (10, 30, "fwd")))
    assert ("load", 1, 9) in labels(marks)
    assert not marks.fetches


def test_other_threads_mark_nothing() -> None:
    marks = marks_of(ranges(STEP, (1, 9, "load", LOADER), (20, 40, "all_reduce", LOADER)))
    assert labels(marks) == []


def test_an_annotation_merely_launches_where_the_device_communicates() -> None:
    frame = ranges(STEP, (60, 80, "all_reduce"))
    assert labels(marks_of(frame)) != []
    assert labels(marks_of(frame, device=True)) == []


@pytest.mark.parametrize(
    "name", ["all_gather_object", "dist.broadcast_object_list", "gloo:barrier"]
)
def test_what_hosts_communicate_by_its_name_blocks_even_so(name: str) -> None:
    """Else a rank that comes late to it would look as busy as those that wait for it there."""
    marks = marks_of(ranges(STEP, (60, 80, name)), device=True)
    assert labels(marks) == [("exposed_communication", 60, 80)]
    assert marks.frame["source"].to_list() == ["annotation"]


def test_objects_that_the_device_exchanges_are_no_wait_of_hosts() -> None:
    """Else a rank that packs its object for longer than others would look as if it waited."""
    frame = ranges(STEP, (20, 40, "all_gather_object"), (60, 80, "all_gather_object"))
    marks = marks_of(frame, device=True, launches=(10, 70))
    assert labels(marks) == [("exposed_communication", 20, 40)]


def test_an_mpi_call_blocks_even_so() -> None:
    frame = pl.concat([ranges(STEP), ranges((60, 80, "MPI_Allreduce"), domain="MPI")])
    marks = marks_of(frame, device=True)
    assert labels(marks) == [("exposed_communication", 60, 80)]
    assert marks.frame["source"].to_list() == ["mpi"]


def test_a_function_of_that_name_outside_mpi_is_nothing() -> None:
    assert labels(marks_of(ranges(STEP, (60, 80, "MPI_Allreduce")))) == []


def test_nested_annotations_of_one_call_count_once() -> None:
    frame = pl.concat(
        [ranges(STEP, (50, 85, "all_reduce")), ranges((60, 80, "MPI_Allreduce"), domain="MPI")]
    )
    assert labels(marks_of(frame)) == [("exposed_communication", 60, 80)]


def test_calls_one_after_another_are_several() -> None:
    marks = marks_of(ranges(STEP, (50, 60, "all_reduce"), (60, 80, "all_reduce")))
    assert len(labels(marks)) == 2


def test_unmapped_ranges_are_foreign() -> None:
    marks = marks_of(ranges(STEP, (1, 9, "my logging"), (10, 30, "fwd"), (2, 3, "aten::mm")))
    assert marks.foreign.whole.select("start", "end").rows() == [(1, 9)]


def test_unmapped_ranges_that_are_many_are_read_again() -> None:
    all_held = Ranges.of(ranges(STEP, (1, 9, "my logging"), (10, 30, "fwd"), (40, 50, "log")))
    of_report = Ranges(StreamedEvents(all_held.moments.parts), all_held.signatures, of_note=None)
    held, read = (
        with_meanings(of_report, vocabulary(ShapingOptions()), most_held=most).foreign
        for most in (2, 1)
    )
    assert isinstance(held, InMemoryEvents)
    assert isinstance(read, StreamedEvents)
    assert held.whole.rows() == read.whole.rows()
    assert held.whole["start"].to_list() == [1, 40]


def test_nccl_launches_are_seen_but_mark_nothing() -> None:
    frame = pl.concat([ranges(STEP), ranges((60, 61, "ncclAllReduce"), domain="NCCL")])
    marks = marks_of(frame)
    assert marks.launches_collectives
    assert labels(marks) == []


def test_the_users_phases() -> None:
    options = {"phases": (("backward", "Compute"), ("load", "^mine$"))}
    marks = marks_of(ranges(STEP, (1, 9, "mine"), (10, 50, "Compute")), **options)
    assert labels(marks) == [("load", 1, 9), ("backward", 10, 50)]
    assert marks.fetches
