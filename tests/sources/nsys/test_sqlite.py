"""nsys exports as traces, and everything in them that a reader may stumble over."""

import shutil
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from rankscope.errors import UnreadableReport
from rankscope.model.limits import Limits
from rankscope.model.reports import Trace
from rankscope.model.schema import DEVICE_WORK, RANGES
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.nsys import exports, tables
from tests.support import MARKS, THREAD, MakeForged, edit, sqlite_tables, with_rows, with_table


def test_a_trace_has_the_declared_frames(report: Path) -> None:
    trace = exports.read(report)
    assert (trace.ranges.whole.schema, trace.device_work.whole.schema) == (RANGES, DEVICE_WORK)
    assert trace.facts.host == "node0"
    assert [(claim.rank, claim.world_size) for claim in trace.facts.environment] == [(1, 4)]
    assert trace.facts.local_rank == 1
    assert trace.facts.duration_ns is not None
    assert trace.ranges.whole["end"].max() <= trace.facts.duration_ns
    assert exports.facts(report) == trace.facts


@pytest.mark.parametrize("schema", ["2022.4", "2023.4"])
@pytest.mark.parametrize("name", ["plain", "mpi_like"])
def test_schemas_tell_the_same(forged: MakeForged, name: str, schema: str) -> None:
    ours, theirs = (
        exports.read(forged(name, **parameters).reports[2])
        for parameters in ({}, {"schema": schema})
    )
    assert_frame_equal(ours.ranges.whole, theirs.ranges.whole)
    assert_frame_equal(ours.device_work.whole, theirs.device_work.whole)
    assert ours.facts.environment == theirs.facts.environment
    assert ours.process_ranks == theirs.process_ranks


def test_rows_in_any_order_and_registered_names(forged: MakeForged) -> None:
    job = forged("shuffled")
    trace = exports.read(job.reports[0])
    assert trace.ranges.whole["start"].is_sorted()
    assert trace.device_work.whole["start"].is_sorted()
    assert trace.ranges.whole["name"].str.starts_with("step ").sum() == 30


def test_launches_are_joined_to_their_work(report: Path) -> None:
    work = exports.read(report).device_work.whole
    assert work["launch"].null_count() == 0
    assert (work["launch"] < work["start"]).all()
    assert {*work["kind"]} == {"kernel", "copy"}
    assert work.filter(kind="kernel")["bytes"].is_null().all()
    assert work.filter(kind="copy")["bytes"].is_not_null().all()


def test_correlations_are_private_to_a_process(report: Path) -> None:
    """Another process's API calls reuse the numbers; they launched nothing of ours."""
    before = exports.read(report).device_work.whole
    other = 1 << 48 | 999 << 24 | 5
    edit(
        report,
        'insert into CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", eventClass, globalTid, '
        "correlationId, nameId, returnValue) "
        f"select 1, 2, 0, {other}, correlationId, nameId, 0 from CUPTI_ACTIVITY_KIND_RUNTIME",
    )
    assert_frame_equal(exports.read(report).device_work.whole, before)


def test_domains_are_numbered_per_process(forged: MakeForged, tmp_path: Path) -> None:
    path = Path(shutil.copy(forged("mpi_like").reports[0], tmp_path / "r.sqlite"))
    mine = exports.read(path)
    assert {*mine.ranges.whole["domain"]} == {"", "MPI"}
    # another process, whose domain 1 is something else, created earlier
    with_rows(path, MARKS, (0, None, 75, "cuBLAS", 1 << 48 | 999 << 24, 1))
    assert {*exports.read(path).ranges.whole["domain"]} == {"", "MPI"}


@pytest.mark.parametrize("domain", ["gloo", "operators"])
def test_a_domain_of_the_user_is_none_of_another_profiler(report: Path, domain: str) -> None:
    named = (0, None, 75, domain, THREAD, 7)
    with_rows(report, MARKS, named, (1, 2, 59, "gloo:all_reduce", THREAD, 7))
    edit(report, "update NVTX_EVENTS set int64Value = 5 where text = 'gloo:all_reduce'")
    own = exports.read(report).ranges.whole.filter(name="gloo:all_reduce")
    assert [*own["domain"]] == [f"{domain} of NVTX"]


