"""Waiting for a collective, or starving beside it: small cases worked out by hand."""

from collections import Counter
from collections.abc import Sequence

import polars as pl
import pytest

from rankscope.measure.attribution import HostSide, attribute
from rankscope.measure.device import DeviceAccount
from rankscope.measure.host import host_timeline
from rankscope.measure.waiting import LOOK_AHEAD
from rankscope.model.limits import USUAL
from tests.forge.ownership import device_shares
from tests.frames import AUTOGRAD, LOADER, PROCESS, THREAD, device_work, trace, windows
from tests.measure.test_additive import marks_of

GRADIENTS = "ncclDevKernel_AllReduce_Sum"

Marks = list[tuple[int, int, str]]
Work = list[tuple[int, int, int | None, str, int, int]]
Call = tuple[int, int, int]

MARKS: Marks = [
    (0, 19, "forward"),
    (19, 40, "backward"),  # then 20 of garbage collection
    (60, 79, "backward"),
    (79, 84, "optimizer"),
]
"""A host that is late by 40 in the middle of backward."""

WORK: Work = [
    (10, 30, 0, "gemm", 7, THREAD),
    (30, 50, 20, "gemm", 7, AUTOGRAD),
    (50, 90, 25, GRADIENTS, 9, AUTOGRAD),
    (78, 88, 70, "gemm", 7, AUTOGRAD),
    (90, 110, 75, GRADIENTS, 9, AUTOGRAD),
    (112, 120, 80, "adam", 7, THREAD),  # an event of stream 9 holds it back
]
"""Start, end, launch, name, stream, thread."""

EXPECTED = {
    "forward": 30,  # 0..30: launched at 0, runs from 10
    "backward": 20 + 10 + 8 + 10,  # 30..50 runs, 60..70 late, 70..78 launched, 78..88 runs
    "other": 10,  # 50..60: nothing is launched, and no range is open
    "exposed_communication": 2 + 20,  # 88..90 and 90..110: adam was launched at 80
    "optimizer": 2 + 8,  # 110..112: nothing communicates any more
}


def shares(
    edges: tuple[int, ...],
    marks: Marks,
    work: Work,
    calls: Sequence[Call] = (),
    part_rows: int = USUAL.part_rows,
    look_ahead: int = LOOK_AHEAD,
) -> list[dict]:
    """The time of each owner in each window."""
    iterations = windows(*edges)
    host = host_timeline(iterations, marks_of(marks))
    report = trace(work=device_work(work), calls=calls, part_rows=part_rows).device_work
    [attributed] = attribute(report, [HostSide(PROCESS, host, THREAD)])
    blocking = pl.DataFrame({"start": [], "end": []})
    account = DeviceAccount(attributed, iterations, blocking, look_ahead=look_ahead)
    for part in attributed.parts():
        account.add(part)
    sums: list[Counter[str]] = [Counter() for _ in edges[1:]]
    for start, end, window, label in account.timeline().segments.iter_rows():
        sums[window][label] += end - start
    return [dict(each) for each in sums]


def test_a_late_host_is_no_communication_while_a_bucket_is_on_its_way() -> None:
    assert shares((0, 125), MARKS, WORK) == [EXPECTED]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_chunks_do_not_matter(most: int) -> None:
    behind = 4  # adam is three operations behind
    output = shares((0, 125), MARKS, WORK, part_rows=most, look_ahead=behind)
    assert output == [EXPECTED]


def test_the_simulator_says_the_same() -> None:
    works = [(s, e, False, at, _open(at)) for s, e, at, name, *_ in WORK if name != GRADIENTS]
    comms = [(s, e, at, _open(at)) for s, e, at, name, *_ in WORK if name == GRADIENTS]
    output, exposed = device_shares((0, 120), works, comms, [(n, s, e) for s, e, n in MARKS])
    assert {name: time for name, time in output.items() if time} == EXPECTED
    assert exposed == [(88, 90), (90, 110)]


