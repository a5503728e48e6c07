"""Paths → reports: folders, globs, links, and what cannot be read."""

import gzip
import os
from pathlib import Path

import pytest

from rankscope.errors import ReportError, UnreadableReport, UsageError
from rankscope.sources.discover import discover, united


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 7)


def names(*paths: str | Path) -> list[str]:
    return [report.path.name for report in discover(paths)]


def test_folders_are_searched_recursively(tmp_path: Path) -> None:
    touch(tmp_path / "a.sqlite", tmp_path / "deep" / "er" / "b.SQLITE", tmp_path / "notes.txt")
    [first, second] = discover([tmp_path])
    assert (first.path, first.kind, first.bytes) == (tmp_path / "a.sqlite", "nsys-sqlite", 7)
    assert first.modified_ns == first.path.stat().st_mtime_ns
    assert second.path.name == "b.SQLITE"


def test_a_report_reached_twice_counts_once(tmp_path: Path) -> None:
    touch(tmp_path / "a.sqlite")
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "a.sqlite")
    assert len(discover([tmp_path, tmp_path / "a.sqlite", tmp_path / "link.sqlite"])) == 1


def test_the_order_of_paths_means_nothing(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.sqlite" for name in "cab"]
    touch(*files)
    assert names(*files) == names(*reversed(files)) == ["a.sqlite", "b.sqlite", "c.sqlite"]


def test_globs(tmp_path: Path) -> None:
    touch(*(tmp_path / folder / "r.sqlite" for folder in ("n1", "n2", "other")))
    found = discover([f"{tmp_path}/n*/*.sqlite"])
    assert [report.path.parent.name for report in found] == ["n1", "n2"]
    assert len(discover([f"{tmp_path}/**/r.sqlite"])) == 3


def test_a_file_whose_name_holds_glob_characters_is_a_file(tmp_path: Path) -> None:
    touch(tmp_path / "run[1]*.sqlite")
    assert names(tmp_path / "run[1]*.sqlite") == ["run[1]*.sqlite"]


def test_a_report_beside_its_export_is_one_report(tmp_path: Path) -> None:
    touch(tmp_path / "r.nsys-rep", tmp_path / "r.sqlite")
    assert names(tmp_path) == ["r.sqlite"]


@pytest.mark.parametrize("ending", ["nsys-rep", "qdrep"])
def test_an_unexported_report_is_read_itself(tmp_path: Path, ending: str) -> None:
    touch(tmp_path / f"r.{ending}")
    assert [report.kind for report in discover([tmp_path])] == ["nsys-report"]


def test_an_export_older_than_its_report_is_not_read(tmp_path: Path) -> None:
    touch(tmp_path / "r.sqlite", tmp_path / "r.nsys-rep")
    os.utime(tmp_path / "r.sqlite", (1, 1))
    assert names(tmp_path) == ["r.nsys-rep"]


def test_a_folder_of_parquet_files_is_one_report(tmp_path: Path) -> None:
    (tmp_path / "r_pqtdir").mkdir()
    touch(tmp_path / "r_pqtdir" / "NVTX_EVENTS.parquet")
    assert [report.kind for report in discover([tmp_path])] == ["nsys-parquetdir"]
    assert [report.kind for report in discover([tmp_path / "r_pqtdir"])] == ["nsys-parquetdir"]


def test_links_that_lead_back_up_end(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "r.sqlite")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    assert names(tmp_path) == ["r.sqlite"]


def test_folders_behind_links_are_found(tmp_path: Path) -> None:
    touch(tmp_path / "elsewhere" / "r.sqlite")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "here") == ["r.sqlite"]


def test_a_named_file_is_taken_for_a_report_whatever_its_ending(tmp_path: Path) -> None:
    touch(tmp_path / "export.db")
    assert names(tmp_path / "export.db") == ["export.db"]
    with pytest.raises(UsageError):
        discover([tmp_path])


@pytest.mark.parametrize("path", ["nowhere", "nowhere/*.sqlite"])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        discover([tmp_path / path])


def test_an_address_is_no_path() -> None:
    with pytest.raises(UsageError, match="no such file") as refused:
        discover(["s3://bucket/traces"])
    assert refused.value.hint == "copy the reports to a disk first"


def test_a_folder_without_reports_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=str(tmp_path)) as refused:
        discover([tmp_path])
    assert ".sqlite" in refused.value.hint


def test_a_dangling_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "gone.sqlite").symlink_to(tmp_path / "nothing")
    with pytest.raises(UnreadableReport, match=r"gone\.sqlite"):
        discover([tmp_path])


