"""Whatever stops an ingest, the database opens, holds each report whole or not, and goes on."""

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
from rankscope.model.reports import ReportFile
from rankscope.store import Database
from tests.forge import forge, scene
from tests.support import mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

TABLES = ("ranks", "iterations", "measures", "collectives", "exposed", "problems")
REPORTS = 6
STARTUP, LONGEST_REPORT = 2.0, 0.1
"""Seconds: about what the command needs until it reads, and for one report."""


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


@pytest.mark.parametrize("seed", mostly_nightly(range(4), 0))
def test_killed_at_random_moments(
    profiles: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path, seed: int
) -> None:
    """Reports that come quickly share a transaction: at least the first is stored at the kill."""
    chance = random.Random(seed)
    for read in range(REPORTS):
        db = tmp_path / f"{read}.duckdb"
        process = _start(profiles, db, jobs=1 + (read + seed) % 2)
        _let_on(process, REPORTS)
        _await_reports(process, read)
        time.sleep(chance.uniform(0, LONGEST_REPORT if read else STARTUP))
        _kill(process)
        assert _whole_reports(db, undisturbed) >= min(read, 1)
        rankscope.ingest([profiles], db, jobs=1)
        for name, frame in _content(db).items():
            assert frame.equals(undisturbed[name]), f"{name} after kill {read}"


@pytest.mark.parametrize("jobs", mostly_nightly([2, 1]))
@pytest.mark.parametrize("stored", mostly_nightly([REPORTS // 2, 1, REPORTS - 1]))
def test_killed_in_the_middle(
    profiles: Path, undisturbed: dict[str, pl.DataFrame], tmp_path: Path, stored: int, jobs: int
) -> None:
    db = tmp_path / "run.duckdb"
    process = _start(profiles, db, jobs, write_at_once=True)
    _let_on(process, stored - 1)
    _await_reports(process, stored)
    _kill(process)
    assert _whole_reports(db, undisturbed) == stored
    rankscope.ingest([profiles], db, jobs=1)
    assert all(frame.equals(undisturbed[name]) for name, frame in _content(db).items())


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


GATED = """
import sys
from contextlib import contextmanager
from rankscope.store import writer
from rankscope_cli.commands import ingest
from rankscope_cli.main import main

if sys.argv[1] == "at once":
    writer.WAIT_S = writer.LONGEST_WAIT_S = 0.0
plain = ingest.progress_bar

@contextmanager
def gated(quiet):
    with plain(quiet) as (started, advance):
        def read(file, events):
            advance(file, events)
            sys.stderr.flush()
            sys.stdout.write("read\\n")
            sys.stdout.flush()
            sys.stdin.readline()
        yield started, read

ingest.progress_bar = gated
main(sys.argv[2:])
"""
"""The command line; after each report it writes `read` and waits for a line. Its first argument
says whether each report gets a transaction of its own."""


def _start(
    profiles: Path, db: Path, jobs: int, write_at_once: bool = False
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", GATED, "at once" if write_at_once else "as it is"]
    return subprocess.Popen(
        [*command, "ingest", str(profiles), "--db", str(db), "--jobs", str(jobs)],
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _let_on(process: subprocess.Popen[bytes], reports: int) -> None:
    """Let it go on after this many reports."""
    assert process.stdin is not None
    process.stdin.write(b"\n" * reports)
    process.stdin.flush()


def _await_reports(process: subprocess.Popen[bytes], reports: int) -> None:
    """Until this many reports were read."""
    assert process.stdout is not None
    for _ in range(reports):
        line = process.stdout.readline()
        assert line == b"read\n", process.communicate()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill it and its workers, as a batch system does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


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
