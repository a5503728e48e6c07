"""Fixtures of all tests: forged jobs, each made once, and the command line."""

import fcntl
import gc
import hashlib
import os
import pickle
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rankscope_cli.main import main
from rankscope_cli.start import GARBAGE_AFTER

import rankscope
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.util import memory
from tests.forge import forge, scene
from tests.support import SAMPLE, Cli, Forged, MakeForged, MakeStored, Result, Stored, copied, whole

pytest_plugins = ["tests.strict_skips"]

MADE = "TESTS_MADE"
"""Environment variable: a folder for what `made_once` makes, so that the next run finds it, too."""

UNTIL = "TESTS_UNTIL"
"""Environment variable: when CI has no more time (s since 1970)."""


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Look for garbage as seldom as the program does, and never among all tests: they stay."""
    gc.set_threshold(GARBAGE_AFTER)
    gc.collect()
    gc.freeze()
    # A process of many tests has the largest peak of them all, and reads as much as all of them.
    memory.WORTH_BYTES = 2**62
    os.environ.setdefault(loader.SWITCH, "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what compiles the reader: later tests find it, and no other worker compiles it."""
    items.sort(key=lambda item: item.path.name != "test_loader.py")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Begin no test that CI has no time for."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        pytest.skip("left for the night")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    """Hypothesis's summary imports it, and it looks at referrers, which frozen objects are not."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., object]:
    """`made_once(name, make)`: what `make(folder)` returned in the first worker that asked."""
    base = tmp_path_factory.getbasetemp()
    if MADE in os.environ:
        base = Path(os.environ[MADE])
    elif "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # of all workers

    def ask(name: str, make: Callable[[Path], object]) -> object:
        folder = base / hashlib.sha256(name.encode()).hexdigest()[:16]
        answer = folder / "answer.pickle"
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not answer.exists():
                shutil.rmtree(folder, ignore_errors=True)  # an attempt that failed
                folder.mkdir()
                answer.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(answer.read_bytes())

    return ask


@pytest.fixture(scope="session")
def forged(made_once: MakeForged) -> MakeForged:
    """`forged(scene, ranks=4, **parameters)`: a scene on disk; never change its files."""

    @cache
    def make(name: str, ranks: int = 4, **parameters: object) -> Forged:
        def write(folder: Path) -> Forged:
            reports = folder / "reports"
            return Forged(forge(job, reports), reports)

        job = scene(name, ranks=ranks, **parameters)
        return made_once(f"forged {job}", write)

    return make


@pytest.fixture
def reports(forged: MakeForged, tmp_path: Path) -> list[Path]:
    """Four whole reports, to change."""
    return copied(forged("plain", iterations=12).reports, tmp_path / "reports")


@pytest.fixture
def sample_reports(tmp_path: Path) -> list[Path]:
    """Those of the real capture `sample_reports/ddp_4ranks`, to change."""
    return copied(sorted(SAMPLE.glob("*.sqlite")), tmp_path / "reports")


@pytest.fixture(scope="session")
def stored(forged: MakeForged, made_once: Callable[..., Path]) -> MakeStored:
    """`stored(scene, ranks=4, **parameters)`: a scene, ingested; never change its files."""

    @cache
    def make(name: str, ranks: int = 4, **parameters: object) -> Stored:
        job = forged(name, ranks, **parameters)

        def write(folder: Path) -> Path:
            return whole(rankscope.ingest([job.folder], folder / "run.duckdb", jobs=1).db)

        db = made_once(f"stored {job.truth.job}", write)
        return Stored(job.folder, db, rankscope.open_run(db), job.truth)

    return make


@pytest.fixture
def db(stored: MakeStored, tmp_path: Path) -> Path:
    """A database to spoil."""
    path = tmp_path / "run.duckdb"
    path.write_bytes(stored("plain").db.read_bytes())
    return path


@pytest.fixture(scope="session")
def ingested(made_once: Callable[..., Path]) -> MakeStored:
    """`ingested(reports, **options)`: reports that nobody changes; never change the database."""

    def make(reports: Path, **options: object) -> Stored:
        def write(folder: Path) -> Path:
            db = folder / f"{reports.stem}.duckdb"
            return whole(rankscope.ingest([reports], db, **options).db)

        db = made_once(f"ingested {reports} {options}", write)
        return Stored(reports, db, rankscope.open_run(db))

    return make


@pytest.fixture(scope="session")
def sample(ingested: MakeStored) -> Stored:
    """The real capture of `sample_reports/ddp_4ranks`, ingested."""
    return ingested(SAMPLE)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """`cli("imbalance", "--db", path)`: the command line in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RANKSCOPE_DB", raising=False)

    def run(*arguments: object) -> Result:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(int(stopped.value.code or 0), out, err)

    return run