def test_an_unreadable_folder_is_an_error_not_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by permissions, which do not stop root."""
    touch(tmp_path / "closed" / "r.sqlite", tmp_path / "open" / "s.sqlite")
    listed = os.scandir

    def refuse(path: str | Path) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(ReportError, match="closed"):
        discover([tmp_path])


TRACE = '{"schemaVersion": 1, "traceEvents": []}'


def test_of_json_files_in_a_folder_only_traces_are_reports(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"lr": 0.1}')
    (tmp_path / "image.json").write_text('{"schemaVersion": 2, "layers": []}')
    (tmp_path / "other.json").write_text('{"traceEvents": [{"ph": "X", "cat": "python"}]}')
    (tmp_path / "trace_0.json").write_text(TRACE)
    (tmp_path / "trace_1.pt.trace.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    found = discover([tmp_path])
    assert [file.path.name for file in found] == ["trace_0.json", "trace_1.pt.trace.json.gz"]
    assert {file.kind for file in found} == {"kineto"}


def test_a_json_file_that_is_named_is_taken_for_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"lr": 0.1}')
    assert [file.kind for file in discover([path])] == ["kineto"]


def test_a_damaged_trace_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    packed = gzip.compress(TRACE.encode() * 99)
    (tmp_path / "trace_0.json.gz").write_bytes(packed[:30])
    (tmp_path / "trace_1.json").write_bytes(b"")
    assert len(discover([tmp_path])) == 2


@pytest.mark.parametrize("numbered", ["trace_{}.json", "rank{}/trace.json"])
def test_what_is_named_like_the_reports_is_not_passed_over(tmp_path: Path, numbered: str) -> None:
    """A trace that lost its head, or one packed twice, is a rank that is missing."""
    contents = [TRACE.encode(), TRACE.encode()[9:], gzip.compress(gzip.compress(TRACE.encode()))]
    for rank, content in enumerate(contents):
        (tmp_path / numbered.format(rank)).parent.mkdir(exist_ok=True)
        (tmp_path / numbered.format(rank)).write_bytes(content)
    with pytest.raises(UnreadableReport, match="is not JSON"):
        discover([tmp_path])
    failed: list[Path] = []
    assert len(discover([tmp_path], lambda path, _: failed.append(path))) == 1
    assert failed == [tmp_path / numbered.format(rank) for rank in (1, 2)]


def test_a_trace_and_its_packed_copy_are_one_but_not_an_export_of_that_name(
    tmp_path: Path,
) -> None:
    (tmp_path / "report_0.json").write_text(TRACE)
    (tmp_path / "report_0.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    (tmp_path / "report_0.sqlite").write_bytes(b"SQLite format 3\0")
    assert [file.kind for file in discover([tmp_path])] == ["kineto", "nsys-sqlite"]


def test_beside_packed_traces_another_way_to_pack_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(gzip.compress(TRACE.encode()))
    touch(tmp_path / "rank0.json.zst", tmp_path / "rank1.json.zst")
    with pytest.raises(UnreadableReport, match=r"rank1\.json\.zst: is packed"):
        discover([tmp_path])


def test_traces_whose_packed_files_end_alike_are_no_copies(tmp_path: Path) -> None:
    """As bgzip writes them: the last part is empty."""
    for rank in (0, 1):
        packed = gzip.compress(TRACE.encode() + b" " * rank) + gzip.compress(b"")
        (tmp_path / f"report_{rank}.json.gz").write_bytes(packed)
    (tmp_path / "again.json.gz").write_bytes(gzip.compress(TRACE.encode()) + gzip.compress(b""))
    files, copies = united(discover([tmp_path]))
    assert len(files) == 2
    assert len(copies) == 1


def test_a_stored_report_is_not_compared_with_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All reports would be read twice."""
    (tmp_path / "report_0.json").write_text(TRACE)
    stored = discover([tmp_path])
    os.link(tmp_path / "report_0.json", tmp_path / "again.json")
    assert united(discover([tmp_path / "again.json"]), stored=stored)[1]
    monkeypatch.setattr(Path, "open", None)
    assert united(stored, stored=stored) == (stored, {})


def test_a_link_to_itself_is_one_unreadable_report(tmp_path: Path) -> None:
    touch(tmp_path / "a.sqlite")
    loop = tmp_path / "loop.sqlite"
    loop.symlink_to(loop)
    with pytest.raises(UnreadableReport, match=r"loop\.sqlite: cannot be read"):
        discover([tmp_path])
    failed: list[Path] = []
    found = discover([tmp_path, loop], lambda path, _: failed.append(path))
    assert [each.path.name for each in found] == ["a.sqlite"]
    assert {each.name for each in failed} == {"loop.sqlite"}
