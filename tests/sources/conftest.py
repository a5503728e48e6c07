"""A report to spoil; the compiled page reader, or SQLite alone, for what both must do."""

from pathlib import Path

import pytest

from rankscope.sources.columns.sqlite_pages import loader
from tests.support import MakeForged, copied


@pytest.fixture
def report(forged: MakeForged, tmp_path: Path) -> Path:
    """Rank 1 of a job of four, to be changed."""
    return copied(forged("plain").reports[1:2], tmp_path, ["report_1.sqlite"])[0]


@pytest.fixture(params=["compiled", "SQLite alone"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which of them reads SQLite files, whatever their size."""
    monkeypatch.setenv(loader.SWITCH, "1" if request.param == "compiled" else "0")
    assert (loader.compiled() is not None) == (request.param == "compiled")
    return str(request.param)


@pytest.fixture
def compiled_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are read by it, in pieces."""
    monkeypatch.setenv(loader.SWITCH, "1")
