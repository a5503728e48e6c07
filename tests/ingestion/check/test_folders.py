"""Folders that hold several runs, or none."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from rankscope.ingestion.check import check
from tests.pytorch_job import Job, write
from tests.support import Cli

JOB = Job(between=None, ranks=2, slow=1, steps=5)


@pytest.mark.slow
def test_check_of_several_runs_says_what_reads_each(tmp_path: Path, cli: Cli) -> None:
    for nth in range(3):

        def another(_rank: int, trace: dict[str, Any], nth: int = nth) -> None:
            for each in trace["traceEvents"]:
                each["pid"] += 1000 * nth if each["pid"] else 0

        write(tmp_path / "jobs" / f"job{nth}", JOB, another)
    checked = cli("check", tmp_path / "jobs")
    assert checked.code == 0
    assert "6 of 6 reports can be used" in checked.out
    assert "they are of 3 runs. The verdict of each can say which rank is slow" in checked.out
    assert "\u2717" not in checked.out
    assert "is of run" not in checked.out
    for number in (1, 2, 3):
        place = f"in {tmp_path / 'jobs' / f'job{number - 1}'}, such as rank0.pt.trace.json"
        command = checked.out.partition(f"run {number} (2 reports, ranks 0-1, {place})")[
            2
        ].partition("--run")[2]
        assert command.split()[0] == f"{number},"
        database = tmp_path / f"{number}.duckdb"
        assert cli("ingest", tmp_path / "jobs", "--run", number, "--db", database).code == 0


def test_a_stray_second_report_of_a_rank_is_named(tmp_path: Path, cli: Cli) -> None:
    """Its folder holds further ranks of the job."""
    folder = write(tmp_path / "job", replace(JOB, ranks=5))
    first, second = folder / "n0", folder / "n1"
    for rank, place in enumerate((first, first, first, second, second)):
        place.mkdir(exist_ok=True)
        (folder / f"rank{rank}.pt.trace.json").rename(place / f"rank{rank}.pt.trace.json")
    text = (first / "rank2.pt.trace.json").read_text()
    (second / "rank2.pt.trace.json").write_text(text.replace('"dur": 2', '"dur": 3'))
    cli("ingest", folder).refused(3, "claims rank 2, and so does", "--on-error skip")
    checked = cli("check", folder)
    assert "of 2 runs" not in checked.out
    assert "without the stray one" in " ".join(checked.out.split())


def test_files_that_are_no_reports_are_named(tmp_path: Path, cli: Cli) -> None:
    nodes = [{"id": 1, "name": "x", "rf_id": 1}]
    (tmp_path / "et").mkdir()
    for rank in range(2):
        trace = {"schema": "1.1.1-chakra.0.0.4", "pid": 5, "nodes": nodes}
        (tmp_path / "et" / f"rank_{rank}.json").write_text(json.dumps(trace))
    for command in ("check", "ingest"):
        cli(command, tmp_path / "et").refused(2, "is a PyTorch execution trace", "torch.profiler")


def test_what_the_verdict_of_each_run_can_say(tmp_path: Path, cli: Cli) -> None:
    def elsewhere(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            each["pid"] += 1000 if each["pid"] else 0

    write(tmp_path / "jobs" / "whole", JOB)
    write(tmp_path / "jobs" / "half", JOB, elsewhere)
    (tmp_path / "jobs" / "half" / "rank1.pt.trace.json").unlink()
    said = " ".join(cli("check", tmp_path / "jobs").out.split())
    assert "of 2 runs." in said
    assert "will be inconclusive, because only one rank has a report" in said
    assert "can say which rank is slow, when and in which phase" in said


@pytest.mark.slow
def test_reports_of_other_runs_do_not_decide_what_the_iterations_are(tmp_path: Path) -> None:
    def without_steps(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            each["pid"] += 1000 if each["pid"] else 0
            if str(each.get("name")).startswith(("ProfilerStep", "Optimizer")):
                each["name"] = "part"

    write(tmp_path / "jobs" / "named", JOB)
    write(tmp_path / "jobs" / "bare", JOB, without_steps)
    alone = check([tmp_path / "jobs" / "bare"])
    together = check([tmp_path / "jobs"])[:2]
    for own, beside in zip(alone, together, strict=True):
        others = tuple(each for each in beside.problems if each.code != "another-run")
        assert structs.replace(beside, problems=others, run=own.run) == own


def test_the_advice_leaves_out_a_report_that_was_cut_in_its_first_step(
    tmp_path: Path, cli: Cli
) -> None:
    write(tmp_path / "job", replace(JOB, ranks=3))
    cut = tmp_path / "job" / "rank2.pt.trace.json"
    text = cut.read_text()
    cut.write_text(text[: text.index("ProfilerStep") + 200])
    said = " ".join(cli("check", tmp_path / "job").out.split())
    assert "3 of 3 reports can be read (ranks 0-2). The verdict is impossible: no iter" in said
    assert "read the others alone: rankscope ingest PROFILES --rebuild --ranks 0-1" in said
    assert cli("ingest", tmp_path / "job").code == 0
    refused = cli("imbalance")
    assert "rank 2 has none" in refused.err
    words = refused.err.partition("rankscope ingest PROFILES ")[2].split()
    assert cli("ingest", tmp_path / "job", *words).code == 0
    assert cli("imbalance").out.startswith("Of the 2 ranks with a report, ")
