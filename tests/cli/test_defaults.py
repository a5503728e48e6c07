"""Defaults in place of errors: iterations, ranks, formats of errors, warnings shown once."""

from pathlib import Path

import pytest

import rankscope
from tests.pytorch_job import Job, write
from tests.support import Cli, asked, edit, mostly_nightly, mostly_slow, public, sqlite_tables


def codes(run: rankscope.Run) -> dict[str, tuple[int, ...]]:
    return {each.code: each.ranks for each in run.compare().warnings}


def without_names(report: Path) -> None:
    edit(report, "update NVTX_EVENTS set text = 'x', textId = null where eventType in (59, 60)")


def irregular(report: Path) -> None:
    """Leave two ranges or two kernels, so that no steps are certain."""
    for table in sqlite_tables(report):
        if table == "NVTX_EVENTS":
            edit(report, "delete from NVTX_EVENTS where eventType not in (59, 60)")
        if table == "NVTX_EVENTS" or table.startswith("CUPTI_ACTIVITY_KIND_"):
            keep = f"(select rowid from {table} order by start limit 2)"
            edit(report, f"delete from {table} where rowid not in {keep}")
    edit(report, "update NVTX_EVENTS set text = 'x', textId = null")


@pytest.mark.slow
def test_steps_where_they_are_certain_on_every_rank(reports: list[Path], cli: Cli) -> None:
    for report in reports:
        without_names(report)
    result = cli("ingest", *reports)
    assert result.code == 0
    said = [line for line in result.err.splitlines() if "--iteration" in line]
    assert len(said) == 1, "one line says what was taken, and what chooses otherwise"
    assert "--iteration auto" in said[0]
    assert "whole" in said[0]
    run = rankscope.open_run("rankscope.duckdb")
    assert codes(run)["steps-found"] == (0, 1, 2, 3)
    assert run.iterations(include_warmup=True).height > 4 * 8
    assert cli("check", *reports).code == 0


@pytest.mark.slow
def test_else_each_capture_is_one(reports: list[Path], cli: Cli) -> None:
    for report in reports:
        without_names(report)
    irregular(reports[2])
    result = cli("ingest", *reports)
    assert result.code == 0
    said = [line for line in result.err.splitlines() if "--iteration" in line]
    assert len(said) == 1
    assert "--iteration whole" in said[0]
    run = rankscope.open_run("rankscope.duckdb")
    assert codes(run)["capture-whole"] == (0, 1, 2, 3)
    assert run.iterations(include_warmup=True)["rank"].to_list() == [0, 1, 2, 3]
    assert run.timeline([0], [0]).iterations == (0,), "reports are read again in the same way"
    table = cli("check", *reports, "--format", "json").document
    assert table["usable"]
    assert not any(each["can"]["iterations"] for each in table["reports"])
    output = cli("ingest", *reports, "--format", "json").document
    assert {each["status"] for each in output["reports"]} == {"unchanged"}


@pytest.mark.slow
def test_names_on_some_ranks_are_not_enough(reports: list[Path], cli: Cli) -> None:
    without_names(reports[1])
    result = cli("ingest", *reports)
    assert result.code == 0
    assert "no range is named" not in result.err, "some are"
    assert "1 report (report_rank_1.sqlite) has no ranges named like iterations" in result.err
    run = rankscope.open_run("rankscope.duckdb")
    assert codes(run)["steps-found"] == (0, 1, 2, 3)
    assert {*run.sql("select convention from ranks")["convention"]} == {"auto"}
    assert run.timeline([0], [5]).iterations == (5,)


@pytest.mark.slow
def test_names_are_not_given_up_for_whole_captures(reports: list[Path], cli: Cli) -> None:
    irregular(reports[1])
    left = cli("ingest", *reports)
    assert left.code == 0
    assert "skipped: " in left.err
    assert "report_rank_1.sqlite: has no ranges named like iterations" in left.err
    output = cli("ingest", *reports, "--format", "json", "--rebuild").document
    assert output["run"]["ranks"] == [0, 2, 3]
    assert "steps-found" not in {each["code"] for each in output["warnings"]}


def test_a_report_that_is_cut_in_its_first_iteration_is_left_out_by_name(
    tmp_path: Path, cli: Cli
) -> None:
    folder = write(tmp_path / "job", Job())
    path = folder / "rank3.pt.trace.json"
    path.write_text(path.read_text()[:2000])
    said = f"skipped: {path}: ends amid its events, before its first iteration does"
    for command in "ingest", "imbalance":
        result = cli(command, folder, "--db", tmp_path / f"{command}.duckdb")
        assert result.code == 0
        assert said in result.err
    assert "Copy it again" in cli("check", folder).out


