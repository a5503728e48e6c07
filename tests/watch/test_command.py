"""The command `watch`: its lines, the program it tells, the file for node_exporter, signals."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest

from rankscope.watch.notify import tell
from tests.docs.test_json_schema import fits
from tests.support import PROMTOOL, Cli, Result, assert_exported, mostly_nightly, python, renamed
from tests.watch.arriving import SLOW, Windows, announced, arrive, watcher

TOLD = """
import json, os, sys
own = {key: value for key, value in os.environ.items() if key.startswith("RANKSCOPE_")}
told = {"arguments": sys.argv[1:], "own": own, "document": json.load(sys.stdin)}
with open("told.jsonl", "a") as file:
    print(json.dumps(told), file=file)
print("this is for stderr")
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", mostly_nightly([2, 3]))
def test_a_program_is_notified(cli: Cli, folder: Path, windows: Windows, count: int) -> None:
    for number, reports in enumerate(windows[:count]):
        for report in arrive(reports, folder, f"{number}_"):
            renamed(report, "$(touch pwned)`touch pwned`")
    Path("tell.py").write_text(TOLD)
    command = f"{sys.executable} tell.py '$HOME' ';'"
    given = ("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--db", "run.duckdb")
    done = cli(*given, "--exec", command, "--format", "json")
    assert done.code == 0, done.err
    printed = [json.loads(line) for line in done.out.splitlines()]
    expected = ["balanced", "persistent", "persistent"][:count]
    assert [each["verdict"]["class"] for each in printed] == expected
    assert {fits(each) for each in printed} == {"watch"}
    output = [json.loads(line) for line in Path("told.jsonl").read_text().splitlines()]
    assert [each["document"] for each in output] == [each for each in printed if each["changed"]]
    assert len(output) == 2
    assert output[1]["arguments"] == ["$HOME", ";"]
    assert output[1]["own"]["RANKSCOPE_VERDICT"] == "persistent"
    assert output[1]["own"]["RANKSCOPE_RANKS"] == str(SLOW)
    assert output[1]["own"]["RANKSCOPE_DB"] == str(Path("run-2.duckdb").resolve())
    assert "$(touch pwned)" in output[1]["own"]["RANKSCOPE_SENTENCE"]
    assert not list(Path().rglob("pwned"))
    again = cli(*given, "--exec", command)
    assert (again.code, again.out) == (0, "")
    assert len(Path("told.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_failing_program_is_a_warning(cli: Cli, folder: Path, windows: Windows) -> None:
    arrive(windows[0], folder)
    done = cli("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--exec", "false")
    assert done.code == 0
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ window 1 "
        r"\(rankscope\.duckdb, 3 ranks\): balanced: over .*\n",
        done.out,
    )
    assert "rankscope: warning: --exec false: exit code 1" in done.err


@PROMTOOL
@pytest.mark.slow
def test_the_file_for_node_exporter(cli: Cli, folder: Path, windows: Windows) -> None:
    given = ("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--prometheus", "x.prom")
    assert cli(*given).code == 0
    assert "rankscope_watch_windows 0\n" in Path("x.prom").read_text()
    for report in arrive(windows[1], folder):
        renamed(report, 'n"\\\n0')
    assert cli(*given).code == 0
    first = Path("x.prom").read_text()
    assert_exported(Path("x.prom"))
    assert cli(*given).code == 0
    assert Path("x.prom").read_text() == first, "the verdict is known after a restart"
    lines = first.splitlines()
    assert all(re.match(r"# |rankscope_watch_\w+(\{.*\})? [0-9.e+-]+$", line) for line in lines)
    assert 'rankscope_watch_verdict{class="persistent"} 1' in lines
    assert 'rankscope_watch_verdict{class="balanced"} 0' in lines
    assert any(line.startswith(f'rankscope_watch_slow_rank{{rank="{SLOW}",') for line in lines)
    declared = re.findall(r"^# TYPE (\S+) gauge$", first, re.MULTILINE)
    assert {re.split(r"[{ ]", line)[0] for line in lines if line[0] != "#"} == {*declared}
    start = float(
        re.findall(r"^rankscope_watch_window_start_timestamp_seconds (.+)$", first, re.M)[0]
    )
    with duckdb.connect("rankscope.duckdb", read_only=True) as connection:
        [truth] = connection.execute("select min(utc_start_ns) from reports").fetchall()
    assert float(start) == pytest.approx(truth[0] / 1e9)


def test_wrong_usage(cli: Cli, folder: Path) -> None:
    cli("watch", "nowhere", "--once").refused(2, "nowhere", "no folder")
    cli("watch", folder, "--once", "--iteration", "(").refused(2, "(")
    cli("watch", folder, "--once", "--exec", "no-such-program -x").refused(2, "no-such-program")
    cli("watch", folder, "--once", "--exec", "echo 'x").refused(2, "quot")
    cli("watch", folder, "--once", "--format", "csv").refused(2, "csv")
    cli("watch", folder, "--once", "--prometheus", "no/x.prom").refused(2, "no/x.prom")
    cli("watch", folder, "--once", "--db", "no/run.duckdb").refused(2, "no/run.duckdb")
    Path("bad.duckdb").write_text("nothing " * 1000)
    cli("watch", folder, "--once", "--db", "bad.duckdb").refused(4, "bad.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it(
    folder: Path, tmp_path: Path, windows: Windows, number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "rankscope", "watch", folder),
            *("--settle", "0", "--interval", "0.1", "--prometheus", "x.prom"),
        ],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    killer = threading.Timer(60, process.kill)
    killer.start()
    arrive(windows[0], folder)
    assert "balanced" in process.stdout.readline(), "a line comes at once"
    metrics = tmp_path / "x.prom"
    while not (metrics.exists() and "rankscope_watch_windows 1" in metrics.read_text()):
        assert process.poll() is None, "it notes what it announced, then writes the file"
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    killer.cancel()
    assert (out, process.returncode) == ("", code)
    assert "Traceback" not in err
    assert "error" not in err, "Ctrl-C ends it, as it says at its start"
    words = ("watch", folder, "--settle", "0", "--once")
    assert python("-m", "rankscope", *words, cwd=tmp_path) == Result(0, "", "")


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(folder: Path, tmp_path: Path, windows: Windows) -> None:
    arrive(windows[0], folder)
    [first] = announced(watcher(folder, tmp_path / "run.duckdb"))
    begin = time.monotonic()
    [warning] = tell(["sh", "-c", "sleep 60 & sleep 60"], first, limit_s=0.5)
    assert "still running after 0.5 s" in warning.message
    assert time.monotonic() - begin < 30
