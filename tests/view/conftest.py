"""Fixtures of tests of the page that is served."""

from collections.abc import Iterator

import pytest

from tests.output.conftest import chromium
from tests.support import Stored
from tests.view.served import Served

__all__ = ["chromium", "served"]


@pytest.fixture(scope="module")
def served(sample: Stored) -> Iterator[Served]:
    """`rankscope view` of the sample, which ends without a word when it is told to."""
    running = Served(sample.db, "--quiet")
    yield running
    assert running.close() == (143, "")
