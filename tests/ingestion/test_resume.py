"""Whatever stops an ingest, the database opens, holds each report whole or not, and goes on."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import DatabaseError
from rankscope.model.reports import ReportFile
from rankscope.store import Database
from tests.forge import forge, scene

TABLES = ("ranks", "iterations", "measures", "collectives", "exposed", "problems")
KILLS = 50
REPORTS = 6


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    forge(scene("buckets", ranks=REPORTS, iterations=12), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(
    profiles: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, pl.DataFrame]:
    db = tmp_path_factory.mktemp("whole") / "run.duckdb"
    rankscope.ingest([profiles], db)
    return _content(db)


def test_killed_at_random_moments(
    profiles: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    chance = random.Random(7)
    begin = time.monotonic()
    _start(profiles, tmp_path / "timing.duckdb", jobs=1).wait()
    longest = time.monotonic() - begin
    aim = {jobs: (0.3 * longest, 1.1 * longest) for jobs in (1, 2)}
    seen: dict[int, int] = {}
    for kill in range(KILLS):
        db = tmp_path / f"{kill}.duckdb"
        jobs = 1 + kill % 2
        process = _start(profiles, db, jobs)
        low, high = aim[jobs]
        moment = chance.uniform(low, high)
        time.sleep(moment)
        _kill(process)
        whole = _whole_reports(db, undisturbed)
        # Aim at the stretch in which reports are written, wherever it lies on this machine.
        if whole == 0:
            aim[jobs] = (low + 0.4 * (moment - low), high)
        elif whole == REPORTS:
            aim[jobs] = (low, high - 0.4 * (high - moment))
        seen[whole] = seen.get(whole, 0) + 1
        rankscope.ingest([profiles], db, jobs=1)
        for name, frame in _content(db).items():
            assert frame.equals(undisturbed[name]), f"{name} after kill {kill}"
    table = ", ".join(f"{whole} reports: {times}×" for whole, times in sorted(seen.items()))
    sys.stdout.write(f"in the database at the kill: {table}\n")
    assert any(0 < whole < REPORTS for whole in seen), f"no kill hit the middle: {seen}"


def test_a_second_ingest_says_that_the_first_is_at_it(profiles: Path, tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest([profiles], db)
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from rankscope.store import Database\n"
            "with Database.open(Path(sys.argv[1]), write=True): print('held', flush=True); "
            "sys.stdin.read()",
            str(db),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DatabaseError, match="in use"):
            rankscope.ingest([profiles], db)
    finally:
        holder.communicate()
    rankscope.ingest([profiles], db)


def test_interrupt_leaves_with_130(profiles: Path, tmp_path: Path) -> None:
    process = _start(profiles, tmp_path / "run.duckdb", jobs=2)
    time.sleep(0.8)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=30) in (0, 130)


def test_an_interrupt_keeps_what_was_read_and_compares_nothing(
    profiles: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path
) -> None:
    db = tmp_path / "run.duckdb"
    seen: list[int] = []

    def progress(_: ReportFile, events: int) -> None:
        seen.append(events)
        if len(seen) == REPORTS // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rankscope.ingest([profiles], db, jobs=1, progress=progress)
    assert _whole_reports(db, undisturbed) == REPORTS // 2
    with Database.open(db) as database:
        assert not database.is_finished
    assert len(rankscope.open_run(db).imbalance().ranks) == REPORTS // 2
    rankscope.ingest([profiles], db, jobs=1)
    assert all(frame.equals(undisturbed[name]) for name, frame in _content(db).items())
    with Database.open(db) as database:
        assert database.is_finished


def _start(profiles: Path, db: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rankscope", "ingest", str(profiles), "--db", str(db)]
    return subprocess.Popen(
        [*command, "--jobs", str(jobs)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and its workers, as a batch system does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _whole_reports(db: Path, undisturbed: dict[str, pl.DataFrame]) -> int:
    """How many reports the database holds; each must be whole."""
    if not db.exists():
        return 0
    with Database.open(db) as database:
        ranks = database.table("ranks")["rank"].to_list()
        assert sorted(ranks) == sorted(set(range(REPORTS)) & set(ranks)), "a rank is there twice"
        for name in TABLES[:-1]:
            here = database.table(name)
            theirs = undisturbed[name].filter(pl.col("rank").is_in(ranks))
            assert _sorted(here).equals(theirs), name
        assert database.table("reports").height == len(ranks)
    return len(ranks)


def _content(db: Path) -> dict[str, pl.DataFrame]:
    with Database.open(db) as database:
        return {name: _sorted(database.table(name)) for name in (*TABLES, "rank_iterations")}


def _sorted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort([name for name in frame.columns if name != "ranks"], nulls_last=True)
