"""The installed command, as a user's shell runs it."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import rankscope
from tests.support import SAMPLE, Result, mostly_slow, ran

SCRIPT = shutil.which("rankscope", path=str(Path(sys.executable).parent))


def run(*arguments: object, cwd: Path, module: bool = False, **environment: str) -> Result:
    if not module and SCRIPT is None:
        pytest.skip("the console script is not installed beside this Python")
    program = [sys.executable, "-m", "rankscope"] if module else [str(SCRIPT)]
    return ran(*program, *map(str, arguments), cwd=cwd, env={**os.environ, **environment})


def test_errors_have_two_lines_and_a_code(tmp_path: Path) -> None:
    for arguments, code in ((("imbalance",), 4), (("ingest", "nowhere"), 2), (("nonsense",), 2)):
        output = run(*arguments, cwd=tmp_path)
        assert output.code == code
        assert output.out == ""
        error, hint = output.err.splitlines()
        assert error.startswith("rankscope: error: ")
        assert hint.startswith("hint: ")


@pytest.mark.parametrize("module", mostly_slow([False, True]))
def test_version_and_help(tmp_path: Path, module: bool) -> None:
    output = run("--version", cwd=tmp_path, module=module)
    assert (output.code, output.out) == (0, f"rankscope {rankscope.__version__}\n")
    output = run("--help", cwd=tmp_path, module=module, NO_COLOR="1")
    assert output.code == 0
    assert all(name in output.out for name in ("ingest", "imbalance", "pick-reports", "report"))


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    if SCRIPT is None:
        pytest.skip("the console script is not installed beside this Python")
    run("ingest", SAMPLE, cwd=tmp_path)
    command = f"'{SCRIPT}' imbalance --by iteration --format json | head -c 10"
    output = ran("bash", "-o", "pipefail", "-c", command, cwd=tmp_path)
    assert "Traceback" not in output.err
    assert "rror" not in output.err
    assert len(output.out) == 10


@pytest.mark.slow
def test_several_processes_leave_no_trace_behind(tmp_path: Path) -> None:
    """Workers start clean: no warning, no double work, and the main module is not run again."""
    output = run("ingest", SAMPLE, "--jobs", 2, cwd=tmp_path)
    assert (output.code, output.err) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["rankscope.duckdb"]
