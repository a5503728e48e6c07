"""Spoiled reports get clear answers; `python -m tests.bench.fuzz` tries 300 and more."""

import json
import subprocess
import sys

import pytest

from tests.support import ROOT, mostly_nightly

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("count", mostly_nightly([15, 60]))
def test_spoiled_reports_get_clear_answers(count: int) -> None:
    """In a process of its own: an engine that crashes or hangs takes it down, and is named."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.fuzz", str(count)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=200 + 20 * count,
    )
    last = done.stderr.splitlines()[-1:]
    assert done.returncode == 0, (done.stdout, last)
    *bad, summary = map(json.loads, done.stdout.splitlines())
    assert bad == []
    assert summary["exit 0"] > 0, "some damage does not matter"
    assert summary["exit 3"] > 0
