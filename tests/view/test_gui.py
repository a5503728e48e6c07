"""Picked reports in front of the user: copies, view documents, the GUI's launcher."""

import json
import shutil
import stat
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import ToolError, UsageError
from rankscope.view import gui
from rankscope.view.gui import copy_reports, gui_takes_views, open_gui, write_view
from tests.support import SAMPLE, Stored


def launcher(folder: Path, text: str) -> Path:
    path = folder / "nsys-ui"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_view_document_names_reports_relative_to_itself(sample: Stored, tmp_path: Path) -> None:
    files = sample.run.pick_reports().files
    view = tmp_path / "views" / "slow.nsys-view"
    view.parent.mkdir()
    write_view(files, view)
    output = json.loads(view.read_text("utf-8"))
    assert output.keys() == {"extension", "files", "version"}
    assert (output["extension"], output["version"]) == ("nsys-view", "1.0")
    assert [(view.parent / name).resolve() for name in output["files"]] == [*files]
    with pytest.raises(UsageError, match="nsys-view"):
        write_view(files, tmp_path / "slow.json")
    with pytest.raises(UsageError, match="view document must end"):
        write_view(files, Path())
    with pytest.raises(UsageError, match="cannot be written"):
        write_view(files, tmp_path / "nowhere" / "slow.nsys-view")


def test_copies_open_where_they_lie(sample: Stored, tmp_path: Path) -> None:
    picks = sample.run.pick_reports()
    for _ in range(2):  # again, onto themselves
        copies = copy_reports(picks, tmp_path / "picks")
    assert [copy.name for copy in copies] == [file.name for file in picks.files]
    for copy, file in zip(copies, picks.files, strict=True):
        assert copy.read_bytes() == file.read_bytes()
    assert not [*(tmp_path / "picks").glob("*.partial")]
    with pytest.raises(ToolError, match="cannot copy reports"):
        copy_reports(picks, SAMPLE / "README.md")


def test_copies_of_one_name_keep_apart(tmp_path: Path) -> None:
    folder = tmp_path / "profiles"
    for report in SAMPLE.glob("*.sqlite"):
        rank = report.stem.rpartition("_")[2]
        (folder / f"rank{rank}").mkdir(parents=True)
        shutil.copy(report.with_suffix(".nsys-rep"), folder / f"rank{rank}" / "report.nsys-rep")
        shutil.copy(report, folder / f"rank{rank}" / "report.sqlite")
    picks = rankscope.ingest([folder], tmp_path / "run.duckdb").pick_reports()
    names = {copy.name for copy in copy_reports(picks, tmp_path / "picks")}
    assert names == {f"rank_{each.rank}_report.nsys-rep" for each in picks.picks}


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("# 2022.4.2 (Build 2022.4.2.1)", False),
        ("# 2023.4.4 (Build 2023.4.4.54)", True),
        ("# 2025.1.3", True),
    ],
)
def test_the_launcher_tells_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, takes: bool
) -> None:
    monkeypatch.setenv("RANKSCOPE_NSYS_UI", str(launcher(tmp_path, text)))
    assert gui_takes_views() is takes


def test_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [SAMPLE / "report_rank_0.nsys-rep"]
    monkeypatch.setenv("RANKSCOPE_NSYS_UI", str(tmp_path / "nsys-ui"))
    with pytest.raises(ToolError, match="not found"):
        open_gui(files)
    launcher(tmp_path, f'echo "$@" > {tmp_path}/told; exec sleep 5')
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(ToolError, match="no display"):
        open_gui(files)
    monkeypatch.setenv("DISPLAY", ":99")
    assert "starting" in open_gui(files)
    assert (tmp_path / "told").read_text().strip() == str(files[0])
    process = gui.STARTED.pop()
    process.kill()
    process.wait()
    monkeypatch.chdir(tmp_path)
    launcher(tmp_path, f'echo "$@" > {tmp_path}/told')
    open_gui([Path("-platform.nsys-rep")])
    output = (tmp_path / "told").read_text().strip()
    assert output == str(tmp_path / "-platform.nsys-rep"), "no option of the GUI"
    launcher(tmp_path, "exit 0")
    assert "already runs" in open_gui(files)
    launcher(tmp_path, "exit 7")
    with pytest.raises(ToolError, match="exit code 7"):
        open_gui(files)
