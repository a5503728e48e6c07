"""A folder with several runs: they are told apart, listed, and read one by one."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import rankscope
from rankscope.errors import SeveralRuns, UsageError
from rankscope.ingestion import job, preflight
from rankscope.ingestion.preflight import found_runs, reports_to_read
from rankscope.ingestion.runs import runs_of
from rankscope.ingestion.workers import map_reports
from rankscope.sources.discover import discover, united
from rankscope.sources.same_job import Capture
from tests.cases import PLAIN
from tests.docs.test_json_schema import fits
from tests.forge import Export, forge, scene
from tests.pytorch_job import write
from tests.support import Cli, MakeForged, copied, edit

SECOND = 10**9


def capture(
    path: str, rank: int | None, start: int | None = None, world: int | None = None
) -> Capture:
    """A capture of 20 s."""
    duration = None if start is None else 20 * SECOND
    begin = None if start is None else start * SECOND
    return Capture(Path(path), () if rank is None else (rank,), world, None, begin, duration)


def names(captures: list[Capture]) -> list[list[str]]:
    return [sorted(str(each.path) for each in run) for run in runs_of(captures)]


@pytest.mark.parametrize(
    ("captures", "runs"),
    [
        ([("a/r_0", 0), ("a/r_1", 1), ("b/r_0", 0), ("b/r_1", 1)], 2),  # folders
        ([("x_r_0", 0), ("x_r_1", 1), ("y_r_0", 0), ("y_r_1", 1)], 2),  # names
        ([("n0/r_0", 0), ("n1/r_1", 1), ("n2/r_2", 2)], 1),  # a folder per node
        ([("j/n0/r_0", 0), ("j/n1/r_1", 1), ("k/n0/r_0", 0), ("k/n1/r_1", 1)], 2),
        ([("j/n0/r_0", 0), ("k/n0/r_0", 0), ("k/n1/r_1", 1)], 2),
        ([("r_0", 0, 100), ("r_1", 1, 101), ("r_2", 2, 5000)], 2),  # times
        ([("r_0", 0, 100, 4), ("r_1", 1, 100, 4), ("r_2", 2, 100, 8)], 2),  # worlds
        ([("r_0", 0), ("again_0", 0)], 2),
        ([("a", None), ("b", None)], 1),
    ],
)
def test_runs_are_distinguished(captures: list[tuple[str, int]], runs: int) -> None:
    found = names([capture(*each) for each in captures])
    assert len(found) == runs
    assert sorted(path for run in found for path in run) == sorted(path for path, *_ in captures)
    for run in found:
        ranks = [rank for path, rank, *_ in captures if path in run]
        assert None in ranks or len({*ranks}) == len(ranks)


def test_a_missing_report_is_not_taken_from_another_run() -> None:
    found = names([capture(path, int(path[-1])) for path in ("j/n0/r_0", "k/n0/r_0", "k/n1/r_1")])
    assert found == [["j/n0/r_0"], ["k/n0/r_0", "k/n1/r_1"]]


@pytest.mark.parametrize(("second", "runs"), [((2, 3, 4), 1), ((1, 2, 3), 2)])
def test_a_stray_report_of_a_rank_makes_no_second_run(second: tuple[int, ...], runs: int) -> None:
    """Of three ranks in a further folder one is there already; or two are, most of them."""
    paths = [*(f"n0/r_{rank}" for rank in range(3)), *(f"n1/r_{rank}" for rank in second)]
    assert len(names([capture(path, int(path[-1])) for path in paths])) == runs


@pytest.fixture
def two_runs(forged: MakeForged, tmp_path: Path) -> Path:
    """Four ranks an hour after three."""
    reports = forged("plain", iterations=12).reports
    copied(reports[:3], tmp_path / "jobs" / "monday")
    for report in copied(reports, tmp_path / "jobs" / "tuesday"):
        shift = "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + 3600000000000"
        edit(report, shift)
    return tmp_path / "jobs"


def test_they_are_listed_with_their_commands(two_runs: Path, cli: Cli) -> None:
    with pytest.raises(SeveralRuns) as refused:
        rankscope.ingest([two_runs], "run.duckdb")
    monday, tuesday = refused.value.lines
    assert "3 reports, ranks 0-2" in monday
    assert "monday" in monday
    assert "UTC" in monday
    assert ", such as " in monday
    assert monday.endswith(f"rankscope ingest {two_runs} --db run.duckdb --run 1")
    assert "4 reports, ranks 0-3" in tuesday
    result = cli("ingest", two_runs)
    result.refused(3, "2 runs", "--all-runs")
    assert "run 2: 4 reports" in result.err
    assert not Path("run.duckdb").exists()


def test_one_is_selected(two_runs: Path, cli: Cli) -> None:
    for _ in range(2):  # the second time they are unchanged
        output = cli("ingest", two_runs, "--run", 1, "--format", "json").document
        assert output["run"]["ranks"] == [0, 1, 2]
    assert {Path(each["path"]).parent.name for each in output["reports"]} == {"monday"}
    cli("ingest", two_runs, "--run", 2).refused(3, f"rankscope ingest {two_runs} --run 2 --rebuild")
    with pytest.raises(UsageError, match="--run 3: the reports are of 2 runs"):
        rankscope.ingest([two_runs], "third.duckdb", run=3)


@pytest.mark.slow
def test_all_get_a_database_of_their_own(two_runs: Path, cli: Cli) -> None:
    output = json.loads(cli("ingest", two_runs, "--all-runs", "--format", "json").out)
    assert [run["run"]["ranks"] for run in output["runs"]] == [[0, 1, 2], [0, 1, 2, 3]]
    assert len(rankscope.open_run("rankscope-2.duckdb").iterations()["rank"].unique()) == 4
    assert fits(output) == "ingest-runs"


def test_a_copy_of_a_report_is_left_out(two_runs: Path, cli: Cli) -> None:
    monday = two_runs / "monday"
    [first, *_] = sorted(monday.iterdir())
    copied([first], monday, ["again.sqlite"])
    copied([first], two_runs / "copies")
    done = cli("ingest", monday, two_runs / "copies", "--format", "json").document
    status = [(Path(each["path"]), each["status"]) for each in done["reports"]]
    assert [path for path, said in status if said == "read"] == sorted(monday.glob("report*"))
    assert {each["reason"].partition(" is a copy of ")[2] for each in done["reports"][:2]} == {
        str(first)
    }
    assert "has 2 copies, left out: " in cli("check", two_runs, "-v").out
    document = json.loads(cli("ingest", two_runs, "--db", "b.duckdb", "--format", "json").out)
    assert fits(document) == "error"
    assert document["error"]["lines"][0].startswith("run 1: 3 reports, ranks 0-2")


def test_ranks_of_one_size_are_no_copies(tmp_path: Path) -> None:
    """Exports often have the same number of pages, and many of these are alike."""
    same = b"SQLite format 3\0" + bytes(10_000)
    for rank in range(3):
        some = str(rank).encode() * 10_000
        (tmp_path / f"report_rank_{rank}.sqlite").write_bytes(same + some + 3 * same)
    (tmp_path / "copy.sqlite").write_bytes((tmp_path / "report_rank_1.sqlite").read_bytes())
    files, copies = united(discover([tmp_path]))
    assert len(files) == 3
    assert len(copies) == 1


@pytest.mark.parametrize("apart_s", [0, 600])
def test_local_ranks_of_hosts_are_of_one_job_if_times_are(tmp_path: Path, apart_s: int) -> None:
    """Also where their folders have the names of the hosts."""
    export = Export(file_name="{host}_{rank}.sqlite", rank_in_environment=False)
    job = scene("planted", ranks=4, iterations=5)
    forge(replace(job, ranks_per_host=2, export=export), tmp_path / "made")
    for rank in range(4):
        path = tmp_path / "job" / f"xnode{rank // 2}" / f"rank{rank % 2}.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "made" / f"node{rank // 2}_{rank}.sqlite").rename(path)
        if rank > 1:
            start = "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + ?"
            edit(path, start, apart_s * SECOND)
    files, _ = reports_to_read(discover([tmp_path / "job"]), None)
    ranks = [[rank for each in run for rank in each.ranks] for run in found_runs(files, None)]
    assert ranks == ([[0, 1], [0, 1]] if apart_s else [[0, 1, 2, 3]])


@pytest.mark.slow
def test_skip_keeps_the_largest(two_runs: Path, cli: Cli) -> None:
    output = cli("ingest", two_runs, "--on-error", "skip", "--format", "json").document
    assert output["run"]["ranks"] == [0, 1, 2, 3]
    status = [(Path(each["path"]).parent.name, each["status"]) for each in output["reports"]]
    assert status == [("monday", "skipped")] * 3 + [("tuesday", "read")] * 4
    for each in output["reports"][:3]:
        assert each["reason"].startswith(each["path"])


@pytest.mark.slow
def test_skip_leaves_out_what_is_no_rank_of_the_job(tmp_path: Path) -> None:
    """A launcher's trace, whose name begins before those of the ranks."""
    folder = write(tmp_path / "job", replace(PLAIN, steps=4))
    host = {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 5, "tid": 5, "args": {}}
    events = [{**host, "ts": 5e6 + 1000 * nth, "dur": 20.0} for nth in range(20)]
    (folder / "launcher_90.json").write_text(json.dumps({"traceEvents": events}))
    run = rankscope.ingest([folder], tmp_path / "run.duckdb", on_error="skip")
    assert run.compare().facts.ranks == (0, 1, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["map_reports", "capture_facts"]),
        ({"on_error": "skip"}, ["capture_facts", "map_reports"]),
        ({"ranks": [0, 1]}, ["capture_facts", "map_reports"]),
    ],
)
def test_workers_read_beside_checks_that_leave_nothing_out(
    forged: MakeForged,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    expected: list[str],
) -> None:
    order: list[str] = []

    def noted(function: Callable[..., object], *args: object, **named: object) -> object:
        order.append(function.__name__)
        return function(*args, **named)

    capture_facts = preflight.capture_facts
    monkeypatch.setattr(job, "map_reports", partial(noted, map_reports))
    monkeypatch.setattr(preflight, "capture_facts", partial(noted, capture_facts))
    job.ingest_reports(forged("plain", iterations=12).reports, tmp_path / "run.duckdb", **options)
    assert order == expected