def test_mpi_threads_tell_ranks(forged: MakeForged) -> None:
    for rank, path in enumerate(forged("mpi_like").reports):
        assert [*exports.read(path).process_ranks.values()] == [rank]


def test_operators_lose_what_makes_each_call_unique(report: Path) -> None:
    texts = ("aten::mm, op_id = 39", "aten::mm, seq = 0, op_id = 12, sizes = [[2, 4]]")
    with_rows(report, MARKS, *((1, 2, 59, text, THREAD, 0) for text in texts))
    assert exports.read(report).ranges.whole.filter(name="aten::mm").height == 2


def test_ranges_that_are_none_are_left_out(report: Path) -> None:
    before = exports.read(report).ranges.whole.height
    odd = ((10, None, 59), (10, 5, 59), (10, 20, 34), (1, 2, 99))
    with_rows(report, MARKS, *((*each, "odd", THREAD, 0) for each in odd))
    assert exports.read(report).ranges.whole.height == before


@pytest.mark.parametrize(
    "table",
    [
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "NVTX_EVENTS",
        "StringIds",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
        "TARGET_INFO_SYSTEM_ENV",
        "TARGET_INFO_SESSION_START_TIME",
        "ANALYSIS_DETAILS",
    ],
)
def test_lazy_exports_leave_tables_out(report: Path, table: str) -> None:
    assert table in sqlite_tables(report)
    edit(report, f"drop table {table}")
    trace: Trace = exports.read(report)
    assert trace.ranges.whole.is_empty() == (table == "NVTX_EVENTS")
    if table == "CUPTI_ACTIVITY_KIND_RUNTIME":
        assert trace.device_work.whole["launch"].is_null().all()
    if table == "ANALYSIS_DETAILS":
        assert trace.facts.duration_ns is None


def test_empty_tables_are_like_absent_ones(report: Path) -> None:
    for table in sqlite_tables(report) - {"TARGET_INFO_SYSTEM_ENV"}:
        edit(report, f"delete from {table}")
    trace = exports.read(report)
    assert trace.ranges.whole.is_empty()
    assert trace.device_work.whole.is_empty()
    assert trace.facts.utc_start_ns is None


@pytest.mark.parametrize("held", [10, 10**6])
def test_kernels_without_names_are_said(report: Path, held: int) -> None:
    edit(report, "drop table StringIds")
    columns = SQLiteColumns(report, Limits(held=held))
    [said] = tables.trace(columns).device_work.unread
    assert "StringIds" in said


def test_a_database_of_something_else_is_no_report(tmp_path: Path) -> None:
    path = with_table(tmp_path / "other.sqlite", "bills", "name text, value text")
    with pytest.raises(UnreadableReport, match=r"other\.sqlite"):
        exports.read(path)


def test_nothing_is_written_beside_the_report(report: Path) -> None:
    report.chmod(0o400)
    before = {path.name for path in report.parent.iterdir()}
    exports.read(report)
    assert {path.name for path in report.parent.iterdir()} == before


def test_the_names_of_jaxs_threads_tell_its_processes(report: Path) -> None:
    """As XLA writes them: one thread a device, of the slice first and of the partition now."""
    process = 1 << 48 | 77 << 24
    for device, last in enumerate(("slice=0", "partition=1")):
        name = f"XlaLauncher:#global={8 + device},local={device},process=3,{last}#"
        with_rows(report, "StringIds", (9_000_000 + device, name))
        row = (9_000_000 + device, 20, process | 100 + device)
        with_rows(report, "ThreadNames (nameId, priority, globalTid)", row)
    assert exports.read(report).jax_processes == {process >> 24: 3}
    name = "XlaLauncher:#global=0,local=0,process=4,slice=0#"
    with_rows(report, MARKS, (0, None, 39, name, process | 102, 0))
    assert exports.read(report).jax_processes == {}
