"""What reports can answer, and what is wrong with them: each fault planted, and found alone."""

import re
from pathlib import Path
from typing import Any

import pytest

from rankscope.errors import UsageError
from rankscope.ingestion.check import check
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import Abilities, CheckedReport
from rankscope.output.check_report import advice, causes_sentences, causes_text
from tests.pytorch_job import Job, kernels, write
from tests.support import (
    SAMPLE,
    asked,
    captured,
    copied,
    edit,
    mostly_slow,
    unpacked,
    with_environment,
    with_table,
    without_rank,
)

ALL = Abilities(iterations=True, phases=True, gpu=True, collectives=True, clocks=True)


def codes(checked: tuple[CheckedReport, ...]) -> list[set[str]]:
    return [{problem.code for problem in report.problems} for report in checked]


def test_whole_reports_answer_everything(reports: list[Path]) -> None:
    checked = check(reports)
    assert [report.path for report in checked] == reports
    assert [report.ranks for report in checked] == [(0,), (1,), (2,), (3,)]
    assert all(report.usable and report.can == ALL and not report.problems for report in checked)
    assert {report.iterations for report in checked} == {12}


def test_the_sample_lacks_a_gpu() -> None:
    checked = check([SAMPLE])
    assert codes(checked) == [{"gpu-missing"}] * 4
    assert all(report.usable and not report.can.gpu for report in checked)


@pytest.mark.parametrize("jobs", mostly_slow([1, 2]))
def test_a_bad_report_does_not_stop_the_others(reports: list[Path], jobs: int) -> None:
    reports[0].write_bytes(b"")
    reports[2].write_bytes(reports[2].read_bytes()[:5000])
    checked = check([reports[0].parent], jobs=jobs)
    assert [report.usable for report in checked] == [False, True, False, True]
    for report in (checked[0], checked[2]):
        assert (report.ranks, report.can) == ((), Abilities())
        [problem] = report.problems
        assert (problem.code, problem.fatal) == ("unreadable", True)
        assert str(report.path) not in problem.message, "the row names it"
        assert "export it again" in problem.hint
    assert codes(checked)[1] == {"missing-ranks"}
    [missing] = checked[1].problems
    assert "(0, 2)" in missing.message


def without_markers(report: Path) -> None:
    edit(report, "update NVTX_EVENTS set text = 'thing' where eventType in (59, 60)")
    edit(report, "update NVTX_EVENTS set textId = null where eventType in (59, 60)")


@pytest.mark.slow
def test_markers_on_some_ranks_only(reports: list[Path]) -> None:
    without_markers(reports[2])
    assert [report.usable for report in check(reports)] == [True] * 4, "all have certain steps"
    edit(reports[2], "delete from NVTX_EVENTS where rowid % 40")
    edit(reports[2], "drop table CUPTI_ACTIVITY_KIND_KERNEL")
    checked = check(reports)
    missing = {"no-iterations", "markers-missing", "collectives-missing"}
    assert codes(checked) == [set(), set(), missing, set()]
    spoiled = checked[2]
    assert spoiled.ranks == (2,), "whose it is, is known all the same"
    assert not spoiled.usable
    assert spoiled.can.gpu, "the rest of it was looked at"
    assert not spoiled.can.iterations
    assert not spoiled.can.phases
    assert "though other reports do" in spoiled.problems[0].message
    assert "--on-error skip" in spoiled.problems[0].hint, "as ingest says"


@pytest.mark.slow
def test_no_markers_at_all_can_be_taken_as_a_whole(reports: list[Path]) -> None:
    for report in reports:
        without_markers(report)
    checked = check(reports)
    assert [each & {"steps-found", "no-iterations"} for each in codes(checked)] == [
        {"steps-found"}
    ] * 4
    assert all(report.usable and report.iterations > 1 for report in checked)
    whole = check(reports, ShapingOptions(iteration="whole"))
    assert all(report.usable and report.iterations == 1 for report in whole)
    assert not any(report.can.iterations for report in whole)


