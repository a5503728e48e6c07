"""Exports of every age and shape tell the same of one report."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from msgspec.structs import replace
from polars.testing import assert_frame_equal

import rankscope
from rankscope.errors import UnreadableReport
from rankscope.model.reports import Trace
from rankscope.sources.discover import discover
from rankscope.sources.nsys import exports
from tests.sources.exports import FOLDERS, as_export, as_of_2020
from tests.support import (
    MARKS,
    SHARED,
    THREAD,
    MakeForged,
    edit,
    mostly_slow,
    public,
    with_rows,
)


def assert_same_events(one: Trace, other: Trace) -> None:
    assert_frame_equal(one.ranges.whole, other.ranges.whole)
    assert_frame_equal(one.device_work.whole, other.device_work.whole, check_row_order=False)
    assert one.process_ranks == other.process_ranks
    assert one.facts.duration_ns == other.facts.duration_ns


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("name", ["plain", "mpi_like"])
def test_folders_hold_what_sqlite_holds(
    forged: MakeForged, tmp_path: Path, name: str, kind: str
) -> None:
    report = forged(name).reports[2]
    folder = as_export(report, kind, tmp_path)
    assert_same_events(exports.read(folder), exports.read(report))
    [found] = discover([tmp_path])
    assert (found.kind, found.path) == (f"nsys-{kind}", folder)


def test_real_exports_of_all_kinds_agree() -> None:
    folder = SHARED / "captured/2023.4"
    if not folder.is_dir():
        pytest.skip("the whole captures are not here: export_dirs")
    exported = exports.read(folder / "ddp_a/report_rank_0.sqlite")
    for kind in ("arwdir", "pqtdir"):
        output = exports.read(folder / f"export_dirs/report_rank_0_{kind}")
        assert_same_events(output, exported)
        assert (output.facts, output.events) == (exported.facts, exported.events)
    assert exported.ranges.whole.filter(pl.col("name").str.starts_with("Batch")).height == 40
    assert [claim.rank for claim in exported.facts.environment] == [0]


@pytest.mark.parametrize("kind", FOLDERS)
def test_text_in_folders_may_be_broken(report: Path, tmp_path: Path, kind: str) -> None:
    texts = (b"caf\xe9", b"nul\x00inside")
    with_rows(report, MARKS, *((1, 2, 59, text, THREAD, 0) for text in texts))
    edit(report, "update NVTX_EVENTS set text = cast(text as text) where start = 1")
    names = {*exports.read(as_export(report, kind, tmp_path / "out")).ranges.whole["name"]}
    assert {"caf\ufffd", "nul\x00inside"} <= names


@pytest.mark.parametrize("kind", FOLDERS)
def test_damaged_folders_are_refused(report: Path, tmp_path: Path, kind: str) -> None:
    folder = as_export(report, kind, tmp_path / "out")
    [file] = folder.glob("NVTX_EVENTS.*")
    whole = file.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"\xff" * 300):
        file.write_bytes(content)
        with pytest.raises(UnreadableReport, match="NVTX_EVENTS") as refused:
            exports.read(folder)
        assert kind in refused.value.hint


@pytest.mark.parametrize("schema", mostly_slow(["2022.4", "2023.4"]))
@pytest.mark.parametrize("name", mostly_slow(["plain", "late_capture", "mpi_like"], 2))
def test_an_export_of_2020(forged: MakeForged, tmp_path: Path, name: str, schema: str) -> None:
    """No meta data, no processes, and 0 or "" where later exports have nothing."""
    original = forged(name, schema=schema).reports[1]
    old = as_of_2020(Path(shutil.copy(original, tmp_path / "report_rank_1.sqlite")))
    now, then = exports.read(original), exports.read(old)
    assert_same_events(then, now)
    assert then.facts.exporter is None
    assert replace(then.facts, exporter=now.facts.exporter) == now.facts


def test_payloads_of_zero_count_where_others_differ(report: Path) -> None:
    edit(report, "update NVTX_EVENTS set int64Value = rowid % 3")
    assert {0, 1, 2} <= {*exports.read(report).ranges.whole["payload"]}


def test_a_domain_named_before_the_capture_began(forged: MakeForged, tmp_path: Path) -> None:
    path = Path(shutil.copy(forged("mpi_like").reports[0], tmp_path / "r.sqlite"))
    before = exports.read(path)
    edit(path, "delete from NVTX_EVENTS where eventType = 75")
    assert_frame_equal(exports.read(path).ranges.whole, before.ranges.whole)


def test_the_newest_export() -> None:
    """Schema 3.25: two ranks, NCCL's domain created before the capture began."""
    trace = exports.read(public("nsys/mfu_2gpu_before.sqlite"))
    assert trace.facts.exporter == "2026.2.1.210"
    assert {*trace.ranges.whole.filter(domain="NCCL")["name"]} >= {"ncclSend", "ncclRecv"}
    assert trace.device_work.whole["device"].n_unique() == 2
    unlaunched = trace.device_work.whole["launch"].null_count()
    assert 0 < unlaunched < 50, "launched before the capture began"


def graph_traced(report: Path) -> Path:
    """Each forward kernel launch as one graph, traced as a whole."""
    edit(
        report,
        'create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE as select start, "end", deviceId, streamId, '
        "correlationId, globalPid, 1 as graphId from CUPTI_ACTIVITY_KIND_KERNEL",
    )
    return edit(report, "delete from CUPTI_ACTIVITY_KIND_KERNEL")


@pytest.mark.slow
def test_graphs_traced_as_a_whole_hide_their_waits(report: Path, tmp_path: Path) -> None:
    run = rankscope.ingest([graph_traced(report)], tmp_path / "run.duckdb")
    problems = {problem.code: problem for problem in run.compare().warnings}
    assert "--cuda-graph-trace=node" in problems["graphs-opaque"].message
    measures = run.sql("select * from measures where clock = 'gpu'")
    assert measures["work_ns"].null_count() == measures.height
    assert measures["compute_ns"].min() > 0
    assert run.imbalance().verdict.kind == "inconclusive"


@pytest.mark.slow
def test_several_devices_in_one_process_are_said(report: Path, tmp_path: Path) -> None:
    edit(report, "update CUPTI_ACTIVITY_KIND_KERNEL set deviceId = 7 where rowid % 2 = 0")
    run = rankscope.ingest([report], tmp_path / "run.duckdb")
    [said] = [each for each in run.compare().warnings if each.code == "several-devices"]
    assert "2 devices" in said.message
