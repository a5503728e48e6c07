"""The windows of a job that all tests of a watch take in."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.forge import forge, scene
from tests.forge.job import Plant
from tests.support import edit
from tests.watch.arriving import HOUR_NS, RANKS, SLOW, Windows


@pytest.fixture(scope="session")
def windows(made_once: Callable[..., Windows]) -> Windows:
    """The reports of three windows of a job, an hour apart; a rank is slow in all but the first."""
    return made_once("windows", _windows)


def _windows(base: Path) -> Windows:
    made = []
    for number in range(3):
        plants = (Plant("persistent", "device", (SLOW,), factor=1.3),) if number else ()
        job = replace(scene("plain", ranks=RANKS, iterations=8, seed=number), plants=plants)
        folder = base / str(number)
        forge(job, folder)
        reports = sorted(folder.glob("*.sqlite"))
        for report in reports:
            start = "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + ?"
            edit(report, start, number * HOUR_NS)
        made.append(reports)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "profiles"
    path.mkdir()
    return path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Of the first window; it is not there yet."""
    return tmp_path / "run.duckdb"
