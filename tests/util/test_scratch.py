"""Folders of unfinished files: what a kill leaves is removed later, what somebody uses never."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rankscope.util import scratch
from rankscope.util.scratch import remove_abandoned, scratch_beside

HOLD = """
import sys
import tempfile
from pathlib import Path
from rankscope.util.scratch import scratch_beside
with scratch_beside(Path(sys.argv[1])) as path:
    path.write_text("half")
    print(path, flush=True)
    sys.stdin.read()
"""


def holding(target: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that works beside a target, and where."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, target],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_what_a_kill_leaves_is_removed_and_what_is_used_stays(tmp_path: Path) -> None:
    target, other = tmp_path / "run.duckdb", tmp_path / "other.duckdb"
    killed, left = holding(target)
    living, used = holding(target)
    elsewhere, of_other = holding(other)
    kill(killed)
    kill(elsewhere)
    assert left.exists(), "a kill leaves it"
    with scratch_beside(target):
        assert not left.parent.exists()
        assert used.exists(), "a living process uses it"
        assert of_other.exists(), "that is another file's"
    remove_abandoned(tmp_path)
    assert not of_other.parent.exists()
    assert used.exists()
    living.communicate("")
    assert [*tmp_path.iterdir()] == []


def test_a_kill_before_there_is_a_lock(tmp_path: Path) -> None:
    with scratch_beside(tmp_path / "x") as path:
        twin = path.parent.with_name(f"{path.parent.name[:-8]}aaaaaaaa")
    twin.mkdir()
    remove_abandoned(tmp_path, "x")
    assert [*tmp_path.iterdir()] == []


def test_nothing_else_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of other names, of other hosts, with contents but no lock, and links to folders."""
    with scratch_beside(tmp_path / "x") as path:
        ours = path.parent.name
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / scratch.LOCK).touch()
    (tmp_path / f"{ours}link").symlink_to("real")
    (tmp_path / f"{ours}full").mkdir()
    (tmp_path / f"{ours}full" / "data").touch()
    (tmp_path / ".x.backup").mkdir()
    (tmp_path / f"{ours}file").touch()
    monkeypatch.setattr("platform.node", lambda: "another-host")
    with scratch_beside(tmp_path / "x") as path:
        foreign = path.parent
        foreign_twin = foreign.with_name(f"{foreign.name}2")
    foreign_twin.mkdir()
    monkeypatch.undo()
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(tmp_path, "x")
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_was_taken_for_abandoned_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a cleaner that is faster than the lock."""
    make, made = tempfile.mkdtemp, []

    def robbed(*arguments: Any, **named: Any) -> str:
        folder = make(*arguments, **named)
        made.append(folder)
        if len(made) == 1:
            remove_abandoned(tmp_path, "x")
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", robbed)
    with scratch_beside(tmp_path / "x") as path:
        path.write_text("whole")
    assert len(made) == 2


@pytest.mark.parametrize("error", [BlockingIOError(), OSError()])
def test_file_systems_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """Nothing is removed where nobody can tell whether it is used."""
    with scratch_beside(tmp_path / "x") as path:
        monkeypatch.setattr(fcntl, "flock", _fail(error))
        remove_abandoned(tmp_path, "x")
        assert path.parent.exists()
        if not isinstance(error, BlockingIOError):
            with scratch_beside(tmp_path / "x") as second:
                second.write_text("whole")


def _fail(error: OSError) -> object:
    def flock(*_: object) -> None:
        raise error

    return flock
