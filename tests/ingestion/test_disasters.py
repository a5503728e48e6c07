"""Full disks, slow and changing files, odd clocks: one clear line, and nothing is lost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import DatabaseError
from rankscope.store import Database
from tests.support import Cli, MakeForged, MakeStored, Result, copied, mostly_nightly, python, ran

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

MB = 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(folder)]
    if sys.platform != "linux" or ran(*mount).code:
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def rankscope_cli(*arguments: object) -> Result:
    return python("-m", "rankscope", *arguments, timeout=120)


def fill(disk: Path, free: int) -> Path:
    """Leave this many bytes on a disk."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        file.write(b"x" * max(0, shutil.disk_usage(disk).free - free))
    return ballast


def answers(db: Path) -> object:
    run = rankscope.open_run(db)
    return run.imbalance().verdict.sentence, run.iterations().rows()


@pytest.mark.parametrize("free", mostly_nightly([MB // 2, 0, MB // 16, MB]))
def test_a_full_disk_and_going_on_after_room_was_made(
    forged: MakeForged, stored: MakeStored, disk: Path, free: int
) -> None:
    reports, db = forged("plain").reports, disk / "run.duckdb"
    assert rankscope_cli("ingest", *reports[:1], "--db", db).code == 0
    ballast = fill(disk, free)
    result = rankscope_cli("ingest", *reports, "--db", db)
    if result.code != 0:
        result.refused(4, "run.duckdb", "disk is full")
    ballast.unlink()
    assert rankscope_cli("ingest", *reports, "--db", db).code == 0
    assert answers(db) == answers(stored("plain").db)
    # DuckDB may keep its write-ahead log, which it reads at the next opening
    assert {path.name for path in disk.iterdir()} <= {"run.duckdb", "run.duckdb.wal"}


@pytest.mark.parametrize("free", mostly_nightly([MB // 16, 0]))
def test_a_new_database_on_a_full_disk(forged: MakeForged, disk: Path, free: int) -> None:
    ballast = fill(disk, free)
    result = rankscope_cli("ingest", *forged("plain").reports, "--db", disk / "run.duckdb")
    result.refused(4, "run.duckdb", "disk is full")
    ballast.unlink()
    assert not [*disk.iterdir()]


@pytest.mark.parametrize("free", [0, MB // 16])
def test_scrub_on_a_full_disk(forged: MakeForged, disk: Path, free: int) -> None:
    report = forged("plain").reports[0]
    ballast = fill(disk, free)
    rankscope_cli("scrub", report, "-o", disk / "copy.sqlite").refused(2, "copy.sqlite", "No space")
    assert [*disk.iterdir()] == [ballast]


def test_a_failed_ingest_leaves_no_new_database(
    forged: MakeForged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the disk is full after the database was made; a database of before stays."""
    reports, db = forged("plain").reports, tmp_path / "run.duckdb"

    def fails(*_: object) -> None:
        raise DatabaseError("run.duckdb: cannot be written", hint="make room")

    with monkeypatch.context() as full:
        full.setattr(Database, "write", fails)
        with pytest.raises(DatabaseError, match="cannot be written"):
            rankscope.ingest(reports, db)
    assert [*tmp_path.iterdir()] == []
    rankscope.ingest(reports[:2], db)
    with monkeypatch.context() as full:
        full.setattr(Database, "write", fails)
        with pytest.raises(DatabaseError, match="cannot be written"):
            rankscope.ingest(reports, db)
    ranks = rankscope.open_run(db).sql("select rank from ranks")["rank"]
    assert sorted(ranks) == [0, 1]


STARTING = """
import os, signal, sys
from pathlib import Path
from rankscope.store import Database, database
place = database.take_place
def killed(made, target):
    if sys.argv[2] == "after":
        place(made, target)
    os.kill(os.getpid(), signal.SIGKILL)
database.take_place = killed
Database.create(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_a_kill_leaves_beside_the_database_goes_with_the_next_ingest(
    forged: MakeForged, tmp_path: Path, moment: str
) -> None:
    db = tmp_path / "run.duckdb"
    assert python("-c", STARTING, db, moment).code == -signal.SIGKILL
    assert [*tmp_path.glob(".run.duckdb.*/run.duckdb")], "a kill leaves a folder"
    assert rankscope_cli("ingest", *forged("plain").reports, "--db", db).code == 0
    assert [*tmp_path.iterdir()] == [db]


REBUILDING = """
import os, signal, sys
from rankscope.ingestion import existing
from rankscope_cli.main import main
existing.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(sys.argv[1:])
"""


def test_what_a_killed_rebuild_leaves_goes_with_the_next_ingest(
    forged: MakeForged, stored: MakeStored, tmp_path: Path
) -> None:
    db = Path(shutil.copy(stored("plain").db, tmp_path / "run.duckdb"))
    words = ("ingest", *forged("plain").reports, "--db", db)
    again = ("--rebuild", "--jobs", "1")
    assert python("-c", REBUILDING, *words, *again).code == -signal.SIGKILL
    assert [*tmp_path.glob(".run.duckdb.*/run.duckdb")], "a kill leaves a folder"
    assert answers(db) == answers(stored("plain").db)
    assert rankscope_cli(*words).code == 0
    assert [*tmp_path.iterdir()] == [db]


def test_clocks_that_go_back(
    cli: Cli,
    forged: MakeForged,
    stored: MakeStored,
    tmp_path: Path,
) -> None:
    """Times of files in the future, then in the past: changed is what differs."""
    reports, db = copied(forged("plain").reports, tmp_path / "reports"), tmp_path / "run.duckdb"
    for moment in (time.time() + 10**7, 10**6, -(10**6)):
        os.utime(reports[0], (moment, moment))
        output = cli("ingest", *reports, "--db", db, "--format", "json").document
        assert output["reports"][0]["status"] == "read"
    output = cli("ingest", *reports, "--db", db, "--format", "json").document
    assert {each["status"] for each in output["reports"]} == {"unchanged"}
    assert answers(db) == answers(stored("plain").db)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_slow_files(forged: MakeForged, stored: MakeStored, tmp_path: Path) -> None:
    """As on a busy network file system: every opening and reading takes a while."""
    db = tmp_path / "run.duckdb"
    slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(forged("plain").folder)]
    for report in forged("plain").reports:
        slow += ["-P", str(report)]
    inject = ["-e", "inject=read,pread64,preadv,openat,newfstatat:delay_enter=5000"]
    command = [sys.executable, "-m", "rankscope", "ingest", str(forged("plain").folder)]
    done = ran(*slow, *inject, *command, "--db", db, timeout=300)
    assert done.code == 0, done.err
    assert answers(db) == answers(stored("plain").db)
