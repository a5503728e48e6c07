"""What a device did is added up as if each operation was looked at for itself."""

from collections import defaultdict

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.measure.activities import ActivityTotals
from rankscope.measure.attribution import Attributed, HostSide, attribute
from rankscope.measure.collectives import ReadyTimes
from rankscope.measure.host import host_timeline
from rankscope.model.limits import USUAL
from rankscope.util.numbers import NEVER
from tests.frames import PROCESS, THREAD, device_work, trace, windows
from tests.measure.test_additive import EDGES, WORK, marks_of, nested

SIZES = st.lists(st.one_of(st.none(), st.integers(0, 2**40)), min_size=25, max_size=25)
NAMES = st.lists(st.sampled_from(["gemm", "softmax", None]), min_size=25, max_size=25)
CODED = {"name": pl.Categorical, "kind": pl.Enum(["kernel", "graph", "set", "copy"])}


def attributed(
    edges: tuple, rows: list[tuple], work: pl.DataFrame, part_rows: int = USUAL.part_rows
) -> Attributed:
    host = host_timeline(windows(*edges), marks_of(rows))
    report = trace(work=work, part_rows=part_rows).device_work
    [output] = attribute(report, [HostSide(PROCESS, host, THREAD)])
    return output


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EDGES, nested(), WORK, SIZES, SIZES, NAMES, st.integers(1, 30), st.booleans())
def test_sums_are_of_single_operations(
    edges: tuple,
    rows: list[tuple],
    work: list,
    grid: list,
    size: list,
    names: list,
    most: int,
    coded: bool,
) -> None:
    renamed = pl.Series(names, dtype=pl.String).head(len(work))
    output = attributed(
        edges,
        rows,
        device_work(work)
        .with_columns(
            name=pl.when(pl.col("name") == "gemm").then(renamed).otherwise("name"),
            grid=pl.Series(grid, dtype=pl.Int64).head(len(work)),
            bytes=pl.Series(size, dtype=pl.Int64).head(len(work)),
        )
        .cast(CODED if coded else {}),
        most,
    )
    sums = ActivityTotals(output)
    for part in output.parts():
        sums.add(part)

    expected: defaultdict[tuple, list[int]] = defaultdict(lambda: [0] * 5)
    launches: defaultdict[tuple, list[int | None]] = defaultdict(list)
    for each in pl.concat(output.parts()).iter_rows(named=True):
        if not each["training"] or each["operation"] or each["window"] is None:
            continue
        start, end = each["start"], each["end"]
        calls = output.calls.select("start", "end").rows()
        beside = sum(any(a <= at < b for a, b in calls) for at in range(start, end))
        length = end - start
        amount = (each["bytes"] if each["grid"] is None else each["grid"]) or 0
        key = each["window"], each["phase"] or "other", each["kind"], each["name"] or ""
        added = 1, length, amount, length * (not beside), amount * (not beside)
        expected[key] = [a + b for a, b in zip(expected[key], added, strict=True)]
        if each["kind"] == "kernel" and each["name"]:
            launches[key].append({0: length, length: -length}.get(beside))
    assert {row[:4]: [*row[4:9]] for row in sums.frame.iter_rows()} == expected
    kept = {
        key: each[:: next(step for step in (1, 3, 9) if len(each) <= 6 * step)]
        for key, each in launches.items()
    }
    listed = sums.frame.drop_nulls("launches")
    assert {row[:4]: row[9] for row in listed.iter_rows()} == kept


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(WORK, st.integers(1, 30))
def test_a_call_is_ready_when_all_launched_before_is_done(work: list, most: int) -> None:
    output = attributed((0, 60, 120), [(0, 120, "forward")], device_work(work), most)
    ready = ReadyTimes(output.calls)
    for part in output.parts():
        ready.add(part)
    own = pl.concat(output.parts()).filter("training", pl.col("operation").is_null())
    calls = output.calls.drop_nulls("launch")
    assert ready.of(calls).tolist() == [
        own.filter(pl.col("launch") < launch)["end"].max() or -NEVER for launch in calls["launch"]
    ]


def test_as_many_names_as_operations_are_added_up() -> None:
    count = 3000
    work = [(at, at + 2, at, f"kernel {at % 1500}", 1, THREAD) for at in range(1, count + 1)]
    output = attributed((0, 2000, 4000), [(0, 4000, "forward")], device_work(work))
    sums = ActivityTotals(output)
    for part in output.parts():
        sums.add(part)
    assert sums.frame["count"].sum() == count
    assert sums.frame["total_ns"].sum() == 2 * count
