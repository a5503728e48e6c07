"""Reports as nsys wrote them: their head, their export, and what can go wrong on the way."""

import os
import shutil
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import rankscope
from rankscope.errors import ToolError, UnreadableReport
from rankscope.measure.report import extract
from rankscope.model.options import ShapingOptions
from rankscope.sources.discover import describe
from rankscope.sources.environment import SLURM
from rankscope.sources.nsys import export, exports
from rankscope.sources.nsys.export import TABLES
from rankscope.sources.nsys.header import head_facts
from rankscope.sources.nsys.report import read
from tests.sources.exports import as_export, scripted_nsys
from tests.support import SAMPLE, SHARED

needs_nsys = pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the whole captures are not here")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """The sample's reports without their exports."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for report in SAMPLE.glob("*.nsys-rep"):
        shutil.copy(report, folder)
    return folder


@pytest.mark.parametrize("rank", range(4))
def test_the_head_tells_rank_and_host(rank: int) -> None:
    facts = head_facts(SAMPLE / f"report_rank_{rank}.nsys-rep")
    assert facts.environment[0].rank == rank
    assert facts.environment[0].world_size == 4
    assert facts.local_rank == rank % 2
    assert facts.host == f"node{rank // 2}"


@needs_shared
def test_heads_of_other_versions() -> None:
    newer = head_facts(SHARED / "captured/2023.4/ddp_a/report_rank_3.nsys-rep")
    assert (newer.host, newer.environment[0].rank) == ("node1", 3)
    older = head_facts(SHARED / "public/nsys/gpubootcamp_jacobi_single.qdrep")
    assert older.host is not None
    assert [claim.evidence for claim in older.environment] == [SLURM]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.9, 0.99, 0.999])
def test_truncated_reports_are_found_without_nsys(tmp_path: Path, share: float) -> None:
    whole = (SAMPLE / "report_rank_0.nsys-rep").read_bytes()
    cut = tmp_path / "cut.nsys-rep"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(UnreadableReport, match=r"cut\.nsys-rep"):
        head_facts(cut)


def test_damaged_heads_never_hang_or_crash(tmp_path: Path) -> None:
    whole = (SAMPLE / "report_rank_0.nsys-rep").read_bytes()
    for at in range(29, 400):
        broken = bytearray(whole[:4096] + whole[-64:])
        broken[at] ^= 0xFF
        path = tmp_path / "broken.nsys-rep"
        path.write_bytes(broken)
        try:
            head_facts(path)
        except UnreadableReport:
            continue


@pytest.mark.slow
@needs_nsys
def test_reports_and_their_exports_give_the_same_numbers(reports: Path, tmp_path: Path) -> None:
    from_reports = rankscope.ingest([reports], tmp_path / "reports.duckdb")
    from_exports = rankscope.ingest([SAMPLE], tmp_path / "exports.duckdb")
    assert from_reports.iterations().equals(from_exports.iterations())
    assert not [*reports.glob("*.sqlite"), *reports.glob("*_pqtdir")], "nothing beside the reports"
    assert from_reports.pick_reports().files == tuple(
        (reports / file.name).resolve() for file in from_exports.pick_reports().files
    )


@pytest.mark.slow
@needs_nsys
def test_an_export_is_made_once(reports: Path) -> None:
    report = reports / "report_rank_0.nsys-rep"
    first = export.exported(report)
    made = first.stat().st_mtime_ns
    assert export.exported(report).stat().st_mtime_ns == made
    assert export.cache_bytes() > 10_000
    os.utime(report, (1, 1))
    assert export.exported(report) != first, "a changed report is exported anew"
    export.clear([report])
    assert not first.exists()
    assert export.cache_bytes() == 0


