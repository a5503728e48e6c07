"""Windows of one profiler schedule, in files of their own, are one report of the process."""

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.errors import ReportError, SeveralRuns
from rankscope.ingestion.check import check
from rankscope.sources.discover import discover, united
from tests.pytorch_job import EXTRA_US, Job, write
from tests.support import Cli, mostly_slow

LATER_US = 5e6
FIRSTS = (2, 14)
STEPS = (*range(2, 10), *range(14, 22))
JOB = Job(between=None, steps=8)


def cycles(
    folder: Path,
    name: str = "node_{pid}.{time}.pt.trace.json",
    pids: tuple[int, int] = (100, 100),
    firsts: tuple[int, int] = FIRSTS,
) -> Path:
    """The traces of two windows of a job; `name` has the fields pid, time, rank and step."""
    for nth, (pid, first) in enumerate(zip(pids, firsts, strict=True)):

        def later(_rank: int, trace: dict[str, Any], nth: int = nth, pid: int = pid) -> None:
            for each in trace["traceEvents"]:
                each["ts"] = round(each["ts"] + nth * LATER_US, 3)
                each["pid"] += (pid - 100) if each["pid"] else 0
                if "Seq" in each["args"]:  # the process goes on counting
                    each["args"]["Seq"] += nth * 1000

        parts = write(folder / "parts", replace(JOB, first=first), later, "{}")
        for rank in range(JOB.ranks):
            time = 1760000000123 + 5000 * nth + rank
            target = folder / name.format(pid=pid + rank, time=time, rank=rank, step=first)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = (parts / str(rank)).read_bytes()
            target.write_bytes(gzip.compress(data) if target.suffix == ".gz" else data)
    shutil.rmtree(folder / "parts")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            "node_{pid}.{time}.pt.trace.json",
            "iteration_{step}/rank{rank}_trace.json.gz",
            "rank{rank}/step{step}.json",
        ],
        slow=1,
    ),
)
def test_windows_of_a_schedule_are_one_run(tmp_path: Path, name: str) -> None:
    folder = cycles(tmp_path / "job", name)
    run = rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1)
    comparison = run.compare()
    assert comparison.facts.iterations == STEPS
    verdict = comparison.verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("persistent", (2,), "backward")
    assert verdict.gain_ns == pytest.approx(len(STEPS) * EXTRA_US * 1e3, rel=0.06)
    loads = comparison.rows(["load"])["load_ns"]
    assert loads.max() == pytest.approx(2.1e6, rel=0.1)  # without the pause of 5 s


def test_check_and_ingest_agree(tmp_path: Path, cli: Cli) -> None:
    folder = cycles(tmp_path / "job")
    checked = cli("check", folder)
    assert checked.code == 0
    assert "4 of 4 reports can be used" in checked.out


def test_a_job_that_starts_again_is_another_run(tmp_path: Path) -> None:
    """A container has the same process ids every time."""
    folder = cycles(tmp_path / "job", firsts=(2, 2))
    with pytest.raises(SeveralRuns):
        rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1)


def test_other_processes_are_another_run(tmp_path: Path) -> None:
    folder = cycles(tmp_path / "job", pids=(100, 300))
    with pytest.raises(SeveralRuns):
        rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1)


@pytest.mark.slow
def test_steps_without_a_number_between_are_incomplete(tmp_path: Path) -> None:
    run = rankscope.ingest(
        [cycles(tmp_path / "job", firsts=(2, 10))], tmp_path / "a.duckdb", jobs=1
    )
    assert run.compare().facts.iterations == (*range(2, 10), *range(11, 18))


def test_a_pause_between_windows_is_no_iteration_that_a_rank_lacks(tmp_path: Path) -> None:
    folder = cycles(tmp_path / "job", "rank{rank}/step{step}.json")
    (folder / "rank2" / "step14.json").unlink()
    said = [each.message for of in check([folder], jobs=1) for each in of.problems]
    assert "lacks iterations 14-21 that others have; 8 are common" in said


@pytest.mark.slow
def test_a_window_that_was_cut_loses_its_last_steps(tmp_path: Path) -> None:
    folder = cycles(tmp_path / "job")
    first = min(folder.iterdir())
    text = first.read_text()
    first.write_text(text[: len(text) * 3 // 4])
    steps = rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1).compare().facts.iterations
    assert set(steps) < {*STEPS}
    assert {*range(14, 22)} < {*steps}


@pytest.mark.slow
def test_a_further_window_is_read_together_with_those_before(tmp_path: Path) -> None:
    folder = cycles(tmp_path / "job")
    second = sorted(folder.glob("*.176000000512*")) + sorted(folder.glob("*.17600000051[3]*"))
    (tmp_path / "later").mkdir()
    for path in second:
        path.rename(tmp_path / "later" / path.name)
    db = tmp_path / "a.duckdb"
    assert rankscope.ingest([folder], db, jobs=1).compare().facts.iterations == STEPS[:8]
    for path in (tmp_path / "later").iterdir():
        path.rename(folder / path.name)
    assert rankscope.ingest([folder], db, jobs=1).compare().facts.iterations == STEPS


def test_a_window_that_vanishes_is_an_error(tmp_path: Path) -> None:
    from rankscope.ingestion.workers.local import guarded
    from rankscope.measure.report import extract
    from rankscope.model.options import ShapingOptions

    [file, *_], _ = united(discover([cycles(tmp_path / "job")]))
    file.more[0].unlink()
    got = guarded(extract, file, ShapingOptions())
    assert isinstance(got, ReportError)


def test_the_order_is_that_of_time(tmp_path: Path) -> None:
    files, _ = united(discover([cycles(tmp_path / "job", "r{rank}/s{step}.json")]))
    assert [(each.path.name, [more.name for more in each.more]) for each in files] == [
        ("s2.json", ["s14.json"])
    ] * 4
    assert json.loads(files[0].path.read_text())["distributedInfo"]["rank"] == 0


@pytest.mark.slow
def test_a_timeline_of_a_later_window_is_read_from_its_file(tmp_path: Path) -> None:
    folder = cycles(tmp_path / "job")
    run = rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1)
    late = run.timeline(iterations=[15], ranks=[2])
    early = run.timeline(iterations=[3], ranks=[2])
    assert late.phases.height == early.phases.height > 0
    later = [path for path in folder.iterdir() if ".1760000005125" in path.name]
    later[0].write_text("{}")
    with pytest.raises(ReportError, match="has changed"):
        run.timeline(iterations=[15], ranks=[2])


@pytest.mark.parametrize("where", mostly_slow([slice(14, 22), slice(2, 10)]))
def test_picks_open_the_window_that_holds_the_iteration(tmp_path: Path, where: slice) -> None:
    folder = cycles(tmp_path / "job")
    run = rankscope.ingest([folder], tmp_path / "a.duckdb", jobs=1)
    picks = run.pick_reports(iter_range=where)
    for pick in picks.picks:
        events = json.loads(pick.report.read_text())["traceEvents"]
        zero = min(each["ts"] for each in events)
        for moment in (pick.worst, pick.typical):
            name = f"ProfilerStep#{moment.iteration}"
            [step] = [each for each in events if each["name"] == name]
            begin = (step["ts"] - zero) * 1e3
            assert moment.start_ns <= begin + 1e3
            assert begin < moment.end_ns <= begin + step["dur"] * 1e3 + 1e5
            assert moment.shared_start_ns is not None
            assert abs(moment.shared_start_ns - moment.start_ns) < 5e6
