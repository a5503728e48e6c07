"""`--verbose`: the library's log on stderr."""

import logging

import pytest
from rankscope_cli import console

from rankscope.api import Run
from tests.support import Cli, Stored

LOGGER = logging.getLogger("rankscope.compare")


@pytest.fixture
def logging_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that logs while a run is compared."""
    compare = Run.compare

    def logged(self: Run, *arguments: object, **options: object) -> object:
        LOGGER.debug("a detail")
        LOGGER.info("clock %s: \x1b[31m%s", "gpu", "a reason")
        return compare(self, *arguments, **options)

    monkeypatch.setattr(Run, "compare", logged)


@pytest.mark.usefixtures("logging_library")
def test_verbose_shows_the_log_on_stderr(cli: Cli, sample: Stored) -> None:
    said = cli("imbalance", "--db", sample.db, "--verbose")
    assert said.code == 0
    lines = [line for line in said.err.splitlines() if "a reason" in line]
    assert len(lines) == 1
    assert lines[0].startswith("rankscope: clock gpu: ")
    assert "\x1b" not in said.err, "names in log records control no terminal"
    assert "a detail" not in said.err
    assert "a reason" not in said.out
    quiet = cli("imbalance", "--db", sample.db)
    assert "a reason" not in quiet.err, "without the option, and after it, nothing is shown"


def test_the_log_leaves_the_logger_as_it_was(cli: Cli, sample: Stored) -> None:
    logger = logging.getLogger(console.LOGGER)
    before = (logger.level, [*logger.handlers])
    assert cli("imbalance", "--db", sample.db, "--verbose").code == 0
    assert cli("imbalance", "--db", "missing.duckdb", "--verbose").code == 4
    assert (logger.level, [*logger.handlers]) == before


@pytest.mark.usefixtures("logging_library")
def test_data_on_stdout_stays_the_same(cli: Cli, sample: Stored) -> None:
    plain = cli("imbalance", "--db", sample.db, "--format", "json")
    verbose = cli("imbalance", "--db", sample.db, "--format", "json", "-v")
    assert verbose.out == plain.out
