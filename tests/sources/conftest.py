"""The compiled page reader, or SQLite alone, for tests of what both must do."""

import pytest

from rankscope.sources.columns.sqlite_pages import loader


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
