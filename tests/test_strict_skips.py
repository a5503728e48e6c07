"""CI fails on a skip that nobody expected."""

import os
from pathlib import Path

import pytest

from tests.strict_skips import allowed, unexpected
from tests.support import ROOT, Result, mostly_nightly, python

pytestmark = pytest.mark.slow

SKIPS = """
import pytest

{module}

@pytest.mark.skipif(True, reason={reason!r})
def test_skipped():
    pass

def test_passes():
    pass
"""


def run(folder: Path, *options: str, ci: str = "") -> Result:
    words = ("-m", "pytest", "-p", "tests.strict_skips", "-c", os.devnull, "--rootdir", folder)
    own = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}
    return python(*words, *options, folder, env=own, cwd=folder)


@pytest.mark.parametrize("workers", mostly_nightly(["1", "0"]))
def test_an_unexpected_skip_fails_the_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_it.py").write_text(SKIPS.format(module="", reason="no such tool"))
    assert run(tmp_path, "-n", workers).code == 0
    for done in (run(tmp_path, "-n", workers, "--strict-skips"), run(tmp_path, ci="true")):
        assert done.code == 1
        assert "test_skipped: no such tool" in done.out


@pytest.mark.parametrize("workers", mostly_nightly(["1", "0"]))
def test_an_unexpected_skip_of_a_module_fails_the_run(tmp_path: Path, workers: str) -> None:
    module = 'pytest.importorskip("no_such_module_at_all")'
    (tmp_path / "test_it.py").write_text(SKIPS.format(module=module, reason=""))
    (tmp_path / "test_other.py").write_text("def test_passes(): pass\n")
    done = run(tmp_path, "-n", workers, "--strict-skips")
    assert done.code == 1
    assert "no_such_module_at_all" in done.out


def test_an_allowed_skip_passes(tmp_path: Path) -> None:
    reason = "the whole captures are not here: export_dirs"
    (tmp_path / "test_it.py").write_text(SKIPS.format(module="", reason=reason))
    assert run(tmp_path, "--strict-skips").code == 0


def test_patterns() -> None:
    patterns = allowed("# comment\n\n  no nsys*\n")
    assert patterns == ["no nsys*"]
    assert unexpected([("a", "no nsys here"), ("b", "no mpirun")], patterns) == ["b: no mpirun"]