def test_unequal_windows_are_reported_with_their_iterations(reports: list[Path]) -> None:
    [[begin]] = asked(
        reports[1],
        "select min(start) from NVTX_EVENTS where coalesce(text, (select value from StringIds "
        "where id = textId)) like '%3' and eventType in (59, 60)",
    )
    edit(reports[1], "delete from NVTX_EVENTS where start < ? and eventType in (59, 60)", begin)
    checked = check(reports)
    assert [each - {"matched-by-ordinal"} for each in codes(checked)] == [
        set(),
        {"iterations-missing"},
        set(),
        set(),
    ]
    [problem] = checked[1].problems
    assert "lacks iterations 0-2 that others have; 9 are common" in problem.message
    assert "--capture-range cudaProfilerApi" in problem.hint


def test_a_cut_step(reports: list[Path]) -> None:
    edit(
        reports[3],
        "update NVTX_EVENTS set end = (select duration from ANALYSIS_DETAILS) "
        "where rowid = (select rowid from NVTX_EVENTS where eventType in (59, 60) and coalesce("
        "text, (select value from StringIds where id = textId)) like '%11' limit 1)",
    )
    assert codes(check(reports)) == [set(), set(), set(), {"iteration-cut"}]


@pytest.mark.parametrize(
    ("said", "severity", "found"),
    mostly_slow(
        [
            ("Not all CUDA events might have been collected.", 2, True),
            ("No CUDA events collected. Does the process use CUDA?", 2, False),
            ("CUPTI dropped 120 records. Some CUPTI events might be missing.", 3, True),
            ("Number of CUDA events collected: 120.", 1, False),
        ],
        2,
    ),
)
def test_lost_events(reports: list[Path], said: str, severity: int, found: bool) -> None:
    columns = "timestamp, timestampType, source, severity, text text, globalPid"
    stranger = (0, 1, 1, 2, "Not all X events", (1 << 48) | (999 << 24))
    with_table(reports[0], "DIAGNOSTIC_EVENT", columns, (0, 1, 1, severity, said, None), stranger)
    first, *others = check(reports)
    assert [each.code for each in first.problems] == (["events-lost"] if found else [])
    assert all(said in problem.message for problem in first.problems)
    assert not any(report.problems for report in others)


def test_a_damaged_export_is_exported_again_first(reports: list[Path]) -> None:
    kernels_of = "CUPTI_ACTIVITY_KIND_KERNEL"
    edit(reports[1], f"update {kernels_of} set end = start - 5 where rowid % 4 = 0")
    hints = {each.code: each.hint for each in check(reports)[1].problems}
    assert hints["records-missing"].startswith(hints["rows-broken"])
    assert "gpu-sparse" not in hints, "CUDA graphs are not the reason"


def test_two_reports_of_one_rank_name_each_other(reports: list[Path]) -> None:
    [again] = copied([reports[1]], reports[0].parent, ["again.sqlite"])
    edit(again, "create table other as select 1 as one")
    checked = {report.path.name: report for report in check([reports[0].parent])}
    assert [report.usable for report in checked.values()] == [False, True, False, True, True]
    [problem] = checked[again.name].problems
    assert problem.code == "rank-twice"
    assert reports[1].name in problem.message


def test_two_reports_of_one_name_are_named_by_their_folders(reports: list[Path]) -> None:
    [again] = copied([reports[1]], reports[0].parent / "copy")
    edit(again, "create table other as select 1 as one")
    said = [each.message for report in check([reports[0].parent]) for each in report.problems]
    assert f"is of rank 1, like copy/{reports[1].name}" in said


def test_each_run_is_examined_alone(reports: list[Path]) -> None:
    edit(
        reports[0],
        "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + ?",
        3600 * 10**9,
    )
    checked = check(reports)
    assert codes(checked) == [{"another-run", "missing-ranks"}] * 4
    assert all(report.usable for report in checked)
    of = [each for report in checked for each in report.problems if each.code == "another-run"]
    assert [each.message for each in of] == ["is of run 2 of 2", *["is of run 1 of 2"] * 3]
    assert "--run 2, or all with --all-runs" in of[0].hint
    assert all("1 of the 4" not in each.message for each in checked[1].problems)


