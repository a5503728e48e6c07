"""What commands say beside their result: warnings once, a sign of life at the start."""

import re
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from rankscope_cli import console
from rankscope_cli.commands import watch

from rankscope.compare.comparison import Comparison
from rankscope.model.reports import RunWarning
from rankscope.view.page_server import PageServer, RunAnswers
from tests.support import Cli, MakeForged, Stored, copied, edit


def test_each_warning_is_printed_once_and_counted_afterwards(
    cli: Cli, forged: MakeForged, tmp_path: Path
) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path / "reports")[:3]
    edit(reports[1], "update NVTX_EVENTS set text = 'x', textId = null where eventType = 34")
    first = cli("ingest", *reports)
    said = re.findall(r"(?m)^rankscope: warning: (.*)$", first.err)
    assert said
    assert len({*said}) == len(said)
    again = cli("imbalance").err
    assert "rankscope: warning:" not in again
    [count] = re.findall(r"rankscope: (\d+) warnings? about the reports", again)
    assert int(count) == len(said)
    assert cli("check", "--db", "rankscope.duckdb").out.count("→") == len(said)


def test_many_warnings_of_a_kind_are_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    alike = [RunWarning("report-cut", f"rank {rank}: ends early", (rank,)) for rank in range(64)]
    console.warn([*alike, *alike, RunWarning("no-utc", "something else")], quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [f"rankscope: warning: rank {rank}: ends early" for rank in range(3)]
    assert lines[3:] == [
        "rankscope: warning: and 61 more like these",
        "rankscope: warning: something else",
    ]
    console.warn(alike, quiet=False, show_all=True)
    assert len(capsys.readouterr().err.splitlines()) == 64


def test_the_address_comes_before_a_long_comparison(
    cli: Cli, sample: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed, compare, write = Event(), RunAnswers.comparison, console.write

    def slow(self: RunAnswers, iter_range: str) -> Comparison:
        assert printed.wait(60), "the address has to come first"
        return compare(self, iter_range)

    def output(text: str, at_once: bool = False) -> None:
        write(text, at_once)
        printed.set()

    with monkeypatch.context() as patched:
        patched.setattr(RunAnswers, "comparison", slow)
        patched.setattr(PageServer, "serve", lambda server: server._socket.close())
        patched.setattr(console, "write", output)
        done = cli("view", "--db", sample.db)
    assert done.code == 0
    assert done.out.startswith("http://127.0.0.1:")
    cli("view", "--db", "missing.duckdb").refused(4, "missing.duckdb")


def test_watch_speaks_when_it_starts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=interrupted))
    Path("profiles").mkdir()
    said = cli("watch", "profiles").err.splitlines()[0]
    assert said.startswith("rankscope: watching profiles every 30 s; a verdict is printed when")
    assert "rankscope.duckdb" in said
    assert "watching" not in cli("watch", "profiles", "--quiet").err
    assert "watching" not in cli("watch", "profiles", "--once").err
