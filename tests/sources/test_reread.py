"""Reports that are too large to be held give what those give that are."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.measure.report import Reader, details, extract
from rankscope.model import events
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportRows
from rankscope.sources import formats
from rankscope.sources.conventions import vocabulary
from rankscope.sources.discover import describe
from tests.sources.exports import as_export
from tests.sources.limits import IN_PIECES, within
from tests.sources.nsys.test_nccl import DOMAIN, around, blob, laid_out
from tests.support import MakeForged, edit, mostly_slow, one_at_a_time

pytestmark = pytest.mark.usefixtures("compiled_reader")

FRAMES = ("host_states", "iterations", "measures", "collectives", "exposed", "activities")


def tables(rows: ReportRows) -> dict[str, pl.DataFrame]:
    [rank] = rows.ranks
    return {name: (frame := getattr(rank, name)).sort(frame.columns) for name in FRAMES}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "kind", "iteration"),
    one_at_a_time(
        ["dali", "described", "plain", "shuffled", "no_launch_record", "cuda_graph", "host_only"],
        ["sqlite", "parquetdir", "arrowdir"],
        [None, "auto", "whole"],
    ),
)
def test_reading_again_gives_the_same(
    forged: MakeForged,
    tmp_path: Path,
    job: str,
    kind: str,
    iteration: str | None,
) -> None:
    report = forged("plain" if job == "described" else job).reports[1]
    if job == "described":
        report = Path(shutil.copy(report, tmp_path / "report_1.sqlite"))
        around(laid_out(report), None, blob())
    path = as_export(report, kind, tmp_path, rows=20)
    file, options = describe(path, f"nsys-{kind}"), ShapingOptions(iteration=iteration)
    held = extract(file, options)
    for kept in (10**6, 0):
        again = extract(file, options, within(replace(IN_PIECES, kept=kept)))
        assert tables(again).keys() == tables(held).keys()
        for name, frame in tables(held).items():
            assert tables(again)[name].equals(frame), name
        assert (again.facts, again.problems) == (held.facts, held.problems)
        assert again.events == held.events
        assert [each.problems for each in again.ranks] == [each.problems for each in held.ranks]
    if job == "described":
        assert held.ranks[0].collectives["communicator"].str.starts_with("named").any(), DOMAIN


def test_calls_without_a_number_count_as_often(report: Path) -> None:
    """They launched nothing known, but the thread was in them: held, read again, and as before."""
    file, options = describe(report, "nsys-sqlite"), ShapingOptions()
    before = tables(extract(file, options))["host_states"]
    assert "cuda_call" in before["state"]
    edit(report, "update CUPTI_ACTIVITY_KIND_RUNTIME set correlationId = null where rowid % 3 = 0")
    file = describe(report, "nsys-sqlite")
    assert tables(extract(file, options))["host_states"].equals(before)
    again = extract(file, options, within(IN_PIECES))
    assert tables(again)["host_states"].equals(before)


@pytest.mark.parametrize("named", mostly_slow([True, False]))
def test_with_operators_left_out_the_same(report: Path, named: bool) -> None:
    """Also where they are all that tells phases, and so are read again."""
    backward = "autograd::engine::evaluate_function: MmBackward0"
    for phase, operator in (("forward", "aten::mm"), ("backward", backward)):
        for ninth in (1, 3, 5):
            edit(
                report,
                "insert into NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) select "
                "start + ?1 * (end - start) / 9, start + (?1 + 1) * (end - start) / 9, eventType, "
                "?2, globalTid, domainId from NVTX_EVENTS where text = ?3",
                *(ninth, operator, phase),
            )
        if not named:
            edit(report, "delete from NVTX_EVENTS where text = ?", phase)
    file, options = describe(report, "nsys-sqlite"), ShapingOptions()
    held = extract(file, options)
    few = formats.read(file).ranges.whole.height - 5
    assert [bool(rank.problems) for rank in held.ranks] == [not named]
    read = within(replace(IN_PIECES, held=few))
    ranges = read(file, vocabulary(options)).ranges
    assert ranges.of_note is not None
    assert ranges.of_note.whole.height < few
    again = extract(file, options, read)
    for name, frame in tables(held).items():
        assert tables(again)[name].equals(frame), name


@pytest.mark.parametrize("iteration", ["auto", "whole"])
def test_all_ranges_are_held_where_iterations_need_them(forged: MakeForged, iteration: str) -> None:
    file = describe(forged("plain").reports[1], "nsys-sqlite")
    for options in (ShapingOptions(), ShapingOptions(iteration=iteration)):
        moments = within(IN_PIECES)(file, vocabulary(options)).ranges.moments
        assert isinstance(moments, events.InMemoryEvents) == (options.iteration is not None)


@pytest.mark.slow
@pytest.mark.parametrize("held", mostly_slow([True, False]))
@pytest.mark.parametrize("name", mostly_slow(["sample {} of shard 7", "blob {:x}"]))
def test_so_many_names_that_they_are_lumped(
    report: Path,
    held: bool,
    name: str,
) -> None:
    """What they add up to stays; so do the names that mean something, iterations above all."""
    for nth in range(300):
        edit(
            report,
            "insert into NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) select "
            "start + ?1, start + ?1 + 1000, eventType, ?2, globalTid, domainId from NVTX_EVENTS "
            "where text = 'forward' limit 1 offset ?3",
            *(nth % 100, name.format(2**40 + 7919 * nth), nth % 5),
        )
    file, options = describe(report, "nsys-sqlite"), ShapingOptions()
    whole = extract(file, options)
    most = 10**9 if held else 0
    read = within(replace(IN_PIECES, piece_bytes=2**12, signatures=20, held=most))
    lumped = extract(file, options, read)
    for frame in FRAMES[:-1]:
        assert tables(lumped)[frame].equals(tables(whole)[frame]), frame
    where = ["iteration", "phase", "kind"]
    sums = [
        each.ranks[0].activities.group_by(where).agg(pl.col("count", "total_ns").sum()).sort(where)
        for each in (whole, lumped)
    ]
    assert sums[0].equals(sums[1])
    signatures = read(file, vocabulary(options)).ranges.signatures
    assert signatures.height < 200
    names = signatures["name"].to_list()
    alike = {each for each in names if each == "" or each.startswith(("blob", "sample"))}
    assert alike == ({""} if "blob" in name else {"sample # of shard #"}), "the first ones as well"


@pytest.mark.parametrize(
    "sql",
    [
        "delete from CUPTI_ACTIVITY_KIND_{}",
        "update CUPTI_ACTIVITY_KIND_{} set end = start - 1",
        "drop table CUPTI_ACTIVITY_KIND_{}",
    ],
)
def test_calls_that_launched_nothing_the_same(report: Path, sql: str) -> None:
    for table in ("KERNEL", "MEMCPY"):
        edit(report, sql.format(table))
    file, options = describe(report, "nsys-sqlite"), ShapingOptions()
    held = extract(file, options)
    read = within(IN_PIECES)
    again = extract(file, options, read)
    for name, frame in tables(held).items():
        assert tables(again)[name].equals(frame), name
    assert (again.problems, again.events) == (held.problems, held.events)
    assert read(file, vocabulary(options)).device_work.kinds.is_empty()


def test_a_report_that_changes_meanwhile_is_reported(report: Path) -> None:
    ranges = within(IN_PIECES)(describe(report, "nsys-sqlite"), vocabulary(ShapingOptions())).ranges
    edit(report, "update NVTX_EVENTS set text = 'daol' where text = 'load'")
    with pytest.raises(UnreadableReport, match="changed while it was read"):
        assert ranges.whole


def test_details_are_the_same(forged: MakeForged) -> None:
    file = describe(forged("dali").reports[1], "nsys-sqlite")

    def work(read: Reader) -> pl.DataFrame:
        [detail] = details(file, ShapingOptions(), read).ranks.values()
        return pl.concat(detail.work.parts()).sort("start", "end", "stream", "name")

    assert work(within(IN_PIECES)).equals(work(formats.read))
