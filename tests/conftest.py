"""Fixtures of all tests: forged jobs, each made once, and the command line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rankscope_cli.main import main

import rankscope
from tests.forge import forge, scene
from tests.support import SAMPLE, Forged, Result, Stored

pytest_plugins = ["tests.strict_skips"]


@pytest.fixture(scope="session")
def forged(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Forged]:
    """`forged(scene, ranks=4, **parameters)`: a scene on disk; never change its files."""

    @cache
    def make(name: str, ranks: int = 4, **parameters: object) -> Forged:
        folder = tmp_path_factory.mktemp(name) / "reports"
        return Forged(forge(scene(name, ranks=ranks, **parameters), folder), folder)

    return make


@pytest.fixture(scope="session")
def stored(forged: Callable[..., Forged]) -> Callable[..., Stored]:
    """`stored(scene, ranks=4, **parameters)`: a scene, ingested; never change its files."""

    @cache
    def make(name: str, ranks: int = 4, **parameters: object) -> Stored:
        job = forged(name, ranks, **parameters)
        db = job.folder.parent / "run.duckdb"
        return Stored(job.folder, db, rankscope.ingest([job.folder], db), job.truth)

    return make


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """The real capture of `sample_reports/ddp_4ranks`, ingested."""
    db = tmp_path_factory.mktemp("sample") / "sample.duckdb"
    return Stored(SAMPLE, db, rankscope.ingest([SAMPLE], db))


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
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
