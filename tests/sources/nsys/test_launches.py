"""Which call launched an operation, however calls are numbered and however few are held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.model.limits import USUAL, Limits
from rankscope.model.options import ShapingOptions
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.conventions import vocabulary
from rankscope.sources.nsys import tables
from rankscope.sources.nsys.common import Strings
from rankscope.sources.nsys.launches import Launches
from tests.support import (
    MakeForged,
    asked,
    copied,
    edit,
    one_at_a_time,
    with_rows,
    with_table,
)

PROCESS, CALLS = 2**24, 3000


SOME_TWICE = np.arange(CALLS) - (np.arange(CALLS) % 3 == 1)

NUMBERS = {
    "each once": np.arange(CALLS),
    "gaps": np.arange(CALLS) * 3 // 2,
    "twice": SOME_TWICE,
    "twice, in other pieces": np.arange(CALLS) - (np.arange(CALLS) % 3 == 1) * 101,
    "far apart": SOME_TWICE * 10**6,
    "as far as can be": SOME_TWICE * 2**51 - 2**61,
}


@pytest.mark.usefixtures("compiled_reader")
@pytest.mark.parametrize(
    ("most", "shuffled", "numbers", "processes"),
    one_at_a_time([CALLS, 0, 10**8], [True, False], NUMBERS, [3, 1]),
)
def test_the_only_call_of_that_number(
    tmp_path: Path,
    most: int,
    shuffled: bool,
    numbers: str,
    processes: int,
) -> None:
    draw = np.random.default_rng(5)
    number = draw.permutation(NUMBERS[numbers]) if shuffled else NUMBERS[numbers]
    calls = pl.DataFrame(  # one of the processes has no work on a device
        {"start": draw.permutation(CALLS), "process": draw.integers(1, processes + 2, CALLS)}
    ).with_columns(correlationId=pl.lit(number).gather(pl.int_range(pl.len()).over("process")))
    rows = [(start, process * PROCESS + start, each) for start, process, each in calls.iter_rows()]
    file = with_table(
        tmp_path / "report.sqlite",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start, globalTid, correlationId",
        *rows,
        (None, 1, 1),
    )
    keys = ["process", "correlationId"]
    only = calls.filter(pl.len().over(keys) == 1).select(*keys, launch="start")
    columns = SQLiteColumns(file, Limits(launches=most, piece_bytes=2**13))
    found = Launches(columns, Strings.read(columns))
    assert found.count == CALLS
    for nth in (0, 400, 401, 2000, 0):
        asked = pl.DataFrame(
            {
                "process": draw.integers(1, processes + 1, 300),
                "correlationId": [
                    None,
                    7,
                    *draw.permutation(calls["correlationId"].slice(nth, 298)).tolist(),
                ],
            }
        )
        expected = asked.join(only, on=keys, how="left", maintain_order="left").with_columns(
            launch_thread=pl.col("process") * PROCESS + pl.col("launch")
        )
        assert found.of(asked).equals(expected.select("launch", "launch_thread"))
        assert asked["correlationId"].null_count() < expected["launch"].count() > 0


@pytest.mark.parametrize("held", [10, 10**6])
def test_kernels_of_many_launches_are_not_read_to_be_counted(
    forged: MakeForged, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    columns = SQLiteColumns(forged("plain").reports[0], Limits(held=held))
    read = set[str]()
    pieces = columns.pieces

    def noted(table: str, *rest: Any, **more: Any) -> Iterator[pl.DataFrame]:
        read.add(table)
        return pieces(table, *rest, **more)

    monkeypatch.setattr(columns, "pieces", noted)
    tables.trace(columns, vocabulary(ShapingOptions()))
    assert ("CUPTI_ACTIVITY_KIND_KERNEL" in read) == (held > 10)


@pytest.mark.parametrize("early_ms", [0, 5])
def test_lost_records_of_many_launches(forged: MakeForged, tmp_path: Path, early_ms: int) -> None:
    """They are found as those of few are, also where the device's clock is early."""
    (report,) = copied(forged("plain").reports[:1], tmp_path)
    edit(report, "delete from CUPTI_ACTIVITY_KIND_KERNEL where correlationId % 20 = 0")
    by = early_ms * 10**6
    edit(report, "update CUPTI_ACTIVITY_KIND_KERNEL set start = start - ?, end = end - ?", by, by)
    edit(report, "update CUPTI_ACTIVITY_KIND_KERNEL set start = 0, end = 1 where rowid % 30 = 0")
    hour = 3600 * 10**9
    edit(report, "update CUPTI_ACTIVITY_KIND_KERNEL set end = end + ? where rowid % 50 = 7", hour)
    found = []
    for limits in (USUAL, Limits(held=10), Limits(held=10, kept=10)):
        columns = SQLiteColumns(report, limits)
        work = tables.trace(columns, vocabulary(ShapingOptions())).device_work
        found.append((work.unrecorded["launch"].sort().to_list(), work.moved, work.whole))
    (lost, moved, whole), *of_many = found
    assert len(lost) > 20
    assert bool(moved) == bool(early_ms)
    assert whole["end"].max() < hour
    for lost_of_many, moved_of_many, many in of_many:
        assert lost_of_many == lost
        assert [*moved_of_many.values()] == [pytest.approx(ns, rel=0.01) for ns in moved.values()]
        assert many["name"].equals(whole["name"])


def test_launches_that_a_graph_captures_are_not_lost(forged: MakeForged, tmp_path: Path) -> None:
    """A backward pass is captured: another thread launches, and none of its kernels runs."""
    (report,) = copied(forged("plain").reports[:1], tmp_path)
    [(first, thread, names)] = asked(
        report,
        "select min(start), globalTid, (select max(id) from StringIds) "
        "from CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    captured = [
        "cudaStreamBeginCapture_v10000",
        *["cudaLaunchKernel_v7000"] * 5,
        "cudaStreamEndCapture_v10000",
        "cudaLaunchKernel_v7000",  # lost
    ]
    for nth, name in enumerate(captured, 1):
        with_rows(report, "StringIds (id, value)", (names + nth, name))
        at, caller = first + nth, thread + ("Launch" in name)
        into = "start, end, globalTid, correlationId, nameId, eventClass, returnValue"
        row = (at, at, caller, 10**6 + nth, names + nth, 0, 0)
        with_rows(report, f"CUPTI_ACTIVITY_KIND_RUNTIME ({into})", row)
    columns = SQLiteColumns(report)
    lost = tables.trace(columns, vocabulary(ShapingOptions())).device_work.unrecorded
    assert lost["launch"].to_list() == [first + len(captured)]
