"""Small limits of the shell end a command with one line, and blame no file."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rankscope_cli import limits

from tests.support import SAMPLE, Result, Stored, mostly_nightly, ran

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

ENOUGH = 3_000_000
"""Address space, kB, with which each command works here."""

REPORT = min(SAMPLE.glob("*.sqlite"))
COMMANDS = {
    "scrub": ("scrub", REPORT, "-o", "s.sqlite"),
    "workers": ("ingest", SAMPLE, "--db", "new.duckdb", "--jobs", "2"),
    "ingest": ("ingest", SAMPLE, "--db", "new.duckdb"),
    "check": ("check", SAMPLE),
    "imbalance": ("imbalance", "--db", "run.duckdb"),
    "pick-reports": ("pick-reports", "--db", "run.duckdb"),
    "plot": ("plot", "timeline", "--db", "run.duckdb", "-o", "t.png"),
    "report": ("report", "--db", "run.duckdb", "-o", "r.html"),
    "export": ("export", "--db", "run.duckdb", "-o", "p.json"),
    "diff": ("diff", "run.duckdb", "two.duckdb"),
    "fleet": ("fleet", "run.duckdb", "two.duckdb"),
    "watch": ("watch", SAMPLE, "--once", "--settle", "0", "--db", "w.duckdb"),
    "explain": ("explain", "work"),
    "capture": ("capture", "torchrun"),
}


def limited(folder: Path, limit: str, *words: object) -> Result:
    """What a command does under a limit, as `-n 64`."""
    command = ["sh", "-c", f'ulimit -c 0; ulimit {limit}; exec "$@"', "sh", sys.executable, "-m"]
    return ran(*command, "rankscope", *map(str, words), cwd=folder, timeout=120)


@pytest.fixture
def folder(sample: Stored, tmp_path: Path) -> Path:
    shutil.copy(sample.db, tmp_path / "run.duckdb")
    shutil.copy(sample.db, tmp_path / "two.duckdb")
    return tmp_path


@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, 3))
def test_few_descriptors(folder: Path, name: str) -> None:
    before = {*folder.iterdir()}
    if name != "capture":  # opens next to nothing
        for most in (6, limits.LEAST_DESCRIPTORS - 1):
            limited(folder, f"-n {most}", *COMMANDS[name]).refused(5, f"is {most} (ulimit -n)")
        assert {*folder.iterdir()} == before
    enough = limited(folder, f"-n {limits.LEAST_DESCRIPTORS}", *COMMANDS[name])
    assert enough.code == 0, enough.err


def test_more_workers_than_descriptors(folder: Path) -> None:
    for jobs in (4, 16):
        many = ("ingest", *([SAMPLE] * jobs), "--jobs", jobs, "--db", "new.duckdb")
        output = limited(folder, f"-n {limits.LEAST_DESCRIPTORS}", *many)
        if output.code:
            output.refused(5, "too many files are open", "--jobs 1")


def test_descriptors_are_raised_where_that_is_allowed(folder: Path) -> None:
    output = limited(folder, "-S -n 8", *COMMANDS["workers"])
    assert output.code == 0, output.err


@pytest.mark.parametrize("name", mostly_nightly(COMMANDS, 3))
def test_little_memory(folder: Path, name: str) -> None:
    before = {*folder.iterdir()}
    for kilobytes in (400_000, 1_400_000):
        output = limited(folder, f"-v {kilobytes}", *COMMANDS[name])
        if name in limits.NEED_LITTLE:
            assert output.code == 0, output.err
        else:
            output.refused(5, "the memory is not enough", "(ulimit -v)")
            assert {*folder.iterdir()} == before
    enough = limited(folder, f"-v {ENOUGH}", *COMMANDS[name])
    assert enough.code == 0, enough.err


@pytest.mark.parametrize("name", mostly_nightly(["imbalance", *COMMANDS], 1))
def test_no_limit_between_blames_a_file_or_hangs(folder: Path, name: str) -> None:
    """Data tells what is enough: an answer, or one line about the memory."""
    least = limits.LEAST_BYTES // 1000
    codes = set()
    for kilobytes in range(least, ENOUGH, (ENOUGH - least) // 7):
        output = limited(folder, f"-v {kilobytes}", *COMMANDS[name])
        codes.add(output.code)
        assert output.code in (0, 5), output.err
        assert "Traceback" not in output.err
        assert "damaged" not in output.err
        if output.code:  # an answer may have been printed before
            errors = [each for each in output.err.splitlines() if "rankscope: error: " in each]
            assert len(errors) == 1, output.err
            assert "the memory is not enough" in errors[0]
    assert 0 in codes


WORKING = """
import os, resource, signal, sys, time
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, (4 * 10**9, 4 * 10**9))
import rankscope_cli.commands.check
def check():
    import polars as pl
    exec(os.environ["WORK"])
rankscope_cli.commands.check.check = check
sys.argv = ["rankscope", "check"]
from rankscope_cli.start import main
main()
"""


def working(work: str) -> subprocess.Popen[str]:
    """A command under a limit of memory, and what it does."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKING],
        env=os.environ | {"WORK": work}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    "work",
    [
        "pl.Series([0], dtype=pl.Int64).new_from_index(0, 2 * 10**9)",  # aborts
        "bytearray(8 * 10**9)",
        "os.abort()",
        "import numpy; numpy.zeros(10**9)",
        "import duckdb; duckdb.connect().sql(\"set memory_limit='1MB'; "
        'create table t as select range a, random() b from range(10000000)")',
        "import duckdb\ntry: raise duckdb.OutOfMemoryException('no more')\n"
        "except duckdb.Error as error: raise ValueError('the file is damaged') from error",
        "raise pl.exceptions.PanicException('LazyLock instance has previously been poisoned')",
        "import threading; threading.stack_size(2**30)\n"
        "for _ in range(9): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
        "import io\nfrom PIL import Image\nImage.init()\n"  # room for Pillow, not for zlib
        "image, held, last, size = Image.new('L', (9, 9)), [], bytearray(10**5), 2**26\n"
        "while size > 2**12:\n    try: held.append(bytearray(size))\n"
        "    except MemoryError: size //= 2\n"
        "del last\ntry: image.save(io.BytesIO(), 'png')\nfinally: del held",
    ],
)
def test_memory_that_ends_in_the_middle_is_one_line(work: str) -> None:
    out, err = working(work).communicate(timeout=120)
    said = [line for line in err.splitlines() if line.startswith(("rankscope: error:", "hint: "))]
    assert len(said) == 2, err
    assert "the memory is not enough" in said[0]
    assert "Traceback" not in err
    assert out == ""


def test_no_trace_of_rust_is_written_where_memory_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes memory; where that fails, the process waits for itself for ever."""
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    out, _ = working("print(os.environ['RUST_BACKTRACE'])").communicate(timeout=60)
    assert out == "0\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
def test_the_process_that_works_ends_with_the_one_that_was_started(number: signal.Signals) -> None:
    process = working("print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    assert worker != process.pid
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err.count("rankscope: error: ") == 1
    killed = working("print(os.getpid(), flush=True); time.sleep(60)")
    assert killed.stdout is not None
    worker = int(killed.stdout.readline())
    killed.kill()
    killed.communicate(timeout=60)
    limit = time.monotonic() + 5
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_its_exit_code_is_passed_on() -> None:
    for code, work in ((0, "pass"), (3, "import typer; raise typer.Exit(3)")):
        process = working(work)
        process.communicate(timeout=60)
        assert process.returncode == code
