"""Outside programs: killed at their limits with all they started, and with the caller."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankscope.util.bounded import KEPT_BYTES, Stopped, run_bounded

CHILDREN = "sleep 61 & sleep 61 & echo $! > started; wait"
AWAY = "setsid sh -c 'setsid sleep 61 & echo $! > started; wait' & sleep 61"
"""A grandchild in a session of its own."""

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_end(pid: int) -> None:
    limit = time.monotonic() + 5
    while running(pid):
        assert time.monotonic() < limit, "a child is left over"
        time.sleep(0.02)


def await_file(path: Path) -> int:
    limit = time.monotonic() + 30
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < limit
        time.sleep(0.02)
    return int(path.read_text())


def test_what_a_program_says_and_its_code() -> None:
    ended = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 3"], 60)
    assert (ended.code, ended.said) == (3, "out\nerr\n")
    assert run_bounded(["sh", "-c", "kill -9 $$"], 60).code == 128 + 9
    assert run_bounded(["/nowhere/nsys"], 60).code == 127


def test_output_without_end_is_bounded() -> None:
    ended = run_bounded(["sh", "-c", "head -c 30000000 /dev/zero; echo the end"], 60)
    assert len(ended.said) <= KEPT_BYTES
    assert ended.said.endswith("the end\n")


@pytest.mark.parametrize("children", [CHILDREN, pytest.param(AWAY, marks=LINUX)])
@pytest.mark.parametrize("why", ["time", "a check"])
def test_at_a_limit_all_of_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str, children: str
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = time.monotonic()
    with pytest.raises(Stopped, match="more than 1 s" if why == "time" else "full"):
        run_bounded(
            ["sh", "-c", children], 1 if why == "time" else 60,
            lambda: "full" if why == "a check" and Path("started").exists() else None,
        )  # fmt: skip
    assert time.monotonic() - begin < 20
    await_end(await_file(tmp_path / "started"))


@pytest.mark.parametrize("how", ["", pytest.param("setsid ", marks=LINUX)])
def test_children_that_outlive_the_program_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_bounded(["sh", "-c", f"{how}sleep 61 & echo $! > started"], 60).code == 0
    await_end(await_file(tmp_path / "started"))


@pytest.mark.parametrize("children", [CHILDREN, pytest.param(AWAY, marks=LINUX)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda each: each.name)
def test_it_ends_with_the_caller(tmp_path: Path, number: signal.Signals, children: str) -> None:
    code = "import sys; from rankscope.util.bounded import run_bounded; " \
        "run_bounded(['sh', '-c', sys.argv[1]], 60)"  # fmt: skip
    caller = subprocess.Popen([sys.executable, "-c", code, children], cwd=tmp_path)
    child = await_file(tmp_path / "started")
    assert running(child)
    os.kill(caller.pid, number)
    caller.wait()
    await_end(child)
