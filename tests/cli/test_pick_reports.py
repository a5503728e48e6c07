"""`rankscope pick-reports`: its JSON, tables, and the line that opens the reports."""

import shlex
from pathlib import Path

import pytest

from tests.forge import scene, simulate
from tests.forge.kineto_export import export_kineto
from tests.support import SAMPLE, Cli, MakeStored, Stored, copied


def test_its_document(cli: Cli, sample: Stored) -> None:
    answer = cli("pick-reports", "--db", sample.db, "--format", "json").document
    assert answer["format"] == "rankscope/pick-reports/1"
    assert answer.keys() >= {
        "run", "warnings", "metric", "picks", "command", "view", "total_bytes",
    }  # fmt: skip
    assert answer["metric"] == "time_to_all_reduce"
    assert [pick["label"] for pick in answer["picks"]] == ["min", "median", "max", "slow"]
    assert [pick["rank"] for pick in answer["picks"][2:]] == [2, 1], "who is named is picked"
    for pick in answer["picks"]:
        assert pick.keys() >= {"label", "rank", "report", "host", "value_ns", "windows"}
        assert Path(pick["report"]) == SAMPLE / f"report_rank_{pick['rank']}.sqlite"
        assert pick["host"] == f"node{pick['rank'] // 2}"
        assert type(pick["value_ns"]) is int
        for moment in ("worst", "typical"):
            window = pick["windows"][moment]
            assert window.keys() >= {"iteration", "start_ns", "end_ns"}
            assert 0 < window["start_ns"] < window["end_ns"]
    for moment in ("worst", "typical"):
        assert len({pick["windows"][moment]["iteration"] for pick in answer["picks"]}) == 1
    program, *files = shlex.split(answer["command"])
    assert program == "nsys-ui"
    assert [Path(file).stem for file in files] == [Path(p["report"]).stem for p in answer["picks"]]
    assert answer["total_bytes"] == sum(Path(file).stat().st_size for file in files)
    assert answer["view"] is None


def test_the_worst_iteration_is_a_planted_one(cli: Cli, sample: Stored) -> None:
    answer = cli("pick-reports", "--db", sample.db, "--metric", "load", "--format", "json").document
    assert answer["metric"] == "load"
    assert answer["picks"][0]["windows"]["worst"]["iteration"] % 5 == 2
    assert answer["picks"][0]["windows"]["typical"]["iteration"] % 5 != 2


def test_ranges_and_statistics(cli: Cli, sample: Stored) -> None:
    answer = cli(
        "pick-reports", "--db", sample.db, "--iter-range", "13:17", "--metric", "load",
        "--statistic", "median", "--format", "json",
    ).document  # fmt: skip
    assert answer["run"]["iterations"]["count"] == 4
    assert 13 <= answer["picks"][0]["windows"]["worst"]["iteration"] < 17


@pytest.mark.parametrize("output", ["table", "markdown", "csv"])
def test_other_formats(cli: Cli, sample: Stored, output: str) -> None:
    result = cli("pick-reports", "--db", sample.db, "--format", output)
    assert result.code == 0
    assert "\x1b" not in result.out
    for word in ("min", "median", "max", "node1", "report_rank_2"):
        assert word in result.out
    if output == "csv":
        rows = result.rows
        assert [row["label"] for row in rows] == ["min", "median", "max", "slow"]
        assert all(int(row["worst_start_ns"]) < int(row["worst_end_ns"]) for row in rows)
    if output == "table":
        assert "nsys-ui " in result.out
    if output == "markdown":
        *_, last_row, blank, opening, blank_too, command = result.out.splitlines()
        assert last_row.startswith("| ")
        assert opening.startswith("Open them in tabs")
        assert (blank, blank_too, command.startswith("    nsys-ui ")) == ("", "", True)