def test_other_nsys_versions(reports: list[Path]) -> None:
    edit(
        reports[2],
        "update META_DATA_EXPORT set value = '2021.5.1.77-x' where name = 'EXPORT_PRODUCT_VERSION'",
    )
    checked = check(reports)
    assert codes(checked) == [set(), set(), {"versions-differ"}, set()]
    assert "2021.5.1.77; most were written by" in checked[2].problems[0].message


def test_no_utc(reports: list[Path]) -> None:
    edit(reports[1], "drop table TARGET_INFO_SESSION_START_TIME")
    checked = check(reports)
    assert codes(checked)[1] == {"no-utc"}
    assert [report.can.clocks for report in checked] == [True, False, True, True]


@pytest.mark.slow
def test_a_report_of_nobody(reports: list[Path]) -> None:
    named = without_rank(reports[3]).rename(reports[3].with_name("report.sqlite"))
    checked = check([named.parent])
    [problem] = checked[0].problems
    assert (checked[0].path, problem.code) == (named, "rank-unknown")
    assert "rankscope capture" in problem.hint
    fitting = ShapingOptions(rank_pattern=r"report_rank_(?P<rank>\d+)")
    assert codes(check([named.parent], fitting))[0] == {"rank-unknown"}


def test_the_launcher_is_that_of_the_job(reports: list[Path]) -> None:
    with_environment(reports[0], SLURM_PROCID="0", SLURM_NTASKS="4")
    [problem] = check(reports[:1])[0].problems
    assert problem.code == "missing-ranks"
    assert "rankscope capture slurm" in problem.hint


def test_options_that_cannot_be_meant_are_no_reports_fault(reports: list[Path]) -> None:
    for options in (
        ShapingOptions(iteration="("),
        ShapingOptions(rank_pattern="("),
        ShapingOptions(phases=(("lunch", "x"),)),
        ShapingOptions(rank_pattern=r"none_(?P<rank>\d+)"),
    ):
        with pytest.raises(UsageError):
            check(reports, options)


def test_a_killed_rank() -> None:
    [killed] = check([captured("2022.4/killed") / "killed_rank_3.sqlite"])
    assert killed.usable
    assert killed.iterations == 5
    cut = next(problem for problem in killed.problems if problem.code == "iteration-cut")
    assert "iteration 5 (the process was killed" in cut.message


def test_one_report_of_several_ranks() -> None:
    mpirun, torchrun = check([captured("2022.4/one_report")])
    assert (mpirun.ranks, mpirun.usable) == ((0, 1, 2, 3), True)
    [problem] = torchrun.problems
    assert problem.code == "rank-unknown"
    assert "(?P<pid>" in problem.hint, "what numbers processes of one report, as ingest says"


@pytest.mark.parametrize("job", ["2022.4/ddp_a", "2023.4/ddp_a", "2022.4/ddp_b", "2022.4/mpi"])
def test_real_captures(job: str, tmp_path: Path) -> None:
    checked = check([unpacked(captured(job), tmp_path / "reports")])
    assert all(report.usable for report in checked)
    assert all(report.can.iterations and report.can.collectives for report in checked)
    said = {each.code: each.message for report in checked for each in report.problems}
    unnamed = said.pop("phase-unnamed", "")
    assert {*said} <= {"gpu-missing", "iteration-cut"}
    assert ("--phase backward=^Compute" in unnamed.replace("'", "")) is (job == "2022.4/mpi")


def test_records_without_a_report_are_reported(reports: list[Path]) -> None:
    raw = reports[0].with_name("report_rank_4.qdstrm")
    raw.write_bytes(b"records")
    reports[1].with_suffix(".qdstrm").write_bytes(b"of this one there is a report")
    checked = check([raw.parent])
    assert [report.usable for report in checked] == [True] * 4 + [False]
    [problem] = checked[4].problems
    assert (checked[4].path, problem.code) == (raw, "unreadable")
    assert "never converted to a report" in problem.message
    assert "QdstrmImporter" in problem.hint


