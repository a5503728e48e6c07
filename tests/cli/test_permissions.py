"""What may not be read or entered: one clear line, the same from `check` and `ingest`."""

import os
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.support import SAMPLE, Cli, Result, copied, mostly_nightly, ran

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

CAPABILITIES = "-dac_override,-dac_read_search"
DROPPED = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
"""A command in front of another one, after which root may not read what is closed either."""


@pytest.fixture
def bound(tmp_path: Path) -> Cli:
    """The command line in a process that may not read what is closed."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may read all, and setpriv is not installed")

    def run(*arguments: object, cache: Path = tmp_path / "cache") -> Result:
        command = [*(DROPPED if os.geteuid() == 0 else []), sys.executable, "-m", "rankscope"]
        own = os.environ | {"XDG_CACHE_HOME": str(cache)}
        return ran(*command, *arguments, cwd=tmp_path, env=own, timeout=120)

    return run


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    copied(sorted(SAMPLE.glob("*.sqlite")), folder / "inner")
    return folder


CLOSED: dict[str, Callable[[Path], Path]] = {
    "a report": lambda folder: folder / "inner" / "report_rank_1.sqlite",
    "a folder": lambda folder: folder / "inner",
    "the folder": lambda folder: folder,
}


ACCESS = [("a report", 0o000), ("a folder", 0o444), ("the folder", 0o111)]
ACCESS += [each for each in product(CLOSED, [0o000, 0o444, 0o111]) if each not in ACCESS]


@pytest.mark.parametrize(("what", "mode"), mostly_nightly(ACCESS, 3))
def test_reports_that_may_not_be_read(bound: Cli, reports: Path, what: str, mode: int) -> None:
    closed = CLOSED[what](reports)
    closed.chmod(mode)
    try:
        checked = bound("check", reports, "--format", "json")
        ingested = bound("ingest", reports)
    finally:
        closed.chmod(0o755)
    for result in (checked, ingested):
        assert "Traceback" not in result.err, result.err
    if closed.is_file() and mode & 0o444:
        assert checked.code == ingested.code == 0, "that may be read"
        return
    ingested.refused(3, "ermission")
    assert checked.code == 3, checked.err
    assert "ermission denied" in checked.out + checked.err
    problem = ingested.err.splitlines()[0].rpartition(": ")[2]
    assert problem in checked.out + checked.err, "check and ingest say the same"


@pytest.mark.parametrize("mode", mostly_nightly([0o555, 0o444, 0o000]), ids=oct)
def test_a_database_in_a_closed_folder(bound: Cli, reports: Path, mode: int) -> None:
    folder = reports.parent / "database"
    folder.mkdir()
    folder.chmod(mode)
    for command in (("ingest", reports), ("imbalance",), ("ingest", reports, "--rebuild")):
        bound(*command, "--db", folder / "run.duckdb").refused(4, "run.duckdb")


@pytest.mark.parametrize("mode", mostly_nightly([0o555, 0o000]), ids=oct)
def test_a_cache_that_is_closed_costs_time_only(bound: Cli, reports: Path, mode: int) -> None:
    cache = reports.parent / "closed"
    cache.mkdir(mode=mode)
    result = bound("check", reports, cache=cache)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