@pytest.mark.slow
def test_the_line_survives_a_shell(cli: Cli, sample: Stored, tmp_path: Path) -> None:
    folder = tmp_path / "it's $HOME; (mine)"
    copied(sorted(SAMPLE.glob("report*")), folder)
    cli("ingest", folder)
    answer = cli("pick-reports", "--format", "json").document
    files = shlex.split(answer["command"])[1:]
    assert len(files) == 4
    assert all(Path(file).is_file() for file in files)


def test_exports_without_reports_cannot_be_opened_and_it_says_so(
    cli: Cli, stored: MakeStored
) -> None:
    job = stored("planted")
    result = cli("pick-reports", "--db", job.db, "--format", "json")
    answer = result.document
    assert answer["command"] is None
    assert [each["code"] for each in answer["warnings"]] == ["report-missing"]
    text = cli("pick-reports", "--db", job.db)
    assert "nsys-ui" not in text.out
    assert text.err.count("rankscope: warning: ") == 1
    assert "and 2 more: there is no .nsys-rep file beside them, which the GUI needs" in text.err
    assert "rankscope export shows them in Perfetto" in " ".join(text.err.split())


def test_reports_that_are_gone(cli: Cli, tmp_path: Path) -> None:
    """They are not said to lack a file, and the hint works."""
    copied(sorted(SAMPLE.glob("report*")), tmp_path / "here")
    cli("ingest", "here")
    (tmp_path / "here").rename(tmp_path / "there")
    gone = cli("pick-reports")
    assert "and 3 more: are gone; ingest the reports from where they lie now" in gone.err
    assert ".nsys-rep" not in gone.err
    cli("pick-reports", "--copy-to", "picks").refused(3, "is gone", "where they lie now")
    cli("ingest", "there")
    again = cli("pick-reports")
    assert "there/report_rank_3" in again.out
    assert not again.err
    (tmp_path / "there").rename(tmp_path / "elsewhere")
    other = cli("ingest", "elsewhere", "--phase", "forward=Forward.*")
    assert "4 reports (4 read" in other.out, "moved, and read with other options"


def test_the_slow_rank_is_labelled(cli: Cli, stored: MakeStored) -> None:
    """Rank 3 is slow in forward, and neither first, median nor last in backward."""
    answer = cli(
        "pick-reports", "--db", stored("planted").db, "--metric", "backward", "--format", "json"
    ).document
    labels = [(pick["label"], pick["rank"]) for pick in answer["picks"]]
    assert [label for label, _ in labels] == ["min", "median", "max", "slow"]
    assert labels[-1] == ("slow", 3)


def test_metrics_nobody_has(cli: Cli, sample: Stored) -> None:
    cli("pick-reports", "--db", sample.db, "--metric", "idle").refused(2, "--metric idle")


@pytest.mark.slow
def test_traces_are_for_a_browser(tmp_path: Path, cli: Cli) -> None:
    job = scene("planted", ranks=3, iterations=6)
    for record in simulate(job).records:
        export_kineto(job, record, tmp_path / "traces", "trace-{rank}-of-{world}.json.gz")
    db = tmp_path / "run.duckdb"
    assert cli("ingest", tmp_path / "traces", "--db", db).code == 0
    shown = cli("pick-reports", "--db", db).out
    assert "ui.perfetto.dev" in shown
    assert "nsys" not in shown
    for rank in range(3):
        assert str(tmp_path / "traces" / f"trace-{rank}-of-3.json.gz") in shown
    document = cli("pick-reports", "--db", db, "--format", "json").document
    assert document["command"] is None
    cli("report", "--db", db, "-o", "page.html")
    assert "nsys-ui" not in Path("page.html").read_text("utf-8")
    assert not [each for each in document["warnings"] if each["code"] == "report-missing"]
    for option in (["--open"], ["--view", "x.nsys-view"]):
        cli("pick-reports", "--db", db, *option).refused(2, option[0], "ui.perfetto.dev")
    copied = cli("pick-reports", "--db", db, "--copy-to", "picks")
    assert copied.code == 0, copied.err
    assert sorted(path.name for path in (tmp_path / "picks").iterdir()) == [
        f"trace-{rank}-of-3.json.gz" for rank in range(3)
    ]
