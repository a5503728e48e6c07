"""Reports that arrive one after the other, in windows, half-written, again after a restart."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import rankscope
from rankscope.ingestion import preflight
from rankscope.ingestion.runs import Capture
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.watch.arrivals import OLD_S
from rankscope.watch.watcher import Announcement, Watcher, WatchOptions
from rankscope.watch.windows import Windows
from tests.docs.test_json_schema import fits
from tests.forge import forge, scene
from tests.forge.job import Plant
from tests.support import Result, edit, mostly_slow

Cli = Callable[..., Result]

RANKS = 3
SLOW = 2
HOUR_NS = 3_600 * 10**9


@pytest.fixture(scope="session")
def windows(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """The reports of three windows of a job, an hour apart; a rank is slow in all but the first."""
    made = []
    for number in range(3):
        plants = (Plant("persistent", "device", (SLOW,), factor=1.3),) if number else ()
        job = replace(scene("plain", ranks=RANKS, iterations=8, seed=number), plants=plants)
        folder = tmp_path_factory.mktemp("window")
        forge(job, folder)
        reports = sorted(folder.glob("*.sqlite"))
        for report in reports:
            start = "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + ?"
            edit(report, start, number * HOUR_NS)
        made.append(reports)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "profiles"
    path.mkdir()
    return path


def arrive(reports: list[Path], folder: Path, prefix: str = "") -> list[Path]:
    """Copies of reports in a folder, with the present time."""
    return [Path(shutil.copyfile(each, folder / f"{prefix}{each.name}")) for each in reports]


def watcher(folder: Path, db: Path, settle_s: float = 0, patience_s: float = 300) -> Watcher:
    return Watcher(folder, db, WatchOptions(ShapingOptions(), 1, settle_s, patience_s))


def announced(watch: Watcher, **options: bool) -> list[Announcement]:
    """What a look announces; it brings no warning."""
    poll = watch.poll(**options)
    assert poll.problems == ()
    for each in poll.announcements:
        watch.announced(each)
    return [*poll.announcements]


def classes(found: list[Announcement]) -> list[tuple[int, str, bool]]:
    """Window, class, and whether it changed."""
    return [(each.window, each.comparison.verdict.kind.value, each.changed) for each in found]


def test_reports_come_one_after_the_other(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    assert announced(watch) == []
    assert not db.exists()
    for report in windows[0][:-1]:
        arrive([report], folder)
        assert announced(watch) == [], "the window is not complete"
    arrive(windows[0][-1:], folder)
    [first] = announced(watch)
    assert classes([first]) == [(1, "balanced", True)]
    assert first.comparison.facts.ranks == (0, 1, 2)
    assert announced(watch) == []
    assert announced(watcher(folder, db)) == [], "known after a restart"


def test_a_half_written_report_is_not_read(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    whole = windows[1][SLOW].read_bytes()
    arrive(windows[1][:SLOW], folder)
    part = folder / windows[1][SLOW].name
    part.write_bytes(whole[: len(whole) // 2])
    slow = watcher(folder, tmp_path / "patient.duckdb", settle_s=60)
    poll = slow.poll()
    assert (poll.taken, poll.growing, poll.problems) == (0, RANKS, ())
    hasty = watcher(folder, tmp_path / "hasty.duckdb")
    poll = hasty.poll()
    assert poll.taken == SLOW
    [warning] = poll.problems
    assert part.name in warning.message
    assert hasty.failed == 1
    assert announced(hasty) == [], "it is warned of once"
    part.write_bytes(whole)
    assert classes(announced(hasty)) == [(1, "persistent", True)]
    assert hasty.failed == 0


def test_a_report_is_complete_when_it_rests(
    folder: Path, tmp_path: Path, windows: list[list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("rankscope.watch.arrivals.time.monotonic", lambda: now)
    [report] = arrive(windows[0][:1], folder)
    watch = watcher(folder, tmp_path / "run.duckdb", settle_s=10)
    assert watch.poll().growing == 1
    now += 9
    assert watch.poll().growing == 1
    with report.open("ab") as file:
        file.write(b"\0" * 4096)
    now += 9
    assert watch.poll().growing == 1, "it changed meanwhile"
    now += 10
    assert watch.poll().growing == 0
    old = time.time() - OLD_S - 11
    os.utime(report, (old, old))
    again = watcher(folder, tmp_path / "again.duckdb", settle_s=10)
    assert again.poll().growing == 0, "old files need no second look"


@pytest.mark.slow
def test_each_window_has_a_database(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert classes(announced(watch)) == [(1, "balanced", True)]
    mixed = arrive(windows[1], folder, "b_")[:-1] + arrive(windows[2], folder, "c_")
    (folder / f"b_{windows[1][-1].name}").unlink()
    assert classes(announced(watch)) == [(3, "persistent", True)], "2 waits for its last rank"
    arrive(windows[1][-1:], folder, "b_")
    assert classes(announced(watch)) == [(2, "persistent", True)]
    assert announced(watcher(folder, db)) == []
    for number, reports in zip((1, 2, 3), windows, strict=True):
        path = db.with_stem(f"run-{number}") if number > 1 else db
        run = rankscope.open_run(path)
        assert run.tables.ranks["rank"].to_list() == [0, 1, 2]
        assert len({*run.tables.ranks["path"]}) == len(reports)
    assert len(mixed) == 5
    assert len([*tmp_path.glob("*.duckdb")]) == 3


@pytest.mark.slow
def test_reports_that_are_overwritten_each_hour(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    found = []
    for reports in windows:
        for report in reports:
            arrive([report], folder)
            found += announced(watch)
    assert classes(found) == [
        (1, "balanced", True),
        (2, "persistent", True),
        (3, "persistent", False),
    ]
    assert [each.previous is None for each in found] == [True, False, False]
    assert sorted(each.name for each in tmp_path.glob("*.duckdb")) == [
        "run-2.duckdb", "run-3.duckdb", "run.duckdb",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_window_without_all_ranks_is_compared_in_the_end(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    arrive(windows[1][1:], folder)
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    assert announced(watch) == []
    assert announced(watcher(folder, db), once=True) == []
    poll = watcher(folder, db).poll(once=True)
    assert poll.waiting == ("window 1 has 2 of 3 ranks: its verdict waits for more",)
    for report in folder.iterdir():
        old = time.time() - 400
        os.utime(report, (old, old))
    late = announced(watcher(folder, db), once=True)
    assert [each.comparison.facts.ranks for each in late] == [(1, 2)]
    arrive(windows[1][:1], folder)
    complete = watcher(folder, db)
    assert [each.window for each in announced(complete)] in ([], [1]), "if it changed"
    latest = complete.latest()
    assert latest is not None
    assert latest[1].verdict.ranks == (SLOW,)
    assert latest[1].facts.ranks == (0, 1, 2)


@pytest.mark.slow
def test_an_export_beside_its_report_is_no_other_window(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    watch = watcher(folder, tmp_path / "run.duckdb")
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    arrive(windows[0], folder, "copy_")
    assert announced(watch) == []
    assert len([*watch.windows]) == 1


@pytest.mark.slow
def test_a_database_in_use_is_waited_for(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    program = (
        "import duckdb, sys, time\n"
        f"connection = duckdb.connect({str(db)!r})\n"
        "print('held', flush=True)\n"
        "time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        arrive(windows[1], folder)
        again = watcher(folder, db)
        [warning] = again.poll().problems
        assert "in use" in warning.message
        assert again.poll().problems == ()
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()
    assert classes(announced(again)) == [(2, "persistent", True)]


def test_a_report_that_vanishes_is_a_warning(
    folder: Path, tmp_path: Path, windows: list[list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    [gone] = arrive(windows[0][:1], folder)
    captures = preflight.captures

    def late(*given: Any) -> Any:
        found = captures(*given)
        gone.unlink(missing_ok=True)
        return found

    monkeypatch.setattr("rankscope.watch.watcher.captures", late)
    watch = watcher(folder, tmp_path / "run.duckdb")
    [warning] = watch.poll().problems
    assert gone.name in warning.message
    arrive(windows[0], folder)
    monkeypatch.setattr("rankscope.watch.watcher.captures", captures)
    assert classes(announced(watch)) == [(1, "balanced", True)]


@pytest.mark.slow
def test_a_database_that_is_removed_is_made_again(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    db = tmp_path / "run.duckdb"
    watch = watcher(folder, db)
    arrive(windows[0], folder)
    assert len(announced(watch)) == 1
    db.unlink()
    assert classes(announced(watch)) == [(1, "balanced", True)]


def test_captures_without_times_go_by_the_times_of_their_files(tmp_path: Path) -> None:
    """As PyTorch traces, whose times are known once their events are read."""
    windows = Windows(tmp_path / "run.duckdb", ShapingOptions().to_json())
    minute = 60 * 10**9
    reports = [
        (
            ReportFile(path, "kineto", 1, hour * HOUR_NS + late * minute),
            Capture(path, (rank,), 2, None, None, None),
        )
        for rank, hour, late in ((0, 0, 0), (0, 1, 0), (1, 1, 2), (1, 0, 3))
        for path in [tmp_path / f"rank{rank}.{hour}.json"]
    ]
    placed = [windows.placed([each]) for each in reports]
    assert [[window.number for window, _ in each] for each in placed] == [[1], [2], [2], [1]]
    again = Windows(tmp_path / "run.duckdb", ShapingOptions().to_json())
    at_once = {
        window.number: {file.path.name for file in files} for window, files in again.placed(reports)
    }
    assert at_once == {1: {"rank0.0.json", "rank1.0.json"}, 2: {"rank0.1.json", "rank1.1.json"}}


TOLD = """
import json, os, sys
own = {key: value for key, value in os.environ.items() if key.startswith("RANKSCOPE_")}
told = {"arguments": sys.argv[1:], "own": own, "document": json.load(sys.stdin)}
with open("told.jsonl", "a") as file:
    print(json.dumps(told), file=file)
