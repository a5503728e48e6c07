"""What macOS lacks is not needed: the same answers without it, and no traceback."""

import json
import shutil
from pathlib import Path

import pytest

import rankscope
from tests.support import SAMPLE, Cli, Result, Stored, mostly_nightly, python

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

ABSENT = "import io, os, sys\ndel os.sched_getaffinity\n"
"""Code that takes away what macOS does not have."""

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


def run(words: list[str], folder: Path) -> Result:
    return python("-c", ABSENT + RUN.format(words=words), cwd=folder)


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
    done = run(["ingest", str(SAMPLE), "--jobs", jobs], tmp_path)
    assert done.code == 0, done.err
    assert "ranks 0-3 of 4" in done.out
    output = rankscope.open_run(tmp_path / "rankscope.duckdb")
    assert output.iterations().equals(sample.run.iterations())
    assert output.compare().verdict.sentence == sample.run.compare().verdict.sentence
    done = run(["imbalance"], tmp_path)
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
