"""The compiled page reader, whatever the size of a report."""

import os

import pytest

from rankscope.sources.columns.sqlite_pages import loader


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use it always; as numba runs it where it checks bounds, which machine code in C does not."""
    monkeypatch.setenv(loader.SWITCH, "1")
    if os.environ.get("NUMBA_BOUNDSCHECK") == "1":
        from rankscope.sources.columns.sqlite_pages.records import decode

        monkeypatch.setattr(loader, "loaded", lambda **_: decode)