print("this is for stderr")
"""


@pytest.mark.parametrize("count", mostly_slow([2, 3]))
def test_a_program_is_told(cli: Cli, folder: Path, windows: list[list[Path]], count: int) -> None:
    for number, reports in enumerate(windows[:count]):
        for report in arrive(reports, folder, f"{number}_"):
            host = "update TARGET_INFO_SYSTEM_ENV set value = ? where name = 'Hostname'"
            edit(report, host, "$(touch pwned)`touch pwned`")
    Path("tell.py").write_text(TOLD)
    command = f"{sys.executable} tell.py '$HOME' ';'"
    given = ("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--db", "run.duckdb")
    done = cli(*given, "--exec", command, "--format", "json")
    assert done.code == 0, done.err
    printed = [json.loads(line) for line in done.out.splitlines()]
    expected = ["balanced", "persistent", "persistent"][:count]
    assert [each["verdict"]["class"] for each in printed] == expected
    assert {fits(each) for each in printed} == {"watch"}
    told = [json.loads(line) for line in Path("told.jsonl").read_text().splitlines()]
    assert [each["document"] for each in told] == [each for each in printed if each["changed"]]
    assert len(told) == 2
    assert told[1]["arguments"] == ["$HOME", ";"]
    assert told[1]["own"]["RANKSCOPE_VERDICT"] == "persistent"
    assert told[1]["own"]["RANKSCOPE_RANKS"] == str(SLOW)
    assert told[1]["own"]["RANKSCOPE_DB"] == str(Path("run-2.duckdb").resolve())
    assert "$(touch pwned)" in told[1]["own"]["RANKSCOPE_SENTENCE"]
    assert not list(Path().rglob("pwned"))
    again = cli(*given, "--exec", command)
    assert (again.code, again.out) == (0, "")
    assert len(Path("told.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_a_failing_program_is_a_warning(cli: Cli, folder: Path, windows: list[list[Path]]) -> None:
    arrive(windows[0], folder)
    done = cli("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--exec", "false")
    assert done.code == 0
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ window 1 \(rankscope\.duckdb, 3 ranks\): balanced: .*\n",
        done.out,
    )
    assert "rankscope: warning: --exec false: exit code 1" in done.err


def test_the_file_for_node_exporter(cli: Cli, folder: Path, windows: list[list[Path]]) -> None:
    given = ("watch", folder, "--once", "--settle", 0, "--jobs", 1, "--prometheus", "x.prom")
    assert cli(*given).code == 0
    assert "rankscope_watch_windows 0\n" in Path("x.prom").read_text()
    for report in arrive(windows[1], folder):
        host = "update TARGET_INFO_SYSTEM_ENV set value = ? where name = 'Hostname'"
        edit(report, host, 'n"\\\n0')
    assert cli(*given).code == 0
    first = Path("x.prom").read_text()
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
    folder: Path, tmp_path: Path, windows: list[list[Path]], number: signal.Signals, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope", "watch", folder, "--settle", "0", "--interval", "0.1"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    killer = threading.Timer(60, process.kill)
    killer.start()
    arrive(windows[0], folder)
    assert "balanced" in process.stdout.readline(), "a line comes at once"
    time.sleep(0.3)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    killer.cancel()
    assert (out, process.returncode) == ("", code)
    assert "Traceback" not in err
    assert err.count("rankscope: error: ") == err.count("hint: run the same command") == 1
    done = subprocess.run(
        [sys.executable, "-m", "rankscope", "watch", folder, "--settle", "0", "--once"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(
    folder: Path, tmp_path: Path, windows: list[list[Path]]
) -> None:
    from rankscope.watch.notify import tell

    arrive(windows[0], folder)
    [first] = announced(watcher(folder, tmp_path / "run.duckdb"))
    begin = time.monotonic()
    [warning] = tell(["sh", "-c", "sleep 60 & sleep 60"], first, limit_s=0.5)
    assert "still running after 0.5 s" in warning.message
    assert time.monotonic() - begin < 30
