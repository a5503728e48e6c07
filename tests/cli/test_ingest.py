"""`rankscope ingest`: its JSON, its formats, its options."""

from pathlib import Path

import pytest

from tests.support import SAMPLE, Cli, copied

REPORT_KEYS = {
    "path", "kind", "ranks", "rank_evidence", "iterations", "bytes", "status", "reason",
}  # fmt: skip
RUN_KEYS = {
    "db", "name", "ranks", "world_size", "missing_ranks", "reports", "clock", "clock_reason",
    "iterations", "clocks",
}  # fmt: skip


def test_its_document_and_tables(cli: Cli, tmp_path: Path) -> None:
    result = cli("ingest", SAMPLE, "--format", "json")
    output = result.document
    assert result.err == ""
    assert output["format"] == "rankscope/ingest/1"
    assert output.keys() >= {"format", "run", "warnings", "reports", "seconds", "events"}
    assert output["run"].keys() >= RUN_KEYS
    assert output["run"]["db"] == "rankscope.duckdb"
    assert (tmp_path / "rankscope.duckdb").is_file(), "the default, in the working folder"
    assert output["warnings"] == []
    assert output["events"] == 840
    assert output["seconds"] > 0
    assert [report["ranks"] for report in output["reports"]] == [[0], [1], [2], [3]]
    for report in output["reports"]:
        assert report.keys() >= REPORT_KEYS
        assert (report["kind"], report["status"], report["reason"]) == ("nsys-sqlite", "read", None)
        assert (report["iterations"], report["rank_evidence"]) == (30, "environment RANK")
        assert report["bytes"] == Path(report["path"]).stat().st_size
    again = cli("ingest", SAMPLE, "--format", "json").document
    assert {report["status"] for report in again["reports"]} == {"unchanged"}
    assert again["events"] == 0
    assert again["run"]["ranks"] == [0, 1, 2, 3]
    [line] = cli("ingest", SAMPLE).out.splitlines()
    for word in ("4 reports", "4 unchanged", "ranks 0-3 of 4", "rankscope.duckdb"):
        assert word in line
    listed = cli("ingest", SAMPLE, "--verbose")
    assert all(f"report_rank_{rank}.sqlite" in listed.out + listed.err for rank in range(4))
    rows = cli("ingest", SAMPLE, "--format", "csv").rows
    assert len(rows) == 4
    assert rows[2]["ranks"] == "2"
    assert rows[0].keys() >= REPORT_KEYS
    text = cli("ingest", SAMPLE, "--format", "markdown").out
    assert sum(line.startswith("|") for line in text.splitlines()) == 6


@pytest.mark.slow
def test_missing_ranks_are_reported(cli: Cli, reports: list[Path]) -> None:
    table = cli("ingest", *reports[:3])
    assert "ranks 0-2 of 4" in table.out
    assert "rankscope: warning: 1 of 4 ranks has no report (3)" in table.err
    assert cli("ingest", *reports[:3], "--quiet").err == ""
    result = cli("ingest", *reports[:3], "--format", "json")
    [warning] = result.document["warnings"]
    assert warning["code"] == "missing-ranks"
    assert warning["ranks"] == [3]
    assert "3" in warning["message"]
    assert result.document["run"]["missing_ranks"] == [3]
    assert result.document["run"]["world_size"] == 4


def test_bad_reports_can_be_skipped_and_are_listed(
    cli: Cli, reports: list[Path], tmp_path: Path
) -> None:
    folder = reports[0].parent
    leave_out = f"leave such reports out: rankscope ingest {folder} --on-err"
    packed = folder / "report_rank_9.sqlite.zst"
    packed.write_bytes(b"")
    cli("ingest", folder).refused(3, leave_out)
    packed.unlink()
    (folder / "notes.txt").write_text("text", "utf-8")
    only = cli("ingest", folder / "notes.txt")
    only.refused(3, "notes.txt: is not a report", "name a folder")
    assert "leave such reports out" not in only.err, "nothing would be left"
    reports[1].write_bytes(b"")
    cli("ingest", folder).refused(3, leave_out)
    output = cli("ingest", reports[0].parent, "--on-error", "skip", "--format", "json").document
    skipped = output["reports"][1]
    assert (skipped["status"], skipped["ranks"], skipped["rank_evidence"]) == ("skipped", [], None)
    assert "empty" in skipped["reason"]
    assert output["run"]["missing_ranks"] == [1]
    result = cli("ingest", reports[0].parent, "--on-error", "skip")
    assert "1 skipped" in result.out
    assert reports[1].name in result.err
    for number in range(2):
        copied(reports, tmp_path / f"copy {number}")
    assert "skipped: and 1 more; -v names all" in cli("ingest", tmp_path, "--on-error", "skip").err
    assert "more; -v" not in cli("ingest", tmp_path, "--on-error", "skip", "-v").err


@pytest.mark.slow
def test_the_environment_names_the_database(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_DB", str(tmp_path / "env.duckdb"))
    assert cli("ingest", SAMPLE).code == 0
    assert (tmp_path / "env.duckdb").is_file()
    assert not (tmp_path / "rankscope.duckdb").exists()
    assert cli("imbalance", "--format", "json").document["run"]["name"] == "env"
    cli("imbalance", "--db", tmp_path / "other.duckdb").refused(4, "other.duckdb")


@pytest.mark.slow
def test_a_pattern_that_fits_nothing_is_reported(cli: Cli, reports: list[Path]) -> None:
    said = ("--phase", "load=^fetch$", "--phase", "forward=^forward$")
    for command in ("ingest", "imbalance"):
        result = cli(command, *reports, *said)
        assert "ranks 0-3: no range fits --phase load='^fetch$'" in result.err
        assert "--phase forward" not in result.err
    assert "no range fits" not in cli("imbalance").err, "check tells of it"


@pytest.mark.slow
def test_phases_may_be_said_in_parts(cli: Cli, reports: list[Path]) -> None:
    said = ("--phase", "optimizer=^backward$", "--phase", "optimizer=^forward$")
    assert cli("ingest", *reports, *said).code == 0
    output = cli("imbalance", "--format", "json").document
    assert output["ranks"][0]["values_ns"]["forward"] is None
    assert output["ranks"][0]["values_ns"]["optimizer"] > 20_000_000


@pytest.mark.slow
def test_rebuild(cli: Cli, reports: list[Path]) -> None:
    cli("ingest", *reports)
    output = cli("ingest", *reports[:2], "--rebuild", "--format", "json").document
    assert output["run"]["ranks"] == [0, 1]
    assert {report["status"] for report in output["reports"]} == {"read"}