@pytest.mark.slow
def test_later_reports_get_what_the_database_has(reports: list[Path], cli: Cli) -> None:
    for report in reports:
        without_names(report)
    irregular(reports[0])
    assert cli("ingest", *reports[:2]).code == 0
    assert cli("ingest", *reports).code == 0
    run = rankscope.open_run("rankscope.duckdb")
    assert {*run.sql("select convention from ranks")["convention"]} == {"whole"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept",
    mostly_slow(["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "OSRT_API"]),
)
@pytest.mark.parametrize("option", mostly_nightly([[], ["--iteration", "whole"]]))
def test_whole_captures_need_no_ranges(
    reports: list[Path], cli: Cli, kept: str, option: list[str]
) -> None:
    """Only kernels, calls of CUDA, or calls of the operating system."""
    report = reports[0]
    edit(report, "create table OSRT_API as select * from CUPTI_ACTIVITY_KIND_RUNTIME")
    [(begin, end)] = asked(report, f"select min(start), max(end) from {kept}")
    for table in sqlite_tables(report) - {kept, "StringIds"}:
        if not table.startswith(("TARGET", "META", "ANAL")):
            edit(report, f"delete from {table}")
    if kept.endswith("KERNEL"):  # their steps would be certain
        irregular(report)
    result = cli("ingest", report, *option)
    assert result.code == 0, result.err
    [length] = rankscope.open_run("rankscope.duckdb").iterations(include_warmup=True)[
        "iteration_ns"
    ]
    if kept == "OSRT_API":
        assert length == end - begin
    assert length > 0


def test_hints_do_not_propose_what_was_done(reports: list[Path], cli: Cli) -> None:
    irregular(reports[0])
    refused = cli("ingest", reports[0], "--iteration", "lap (\\d+)")
    assert refused.code == 3
    assert "--iteration lap" not in refused.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "code"),
    mostly_slow(
        [
            ("kineto/tb_resnet50_old_format.json.gz", "rank-assumed"),
            ("nsys/mfu_2gpu_before.sqlite", "steps-found"),
            ("kineto/resnet_kineto.json.gz", "iterations-assumed"),
            ("kineto/linear_kineto.json.gz", "iterations-assumed"),
        ],
        slow=2,
    ),
)
def test_reports_of_others_are_read_without_options(cli: Cli, name: str, code: str) -> None:
    assert cli("ingest", public(name)).code == 0
    run = rankscope.open_run("rankscope.duckdb")
    assert code in codes(run)
    assert run.iterations(include_warmup=True).height > 3
    assert cli("imbalance").code == 0


@pytest.mark.slow
def test_a_given_rank(reports: list[Path], cli: Cli) -> None:
    output = cli("ingest", reports[0], "--rank", 7, "--format", "json").document
    assert output["run"]["ranks"] == [7]
    assert output["reports"][0]["rank_evidence"] == "--rank"
    cli("ingest", *reports, "--rank", 7).refused(2, "--rank 7", "4")
    cli("ingest", reports[0], "--rank", 7, "--rank-pattern", "(?P<rank>.)").refused(2, "--rank")


@pytest.mark.slow
def test_ranks_to_pick_from(reports: list[Path], cli: Cli) -> None:
    cli("ingest", *reports)
    picks = cli("pick-reports", "--ranks", "1,2:4", "--format", "json").document["picks"]
    assert {each["rank"] for each in picks} == {1, 2, 3}
    cli("pick-reports", "--ranks", "9").refused(2, "ranks 0-3")


def test_the_script_of_a_capture_as_json(cli: Cli) -> None:
    plain = cli("capture", "slurm")
    output = cli("capture", "slurm", "--format", "json").document
    assert output["format"] == "rankscope/capture/1"
    assert output["script"].rstrip("\n") == plain.out.rstrip("\n")
    assert "srun" in output["start"]
    assert output["output"] is None
    assert cli("capture", "slurm", "--format", "markdown").out.startswith("```sh\n")


@pytest.mark.slow
def test_one_iteration_of_a_picture(reports: list[Path], cli: Cli) -> None:
    cli("ingest", *reports)
    for option in ("--iteration", "--iteration-number"):
        assert cli("plot", "timeline", option, 5, "-o", f"{option}.png").code == 0
    assert Path("--iteration.png").read_bytes() == Path("--iteration-number.png").read_bytes()