def test_a_trace_with_the_device_is_not_advised_to_record_it(tmp_path: Path) -> None:
    [trace, _] = check([write(tmp_path / "job", Job(ranks=2, steps=6, slow=1))])
    lacking = {each.capture for each in trace.causes if not each.identifiable}
    assert lacking
    assert not any("ProfilerActivity.CUDA" in each for each in lacking)


@pytest.mark.parametrize("kept", [0, 8])
def test_what_a_cut_trace_lacks_is_not_advised_to_be_recorded(tmp_path: Path, kept: int) -> None:
    """All or most of its device's events came after the cut."""

    def device_last(_rank: int, trace: dict[str, Any]) -> None:
        trace["traceEvents"].sort(key=lambda each: each.get("cat") == "kernel")

    folder = write(tmp_path / "job", Job(steps=3), device_last)
    path = folder / "rank3.pt.trace.json"
    text = path.read_text()
    path.write_text('"cat": "kernel"'.join(text.split('"cat": "kernel"')[: 1 + kept]))
    [*_, cut] = check([folder])
    told = {problem.code for problem in cut.problems} - {"nothing-to-compare"}
    assert told == {"report-cut", "few-iterations", "phases-from-operators"}


def test_a_line_of_advice_is_a_whole_clause(tmp_path: Path) -> None:
    def lossy(_rank: int, trace: dict[str, Any]) -> None:
        gone = [id(each) for each in kernels(trace)[::3]]
        trace["traceEvents"] = [each for each in trace["traceEvents"] if id(each) not in gone]

    folder = write(tmp_path / "job", Job(ranks=2, steps=6, slow=1), lossy)
    [first, *_] = advice(tuple(check([folder])))
    assert re.match(r"ranks 0-1: \d+ of \d+ launches of kernels have no device record,", first)


@pytest.mark.slow
def test_it_says_which_causes_reports_can_tell(reports: list[Path]) -> None:
    """Of a real capture without a GPU what the host did; of the simulated GPU job the rest."""
    host = check([captured("2023.4/why_fsync")])
    identifiable = [{each.cause for each in report.causes if each.identifiable} for report in host]
    assert all(
        {"blocked", "preempted", "on_cpu", "garbage_collection"} <= of for of in identifiable
    )
    assert not any({"device_slower", "copies", "starved", "cuda_call"} & of for of in identifiable)
    edit(reports[1], "delete from CUPTI_ACTIVITY_KIND_MEMCPY")
    [gpu, without_copies, *_] = check(reports)
    known = {each.cause: each.identifiable for each in gpu.causes}
    assert without_copies.causes == gpu.causes, "a device that was recorded made no copies"
    assert known["device_slower"]
    assert known["starved"]
    assert known["copies"]
    assert not known["blocked"]
    [lacking] = [each for each in gpu.causes if each.cause == "preempted"]
    assert "--cpuctxsw=process-tree" in lacking.capture
    lines = causes_text(host)
    assert lines[0].startswith("Causes that can be identified: ")
    assert any("device_slower" in line and "--trace=cuda,nvtx" in line for line in lines[1:])
    assert causes_text(()) == []


@pytest.mark.slow
def test_what_one_run_lacks_is_not_said_of_another(reports: list[Path]) -> None:
    """The sample has no GPU, and the simulated job was killed at another time."""
    checked = check([SAMPLE, reports[0].parent])
    [gpu_run] = {report.run for report in checked if report.can.gpu}
    bare_run = 3 - gpu_run
    assert [line.partition(":")[0] for line in advice(checked)] == [f"run {bare_run} (ranks 0-3)"]
    said = {line.partition(" is slow: ")[::2] for line in causes_sentences(checked)}
    counts = {whose: text.partition(" of ")[0] for whose, text in said}
    assert counts == {
        f"Why a rank of run {gpu_run}": "11",
        f"Why a rank of run {bare_run}": "none",
    }
    lines = causes_text(checked)
    assert sum(line.startswith(f"Causes of run {gpu_run} that can be") for line in lines) == 1
