"""What Windows and macOS lack is not needed: the same answers without it, and no traceback."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankscope
from rankscope.util import positional
from tests.support import SAMPLE, Cli, Result, Stored, mostly_nightly, python

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

ABSENT = """
import os, shutil, signal, sys
usage = shutil.disk_usage(".")
shutil.disk_usage = lambda path: usage  # Windows has it, by a call of its own
for name in ("pread", "preadv", "pwrite", "geteuid", "getuid", "killpg", "setsid", "fork",
             "sched_getaffinity", "getpgid", "statvfs"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGPIPE", "pthread_sigmask"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
real = open
def opened(file, *rest, **more):
    assert not str(file).startswith("/proc"), file
    return real(file, *rest, **more)
import builtins, io
builtins.open = io.open = opened
"""
"""Code that takes away what Windows does not have; Python's own modules cope without it."""

RUN = "sys.argv = ['rankscope', *{words}]; from rankscope_cli.start import main; main()"
RUN_EACH = """
import contextlib, json
from rankscope_cli.main import main
answers = []
for words in {commands}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as stopped:
            answers.append((int(stopped.code or 0), out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


def run(words: list[str], folder: Path, before: str = "import sys") -> Result:
    return python("-c", f"{before}\n{RUN.format(words=words)}", cwd=folder)


COMMANDS = [
    ["check", str(SAMPLE)],
    ["imbalance"],
    ["imbalance", "--format", "json"],
    ["pick-reports"],
    ["diff", "rankscope.duckdb", "rankscope.duckdb"],
    ["plot", "timeline"],
    ["report", "-o", "page.html"],
    ["export", "-o", "trace.json.gz"],
    ["fleet", "rankscope.duckdb"],
    ["explain", "wait"],
    ["capture", "slurm"],
    ["imbalance", "--db", "absent.duckdb"],
]


@pytest.mark.parametrize("jobs", mostly_nightly(["2", "1"]))
def test_reports_are_ingested_as_on_linux(tmp_path: Path, sample: Stored, jobs: str) -> None:
    done = run(["ingest", str(SAMPLE), "--jobs", jobs], tmp_path, ABSENT)
    assert done.code == 0, done.err
    assert "ranks 0-3 of 4" in done.out
    output = rankscope.open_run(tmp_path / "rankscope.duckdb")
    assert output.iterations().equals(sample.run.iterations())
    assert output.compare().verdict.sentence == sample.run.compare().verdict.sentence
    done = run(["imbalance"], tmp_path, ABSENT)
    assert done.code == 0, done.err
    assert done.out.startswith(sample.run.compare().verdict.sentence[:40])


def test_every_command_answers_as_on_linux(cli: Cli, tmp_path: Path, sample: Stored) -> None:
    """In one process: each starts with the same imports."""
    other = tmp_path / "other"
    other.mkdir()
    for folder in (tmp_path, other):
        shutil.copyfile(sample.db, folder / "rankscope.duckdb")
    done = python("-c", ABSENT + RUN_EACH.format(commands=COMMANDS), cwd=other, check=True)
    for words, (code, out, err) in zip(COMMANDS, json.loads(done.out), strict=True):
        expected = cli(*words)
        assert (code, out) == (expected.code, expected.out), (words, err)
        assert "Traceback" not in err


def test_an_export_by_nsys_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """nsys needs sessions and process groups, to be stopped with all that it starts."""
    [report] = SAMPLE.glob("report_rank_0.nsys-rep")
    nsys = tmp_path / "nsys"
    nsys.write_text("#!/bin/sh\nexit 0\n")
    nsys.chmod(0o755)
    copy = tmp_path / report.name
    copy.write_bytes(report.read_bytes())
    before = f"import os\nos.environ['RANKSCOPE_NSYS'] = {str(nsys)!r}\n{ABSENT}"
    run(["ingest", str(copy)], tmp_path, before).refused(
        5, "nsys cannot be run on this system", "nsys export -t sqlite"
    )


@pytest.fixture(params=[(), ("preadv",), ("pread", "preadv")])
def file(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """An open file of 1,000 bytes, on systems with fewer and fewer calls."""
    for name in request.param:
        monkeypatch.delattr(os, name, raising=False)
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(250)) * 4)
    descriptor = os.open(path, positional.OPEN_FLAGS)
    yield descriptor
    os.close(descriptor)


def test_bytes_are_read_at_a_place(file: int) -> None:
    assert positional.read_at(file, 3, 10) == bytes([10, 11, 12])
    assert positional.read_at(file, 10, 995) == bytes(range(245, 250))
    buffer = bytearray(5)
    assert positional.read_into(file, memoryview(buffer), 249) == 5
    assert bytes(buffer) == bytes([249, 0, 1, 2, 3])
    assert positional.read_into(file, memoryview(buffer), 998) == 2