def _open(moment: int | None) -> str:
    assert moment is not None
    return next((name for start, end, name in MARKS if start <= moment < end), "other")


def test_what_starts_beside_a_collective_has_not_waited_for_it() -> None:
    """A launch takes 8 from the call to the start, as it does without any communication."""
    launches = [(at + 8, at + 11, at, "gemm", 7, THREAD) for at in range(0, 100, 10)]
    bucket = [(2, 200, 1, GRADIENTS, 9, THREAD)]
    assert shares((0, 110), [(0, 110, "forward")], launches + bucket) == [{"forward": 101}]


def test_a_copy_for_the_next_iteration_leaves_the_optimizer_waiting() -> None:
    """The copy is the next to start, and was launched late; but the optimizer was there before."""
    work = [
        (0, 20, 0, "gemm", 7, THREAD),
        (20, 80, 5, GRADIENTS, 9, THREAD),
        (50, 55, 45, "", 8, THREAD),
        (82, 90, 15, "adam", 7, THREAD),
    ]
    marks = [(0, 10, "forward"), (10, 18, "optimizer"), (40, 48, "load")]
    expected = {"forward": 20, "exposed_communication": 55, "load": 5, "optimizer": 10}
    assert shares((0, 60), marks, work) == [expected]


ALL_GATHER = [
    (10, 20, 5, "adam", 7, THREAD),
    (21, 60, 7, GRADIENTS, 9, THREAD),
    (85, 90, 81, "", 7, THREAD),
]
"""Nothing more of the iteration is launched; the copy is of the next one."""

LATER: Marks = [(0, 15, "optimizer"), (65, 83, "load")]


@pytest.mark.parametrize(
    ("calls", "communication"),
    [
        ([], 0),
        ([(18, 62, THREAD)], 39),  # waits for the device
        ([(30, 62, THREAD)], 30),
        ([(18, 40, THREAD)], 0),  # waits for the other stream
        ([(18, 62, LOADER)], 0),  # a background thread may wait
        ([(18, 62, LOADER), (33, 60, THREAD)], 27),
    ],
)
def test_at_the_end_the_synchronising_call_decides(calls: list[Call], communication: int) -> None:
    output = shares((0, 64, 100), LATER, ALL_GATHER, calls)
    rest = {"exposed_communication": communication} if communication else {}
    # 20..65 no range is open, 65..81 loads, 81..85 the copy is launched, 85..90 it runs
    assert output == [{"optimizer": 20}, {"other": 45 - communication, "load": 25, **rest}]


def test_work_without_a_launch_record_does_not_accuse_the_host() -> None:
    work = [
        (0, 20, 0, "gemm", 7, THREAD),
        (20, 50, 5, GRADIENTS, 9, THREAD),
        (52, 60, None, "gemm", 7, THREAD),
        (70, 75, 66, "adam", 7, THREAD),
    ]
    [output] = shares((0, 80), [(0, 64, "forward"), (64, 80, "optimizer")], work)
    assert output["exposed_communication"] == 30


def test_a_graph_is_launched_at_once() -> None:
    work = [
        (10, 20, 5, "gemm", 7, THREAD),
        (20, 50, 5, GRADIENTS, 9, THREAD),
        (52, 60, 5, "gemm", 7, THREAD),
    ]
    frame = device_work(work).with_columns(graph=pl.lit(value=True))
    iterations = windows(0, 70)
    host = host_timeline(iterations, marks_of([(0, 70, "backward")]))
    [attributed] = attribute(trace(work=frame).device_work, [HostSide(PROCESS, host, THREAD)])
    account = DeviceAccount(attributed, iterations, pl.DataFrame({"start": [], "end": []}))
    account.add(attributed.of(frame))
    segments = account.timeline().segments
    exposed = segments.filter(label="exposed_communication").select("start", "end")
    assert exposed.rows() == [(20, 50)]