@pytest.mark.slow
@needs_nsys
def test_an_export_of_the_tables_that_are_read_holds_what_a_whole_one_does(
    reports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not export._knows(export.find_nsys(), export.ONLY_TABLES):
        pytest.skip("this nsys exports all tables")
    report = describe(reports / "report_rank_2.nsys-rep", "nsys-report")
    some = extract(report, ShapingOptions())
    files = [path.stem for path in export.exported(report.path).iterdir()]
    assert {*files} <= {*TABLES}
    export.clear([report.path])
    monkeypatch.setattr(export, "ONLY_TABLES", "--an-option-that-no-nsys-has")
    every = extract(report, ShapingOptions())
    assert len([*export.exported(report.path).iterdir()]) > 2 * len(files)
    assert (some.facts, some.events, some.problems) == (every.facts, every.events, every.problems)
    assert some.ranks[0].measures.equals(every.ranks[0].measures)
    assert some.ranks[0].collectives.equals(every.ranks[0].collectives)


@pytest.mark.slow
@needs_nsys
def test_rebuild_clears_the_exports_of_its_reports(reports: Path, tmp_path: Path) -> None:
    rankscope.ingest([reports], tmp_path / "run.duckdb")
    entries = {path: path.stat().st_ctime_ns for path in export.cache_folder().iterdir()}
    assert len(entries) == 4
    rankscope.ingest([reports], tmp_path / "run.duckdb", rebuild=True)
    assert all(path.stat().st_ctime_ns > made for path, made in entries.items())


@pytest.mark.slow
@needs_nsys
def test_only_the_ranks_asked_for_are_exported(reports: Path, tmp_path: Path) -> None:
    run = rankscope.ingest([reports], tmp_path / "run.duckdb", ranks={0, 2})
    assert run.iterations()["rank"].unique().to_list() == [0, 2]
    assert len([*export.cache_folder().iterdir()]) == 2
    assert run.compare().missing_ranks == (1, 3)


def test_without_nsys(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_NSYS", str(tmp_path / "nowhere" / "nsys"))
    with pytest.raises(ToolError, match="RANKSCOPE_NSYS"):
        rankscope.ingest([reports], tmp_path / "run.duckdb")
    assert not (tmp_path / "run.duckdb").exists()


@needs_nsys
@needs_shared
def test_a_report_newer_than_nsys(tmp_path: Path) -> None:
    if export._knows(export.find_nsys(), "parquetdir"):
        pytest.skip("this nsys is not too old for the captured reports")
    shutil.copy(SHARED / "captured/2023.4/ddp_a/report_rank_0.nsys-rep", tmp_path)
    with pytest.raises(ToolError, match=r"was written by nsys 2023\.4\.4\.54, and .* is 2022\.4"):
        read(tmp_path / "report_rank_0.nsys-rep")
    assert not export.cache_folder().exists(), "no export is tried"


REFUSES = """case "$*" in
  --version) echo "NVIDIA Nsight Systems version {version}-abc";;
  "export --help") echo usage;;
  *) touch $0.exported; echo "{said}" >&2; exit 1;;
esac"""
"""An nsys that states a version, refuses to export, and notes that it was asked to."""


def test_nsys_refuses_newer_reports(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample's heads state no version, so nsys is asked."""
    said = "Exportation error: Version number is invalid: 2099@1@1@7-24v0"
    nsys = scripted_nsys(tmp_path, monkeypatch, REFUSES.format(version="2022.4.2.1", said=said))
    with pytest.raises(ToolError) as refused:
        read(reports / "report_rank_0.nsys-rep")
    assert f"was written by nsys 2099.1.1.7, and {nsys} is 2022.4.2.1" in refused.value.message
    assert "RANKSCOPE_NSYS" in refused.value.hint


@pytest.mark.parametrize(
    ("own", "too_new"), [("2022.4.2.1", True), ("2023.3.9.9", True), ("2023.4.1.1", False)]
)
def test_the_head_is_enough(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, too_new: bool
) -> None:
    report = reports / "report_rank_0.nsys-rep"
    line = b"NVIDIA Tegra Profiler Report "
    report.write_bytes(report.read_bytes().replace(line + b"1", line + b"2023@4@4@54-2344v0", 1))
    refuses = REFUSES.format(version=own, said="Importer error")
    nsys = scripted_nsys(tmp_path, monkeypatch, refuses)
    with pytest.raises(ToolError if too_new else UnreadableReport) as refused:
        read(report)
    assert Path(f"{nsys}.exported").exists() != too_new
    if too_new:
        assert f"was written by nsys 2023.4.4.54, and {nsys} is {own}" in refused.value.message


@pytest.mark.slow
@needs_nsys
def test_one_bad_report_among_good_ones(reports: Path, tmp_path: Path) -> None:
    bad = reports / "report_rank_1.nsys-rep"
    whole = bad.read_bytes()
    middle = len(whole) // 2
    bad.write_bytes(whole[:middle] + b"\0" * (len(whole) - middle - 64) + whole[-64:])
    with pytest.raises(UnreadableReport, match="report_rank_1"):
        rankscope.ingest([reports], tmp_path / "run.duckdb")
    run = rankscope.ingest([reports], tmp_path / "run.duckdb", on_error="skip")
    assert run.compare().missing_ranks == (1,)


@pytest.mark.slow
@needs_nsys
def test_a_cache_that_cannot_be_written(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ToolError, match="cannot be written") as refused:
        read(reports / "report_rank_0.nsys-rep")
    assert "XDG_CACHE_HOME" in refused.value.hint


def test_half_an_export_is_none(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk nsys writes what fits, and says that all is well."""
    half = f"[ $# -gt 3 ] && head -c 5000 {SAMPLE}/report_rank_0.sqlite > $7"
    scripted_nsys(tmp_path, monkeypatch, half)
    with pytest.raises(UnreadableReport, match=r"report_rank_0\.nsys-rep"):
        read(reports / "report_rank_0.nsys-rep")
    assert not [*export.cache_folder().rglob(export.SQLITE)], "and it is not kept"


@pytest.mark.parametrize("cut", [None, -1, -8, -9, 300, 0])
def test_an_export_to_arrow_becomes_a_file_per_table(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int | None
) -> None:
    """As of nsys before 2023.4: the streams of all tables in one file, which a full disk cuts."""
    streams: dict[str, bytes] = {}
    for path in sorted(as_export(SAMPLE / "report_rank_0.sqlite", "arrowdir", tmp_path).iterdir()):
        table, sink = pa.ipc.open_stream(path.read_bytes()).read_all(), pa.BufferOutputStream()
        table = table.replace_schema_metadata({"table_name": path.stem})
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        streams[path.stem] = sink.getvalue().to_pybytes()
    (tmp_path / "streams").write_bytes(b"".join(streams.values())[:cut])
    body = f"[ $# -gt 3 ] && cp {tmp_path}/streams $7 || echo sqlite, arrow, json"
    scripted_nsys(tmp_path, monkeypatch, body)
    report = reports / "report_rank_0.nsys-rep"
    if cut is None:
        folder = export.exported(report)
        made = {path.stem: path.read_bytes() for path in folder.iterdir()}
        assert made == {name: streams[name] for name in streams.keys() & {*TABLES}}
        assert folder == export.exported(report)
        assert {*folder.parent.iterdir()} == {folder, folder.with_name(export.SOURCE)}
        assert read(report).events == exports.read(SAMPLE / "report_rank_0.sqlite").events
    else:
        with pytest.raises(UnreadableReport, match=r"report_rank_0\.nsys-rep"):
            read(report)
        assert not [*export.cache_folder().iterdir()]


def test_arrow_that_is_not_understood_is_exported_to_sqlite(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite = SAMPLE / "report_rank_0.sqlite"
    body = f"[ $# -gt 3 ] || echo sqlite, arrow; [ $3 = arrow ] && echo > $7 || cp {sqlite} $7"
    scripted_nsys(tmp_path, monkeypatch, body)
    report = reports / "report_rank_0.nsys-rep"
    assert read(report).events == exports.read(sqlite).events
    assert export.exported(report).name == export.SQLITE
    assert {each.name for each in export.exported(report).parent.iterdir()} == {
        export.SQLITE,
        export.SOURCE,
    }


def test_an_nsys_that_fails_is_named(
    reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = "echo 'Exportation error: no luck today' >&2; exit 1"
    scripted_nsys(tmp_path, monkeypatch, broken)
    with pytest.raises(UnreadableReport, match="no luck today"):
        read(reports / "report_rank_0.nsys-rep")
    assert not [*export.cache_folder().iterdir()], "nothing half-made stays"


def test_a_whole_name_in_place_of_the_short_one(tmp_path: Path) -> None:
    """Converters write it, and exports whose short names are missing leave nothing else."""
    sample = SAMPLE.parent / "gpu_simulated_4ranks/report_rank_0.sqlite"
    path = Path(shutil.copy(sample, tmp_path))
    with closing(connect(path)) as copy, copy:
        copy.execute("update CUPTI_ACTIVITY_KIND_KERNEL set shortName = demangledName")
    assert_frame_equal(exports.read(path).device_work.whole, exports.read(sample).device_work.whole)
