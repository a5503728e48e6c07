"""What an assistant may name: nothing outside the folders, whatever links say."""

from pathlib import Path

import pytest

from rankscope.agent.folders import Folders
from rankscope.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`inside`, beside `outside`; both hold a report and a folder with one."""
    for name in ("inside", "outside"):
        (tmp_path / name / "more").mkdir(parents=True)
        for file in ("a_0.sqlite", "more/a_1.sqlite", "run.duckdb"):
            (tmp_path / name / file).write_text(name)
    return tmp_path / "inside"


def refused(folders: Folders, *texts: str) -> None:
    for text in texts:
        with pytest.raises(UsageError, match="outside the folders") as error:
            folders.reports([text])
        assert "rankscope mcp" in error.value.hint


def test_what_lies_inside_is_found(folder: Path) -> None:
    folders = Folders([folder])
    for text in (".", "", "more", str(folder / "a_0.sqlite"), "more/../a_0.sqlite", "absent"):
        assert folders.reports([text]) == [(folder / text).resolve()]
    assert folders.reports(["*.sqlite", "**/a_1.sqlite"]) == [
        folder / "a_0.sqlite",
        folder / "more/a_1.sqlite",
    ]
    assert folders.database("new.duckdb") == folder / "new.duckdb"


def test_what_lies_outside_is_refused(folder: Path) -> None:
    folders = Folders([folder])
    outside = folder.parent / "outside"
    refused(folders, str(outside), "..", "../outside/a_0.sqlite", "../*/a_0.sqlite", "/", "~/../..")
    refused(folders, "more/../../outside", f"{folder}-more", "a\0b/../../x")
    refused(folders, "*/../../outside/*.sqlite")
    with pytest.raises(UsageError, match="outside"):
        folders.database("../outside/run.duckdb")


def test_links_count_by_where_they_lead(folder: Path) -> None:
    folders = Folders([folder])
    (folder / "within").symlink_to(folder / "more")
    (folder / "again").symlink_to(folder)
    assert folders.reports(["within"]) == [folder / "more"]
    assert folders.reports(["."]) == [folder]
    outside = folder.parent / "outside"
    (folder / "file.sqlite").symlink_to(outside / "a_0.sqlite")
    refused(folders, "file.sqlite", ".", "*.sqlite")
    with pytest.raises(UsageError, match="is a link that leads outside"):
        folders.reports(["file.sqlite"])
    (folder / "file.sqlite").unlink()
    (folder / "more/deep").symlink_to(outside)
    refused(folders, "more/deep", "more", ".", "within", "again", "more/deep/*.sqlite", "**/a_0*")
    (folder / "more/deep").unlink()
    (folder / "gone.duckdb").symlink_to(outside / "new.duckdb")
    with pytest.raises(UsageError, match="outside"):
        folders.database("gone.duckdb")  # nothing is written there, either
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises(UsageError):
        folders.reports(["loop"])


def test_a_link_to_a_folder_that_was_given_leads_inside(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    folders = Folders([link, tmp_path / "outside"])
    assert folders.reports(["a_0.sqlite"]) == [folder / "a_0.sqlite"]
    assert folders.reports([str(tmp_path / "outside")]) == [tmp_path / "outside"]
    assert folders.reports(["../outside"]) == [tmp_path / "outside"]
    refused(folders, str(tmp_path))


def test_only_databases_are_read_or_written_as_such(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.duckdb"):
        Folders([folder]).database("a_0.sqlite")


def test_what_is_no_folder_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        Folders([folder / "a_0.sqlite"])
    with pytest.raises(UsageError, match="no file has such a name"):
        Folders([folder]).reports(["*.nothing"])
