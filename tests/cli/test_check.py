"""`rankscope check`: its JSON, its formats, its exit codes, and that it leaves no trace."""

import csv
import hashlib
import io
import json
from pathlib import Path

import pytest

from tests.cli.test_hostile import BROKEN, HOSTILE, harmless
from tests.support import (
    SAMPLE,
    Cli,
    MakeForged,
    copied,
    edit,
    mostly_nightly,
    mostly_slow,
    renamed,
    sqlite_tables,
)


def test_its_document(cli: Cli) -> None:
    result = cli("check", SAMPLE, "--format", "json")
    answer = result.document
    assert result.err == ""
    assert answer["format"] == "rankscope/check/1"
    assert answer.keys() >= {"format", "run", "warnings", "reports", "usable"}
    assert answer["usable"] is True
    assert [report["ranks"] for report in answer["reports"]] == [[0], [1], [2], [3]]
    for report in answer["reports"]:
        assert report.keys() >= {"path", "ranks", "can", "problems"}
        assert report["can"] == {
            "iterations": True,
            "phases": True,
            "gpu": False,
            "collectives": True,
            "clocks": True,
        }
        [problem] = report["problems"]
        assert problem["code"] == "gpu-missing"
        assert problem["message"]
        assert problem["hint"].startswith("record it on every rank, as rankscope capture torchrun")
    [warning] = answer["warnings"]
    assert warning == {"code": "gpu-missing", "message": problem["message"], "ranks": [0, 1, 2, 3]}


def test_unusable_reports_exit_3_and_are_all_reported(cli: Cli, reports: list[Path]) -> None:
    reports[0].write_bytes(b"nonsense")
    reports[1].write_bytes(b"")
    result = cli("check", reports[0].parent, "--format", "json")
    assert result.code == 3
    answer = json.loads(result.out)
    assert answer["usable"] is False
    assert [report["usable"] for report in answer["reports"]] == [False, False, True, True]
    table = cli("check", reports[0].parent)
    assert (table.code, table.err) == (3, "")
    lines = table.out.splitlines()
    assert lines[0].startswith("2 of 4 reports can be used (ranks 2-3). The verdict can say which")
    assert "the slowest rank may be among those without a report" in lines[0]
    assert sum(line.startswith("✗") for line in lines) == 2
    assert any(line.startswith("report_rank_0.sqlite: is not an Nsight") for line in lines)
    assert any(line.startswith("- ranks 2-3: ") and "repair the reports" in line for line in lines)


def without_collectives(reports: list[Path]) -> None:
    """Leave ranges of phases only, as a gloo job has them whose all-reduce nobody annotates."""
    for report in reports:
        for table in sqlite_tables(report):
            if table.startswith("CUPTI_ACTIVITY_KIND_"):
                edit(report, f"delete from {table}")
        edit(report, "delete from NVTX_EVENTS where text like '%reduce%'")


@pytest.mark.parametrize(
    "scene", mostly_slow(["loading", "plain", "host_only", "gloo", "one rank"])
)
def test_it_foresees_what_the_verdict_can_say(
    cli: Cli, forged: MakeForged, tmp_path: Path, scene: str
) -> None:
    """The first line, beside what `imbalance` says of the same reports."""
    name = scene if scene == "host_only" else "plain"
    reports = copied(forged(name, iterations=12).reports, tmp_path / "reports")
    if scene == "gloo":
        without_collectives(reports)
    if scene == "one rank":
        reports = reports[:1]
    if scene == "loading":
        for report in reports:
            edit(report, "delete from CUPTI_ACTIVITY_KIND_KERNEL where rowid % 2")
    line = cli("check", *reports).out.splitlines()[0]
    assert cli("ingest", *reports).code == 0
    answer = cli("imbalance", "--format", "json").document
    if "inconclusive, because" in line:
        assert answer["verdict"]["class"] == "inconclusive"
        assert scene in ("gloo", "one rank")
        reason = "(gloo's need a range)" if scene == "gloo" else "only one rank has a report"
        assert line.endswith(f"{reason}.")
    else:
        assert f"on the {answer['run']['clock']} clock" in line
        assert scene not in ("gloo", "one rank")
        assert ("about loading only" in line) == (scene == "loading")
    if scene == "loading":
        assert answer["verdict"]["cause"] in (None, "load")


