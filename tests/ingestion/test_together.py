"""Two ingests at once into one new database: both reports' ranks are kept, or one says "in use"."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import rankscope
from tests.support import Forged, copied, mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs


@pytest.mark.parametrize("attempt", mostly_nightly(range(15)))
@pytest.mark.parametrize("shared", [False, True], ids=["other reports", "the same reports"])
def test_two_ingests_at_once(
    forged: Callable[..., Forged], tmp_path: Path, shared: bool, attempt: int
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
    assert all("in use" in text for text, code in zip(errors, codes, strict=True) if code), errors
    stored = set(rankscope.open_run(db).sql("select rank from ranks")["rank"])
    expected = [{0, 1}, {0, 1} if shared else {2, 3}]
    # On a slow machine one may have stored its reports before the other one locks it out.
    assert stored >= set().union(
        *(ranks for ranks, code in zip(expected, codes, strict=True) if code == 0)
    )
    assert stored in (expected[0], expected[1], expected[0] | expected[1])
    assert not [*tmp_path.glob(".run*"), *tmp_path.glob("*.wal")]
