"""Two ingests at once into one new database: what ends well is stored; the other names who writes.

DuckDB lets one process write. The other one waits a little, and then has stored nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

import rankscope
from tests.support import MakeForged, copied, mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs


@pytest.mark.parametrize("attempt", mostly_nightly(range(15)))
@pytest.mark.parametrize("shared", [False, True], ids=["other reports", "the same reports"])
def test_two_ingests_at_once(
    forged: MakeForged, tmp_path: Path, shared: bool, attempt: int
) -> None:
    reports = forged("plain", iterations=12).reports
    copied(reports[:2], tmp_path / "one")
    other = tmp_path / "one" if shared else tmp_path / "two"
    copied(reports[:2] if shared else reports[2:], other)
    db = tmp_path / "run.duckdb"
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "rankscope", "ingest", folder, "--db", db],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for folder in (tmp_path / "one", other)
    ]  # fmt: skip
    errors = [process.communicate(timeout=120)[1] for process in both]
    codes = [process.returncode for process in both]
    assert 0 in codes, errors
    assert {*codes} <= {0, 4}, errors
    assert all("Traceback" not in text and "damaged" not in text for text in errors), errors
    failed = [
        (text, other) for text, code, other in zip(errors, codes, both[::-1], strict=True) if code
    ]
    assert all(
        f"in use by another process (process {each.pid})" in text for text, each in failed
    ), errors
    stored = set(rankscope.open_run(db).sql("select rank from ranks")["rank"])
    expected = [{0, 1}, {0, 1} if shared else {2, 3}]
    ended_well = (ranks for ranks, code in zip(expected, codes, strict=True) if code == 0)
    assert stored == set().union(*ended_well)
    assert not [*tmp_path.glob(".run*"), *tmp_path.glob("*.wal")]