def test_everything_but_the_answer_is_behind_verbose(cli: Cli, reports: list[Path]) -> None:
    reports = reports[:3]
    short = cli("check", *reports).out
    assert "iterations   missing" not in short
    assert "device_slower" not in short
    assert short.count("can be identified; for the others: ") == 1
    advice = [line for line in short.splitlines() if line.startswith("- ")]
    assert advice
    assert all(" → " in line for line in advice)
    whole = cli("check", *reports, "--verbose").out
    assert "iterations   missing" in whole
    assert "Causes that can be identified: device_slower" in whole
    assert whole.count("\n  → ") >= len(advice)


def test_wrong_usage(cli: Cli, reports: list[Path]) -> None:
    cli("check", "no-such-folder").refused(2, "no-such-folder")
    cli("check", reports[0], "--iteration", "(").refused(2, "--iteration")
    cli("check", reports[0], "--rank-pattern", "x").refused(2, "--rank-pattern")
    cli("check", reports[0], "--phase", "forward").refused(2, "--phase")
    assert cli("check").code == 2


def test_it_leaves_no_trace(cli: Cli, reports: list[Path], tmp_path: Path) -> None:
    before = {path: hashlib.sha256(path.read_bytes()).digest() for path in reports}
    there = {*tmp_path.rglob("*")}
    assert cli("check", *reports).code == 0
    assert {*tmp_path.rglob("*")} == there, "no database, no cache beside the reports"
    assert before == {path: hashlib.sha256(path.read_bytes()).digest() for path in reports}


def test_csv_and_markdown(cli: Cli, reports: list[Path]) -> None:
    reports[3].write_bytes(b"")
    rows = [*csv.DictReader(io.StringIO(cli("check", *reports, "--format", "csv").out))]
    assert [row["usable"] for row in rows] == ["true", "true", "true", "false"]
    assert [row["problems"] for row in rows] == ["missing-ranks"] * 3 + ["unreadable"]
    text = cli("check", *reports, "--format", "markdown").out
    assert sum(line.startswith("|") for line in text.splitlines()) == 6
    assert "\n- report_rank_3.sqlite: is empty\n  - " in text


@pytest.mark.slow
def test_names_of_ranges_can_be_given(cli: Cli, reports: list[Path]) -> None:
    for report in reports:
        edit(report, "update NVTX_EVENTS set text = 'lap ' || text where text like 'step%'")
        edit(report, "update NVTX_EVENTS set text = 'lap ' || text where text like 'Batch%'")
    assert cli("check", *reports, "--iteration", r"^turn \D*(\d+)").code == 3
    assert cli("check", *reports, "--iteration", r"^lap \D*(\d+)").code == 0


@pytest.mark.slow
def test_many_alike_take_few_lines(cli: Cli, reports: list[Path], tmp_path: Path) -> None:
    """A folder of many reports: all claim the same four ranks, and each says the same."""
    for nth in range(6):
        names = [f"{nth}_{path.name}" for path in reports]
        for path in copied(reports, tmp_path / "reports", names):
            edit(path, f"create table other as select {nth} as nth")
    result = cli("check", tmp_path / "reports")
    assert result.code == 3
    assert "and 27 like it" in result.out
    assert "_report_rank_0.sqlite and 3 more" in result.out
    assert len(result.out.splitlines()) < 20
    assert cli("check", tmp_path / "reports", "--all").out.count("✗\N{NO-BREAK SPACE}") == 28


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly([BROKEN, *HOSTILE]), ids=range(len(HOSTILE) + 1))
def test_hostile_names_are_shown_plainly(cli: Cli, reports: list[Path], name: str | bytes) -> None:
    edit(reports[0], "update NVTX_EVENTS set text = ?, textId = null where eventType = 59", name)
    renamed(reports[1], name)
    edit(
        reports[2],
        "create table DIAGNOSTIC_EVENT as select 2 as severity, 'dropped ' || ? as text, "
        "null as globalPid",
        name,
    )
    for output in ("table", "csv"):
        assert cli("check", *reports[:3], "--format", output).code == 0, "steps are detected"
        result = cli("check", *reports[:3], "--iteration", "lap", "--format", output)
        assert result.code == 3
        harmless(result)
        assert len(result.out) < 20_000, "no wall of text"
