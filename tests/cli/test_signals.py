"""Signals, sent to real processes: the right exit code, no traceback, and no process left over."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forge import forge, scene
from tests.support import mostly_nightly, mostly_slow

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
GONE_S = 5.0
"""Seconds after which none of a command's processes may be left."""

MARK = "RANKSCOPE_TEST_MARK"
"""Environment variable by which the processes of one command are found."""

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
SOME = zip([*CODES, signal.SIGKILL], (False, True, True, False), strict=True)
OTHERS = zip([*CODES, signal.SIGKILL], (True, False, False, True), strict=True)
"""Signals, and whether the whole group of processes gets them."""

CAUGHT = 1 << signal.SIGTERM - 1
"""The bit of SIGTERM in a mask of signals."""


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    forge(scene("plain", ranks=8, iterations=12), folder)
    return folder


def start(profiles: Path, db: Path, *options: str, program: str = "") -> subprocess.Popen[bytes]:
    """An ingest with two workers in a session of its own."""
    command = ["-c", program] if program else ["-m", "rankscope"]
    return subprocess.Popen(
        [sys.executable, *command, "ingest", profiles, "--db", db, "--jobs", "2", *options],
        env=os.environ | {MARK: str(db)},
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def family(db: Path) -> list[int]:
    """The processes that a command started, itself included."""
    wanted, found = f"{MARK}={db}".encode(), []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if wanted in variables and state != "Z":
                found.append(int(folder.name))
    return found


def await_family(db: Path, count: int) -> None:
    limit = time.monotonic() + 60
    while len(family(db)) < count:
        assert time.monotonic() < limit, "no workers came"
        time.sleep(0.02)


def await_first_line(process: subprocess.Popen[bytes]) -> None:
    """Until Python itself has started, and rankscope has its handlers in place."""
    status = Path(f"/proc/{process.pid}/status")
    while not int(status.read_text().partition("SigCgt:\t")[2].split()[0], 16) & CAUGHT:
        time.sleep(0.001)


def assert_gone(db: Path) -> None:
    limit = time.monotonic() + GONE_S
    while left := family(db):
        assert time.monotonic() < limit, f"processes are left over: {left}"
        time.sleep(0.05)


def assert_clean(err: bytes) -> None:
    text = err.decode()
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text


@LINUX
@pytest.mark.parametrize(("number", "to_all"), mostly_nightly([*SOME, *OTHERS], 4))
def test_no_process_outlives_the_command(
    profiles: Path, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    for attempt in range(5):
        db = tmp_path / f"run_{attempt}.duckdb"
        process = start(profiles, db)
        await_family(db, 3)
        (os.killpg if to_all else os.kill)(process.pid, number)
        _, err = process.communicate(timeout=60)
        assert_gone(db)
        if process.returncode:  # else it had ended before
            break
    assert process.returncode == CODES.get(number, -number)
    if number in CODES:
        assert_clean(err)
        assert err.count(b"rankscope: error: ") == err.count(b"hint: ") == 1


WATCHING = """
import os, subprocess, sys, time
child = "import sys, time; from rankscope.util import lifetime; " \
    "lifetime._signal_at_parents_end = lambda: False; " \
    "lifetime.end_with_parent(int(sys.argv[1])); print(flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", child, str(os.getpid())])
time.sleep(60)
"""


@LINUX
def test_where_the_system_sends_no_signal_a_worker_looks_at_its_parent(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WATCHING],
        env=os.environ | {MARK: str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n", "the child watches"
    assert len(family(tmp_path)) == 2
    process.kill()
    process.wait()
    process.stdout.close()
    assert_gone(tmp_path)


@LINUX
@pytest.mark.parametrize("after", mostly_slow([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8], 2, 0))
def test_an_interrupt_at_any_moment(profiles: Path, tmp_path: Path, after: float) -> None:
    db = tmp_path / "run.duckdb"
    process = start(profiles, db)
    await_first_line(process)
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (0, 130), err
    assert_clean(err)
    assert_gone(db)


IMPORTING = """
import os, signal, sys
from rankscope_cli.start import main
def at_an_enum(frame, event, _):
    if frame.f_code.co_filename == enum.__file__ and "duckdb" in sys.modules:
        sys.setprofile(None)
        print("in DuckDB", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
import enum
sys.setprofile(at_an_enum)
main()
"""


def test_an_interrupt_while_a_compiled_module_is_imported(profiles: Path, tmp_path: Path) -> None:
    """DuckDB makes its enums with Python's own, and aborts where that raises."""
    process = start(profiles, tmp_path / "run.duckdb", program=IMPORTING)
    out, err = process.communicate(timeout=60)
    assert out == b"in DuckDB\n"
    assert process.returncode == 130, err
    assert err.count(b"rankscope: error: ") == err.count(b"hint: ") == 1
    assert_clean(err)


LATE = """
import atexit, os, signal, sys, time
sys.argv = ["rankscope", "explain", "work"]
atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(10)))
from rankscope_cli.start import main
main()
"""


def test_an_interrupt_after_the_last_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LATE], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 130
    assert b"work" in done.stdout
    assert_clean(done.stderr)


TWICE = """
import os, signal, sys, threading
import rankscope.api
def stuck(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    try:
        threading.Event().wait(60)
    finally:  # what does not end at the first signal
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)
import rankscope.ingestion.job
rankscope.ingestion.job.ingest_reports = stuck
sys.argv = ["rankscope", "ingest", "."]
from rankscope_cli.start import main
main()
"""


def test_the_second_signal_ends_what_the_first_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE], capture_output=True, check=False, timeout=30
    )
    assert done.returncode == 130
    assert done.stderr.count(b"rankscope: error: interrupted") == 1
    assert_clean(done.stderr)


def test_a_signal_that_is_ignored_on_purpose_stays_ignored(profiles: Path, tmp_path: Path) -> None:
    """As under nohup."""
    command: list[str | Path] = [
        "nohup",
        sys.executable,
        "-m",
        "rankscope",
        "ingest",
        profiles,
        "--jobs",
        "2",
    ]
    process = subprocess.Popen(
        [*command, "--db", tmp_path / "run.duckdb"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    for _ in range(10):
        time.sleep(0.1)
        process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
