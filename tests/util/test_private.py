"""The cache: nobody else's machine code is loaded."""

import os
import stat
from pathlib import Path

import pytest

from rankscope.util.private import NotPrivate, closed_folder, private_folder
from tests.support import ROOT, python

OTHER = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_made_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_folder(tmp_path / "cache" / "a" / "b", tmp_path / "cache")
    finally:
        os.umask(before)
    assert {mode(each) for each in (made, made.parent, made.parent.parent)} == {0o700}


def test_what_others_could_write_to_is_emptied(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o770)
    (folder / "planted").touch()
    private_folder(folder, folder)
    assert not [*folder.iterdir()]
    assert mode(folder) == 0o700


def test_what_others_could_only_read_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(0o755)
    (folder / "ours").touch()
    private_folder(folder, folder)
    assert (folder / "ours").exists()
    assert mode(folder) == 0o700


def test_new_folders_of_a_cache_that_is_shared_are_closed(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    made = closed_folder(tmp_path / "shared" / "a" / "b", tmp_path / "shared" / "a")
    assert {mode(made), mode(made.parent)} == {0o700}
    closed_folder(made, made.parent)


@pytest.mark.parametrize("level", [0, 1])
def test_links_are_refused(tmp_path: Path, level: int) -> None:
    (tmp_path / "elsewhere" / "b").mkdir(parents=True)
    link = [tmp_path / "cache", tmp_path / "cache" / "b"][level]
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPrivate, match="link"):
        private_folder(tmp_path / "cache" / "b", tmp_path / "cache")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
@pytest.mark.parametrize("level", [0, 1, 2])
def test_folders_of_others_are_refused(tmp_path: Path, level: int) -> None:
    top = tmp_path / "base" / "cache"
    (top / "b").mkdir(parents=True)
    os.chown([top.parent, top, top / "b"][level], OTHER, OTHER)
    with pytest.raises(NotPrivate, match="another user"):
        private_folder(top / "b", top)


def test_where_others_can_exchange_it(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    base.chmod(0o777)
    with pytest.raises(NotPrivate, match="others may write"):
        private_folder(base / "cache", base / "cache")
    base.chmod(0o1777)
    private_folder(base / "cache", base / "cache")


READ = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from rankscope.sources.columns.sqlite_pages import loader
loader.compiled()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_compiled_code_of_others_is_not_loaded(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "rankscope" / "compiled").mkdir(parents=True)
    os.chown(cache / "rankscope" / "compiled", OTHER, OTHER)
    given = {"XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(ROOT), "RANKSCOPE_COMPILED": "1"}
    done = python("-c", READ, env={**os.environ, **given}, check=True)
    assert "not used because its cache is not safe" in done.out
    assert not [*(cache / "rankscope" / "compiled").iterdir()]
