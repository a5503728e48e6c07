"""`rankscope capture`: the script printed or written, and what it refuses."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

import rankscope
from rankscope.capture import Scheduler, functions_trace
from rankscope.compare.next_capture import MOST_ITERATIONS, next_capture
from rankscope.compare.picks import picks_of
from rankscope.errors import UsageError
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Leading, Verdict
from tests.forge import forge, scene
from tests.forge.job import without_plants
from tests.pytorch_job import Job, write
from tests.support import Cli, captured


@pytest.mark.parametrize("scheduler", [*Scheduler])
def test_it_prints_the_script(cli: Cli, scheduler: str) -> None:
    result = cli("capture", scheduler)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("#!/usr/bin/env bash\n")
    assert "--output=" in result.out
    assert "report_rank_%q{" in result.out
    assert "./profile.sh python train.py" in result.out


def test_it_writes_a_script_and_says_how_to_start_it(cli: Cli, tmp_path: Path) -> None:
    printed = cli("capture", "slurm", "--local-ranks", "0,4:6", "--nodes", 2).out
    result = cli("capture", "slurm", "--local-ranks", "0,4:6", "--nodes", 2, "-o", "wrap.sh")
    script = tmp_path / "wrap.sh"
    assert (result.code, result.out) == (0, "")
    assert "srun ./wrap.sh python train.py" in result.err
    assert script.read_text() == printed.replace("./profile.sh", "./wrap.sh")
    assert os.access(script, os.X_OK)
    for setting in ("local_ranks='0 4 5'", "nodes=2"):
        assert setting in printed
    assert cli("capture", "pbs", "-o", "wrap.sh", "--quiet").err == "", "its own it replaces"


def test_files_of_others_stay(cli: Cli, tmp_path: Path) -> None:
    report = tmp_path / "report_rank_0.nsys-rep"
    report.write_bytes(b"\xff\x00 a report")
    cli("capture", "slurm", "-o", report).refused(2, report.name, "name another file")
    assert report.read_bytes() == b"\xff\x00 a report"
    cli("capture", "slurm", "-o", "no/such/folder.sh").refused(2, "no/such/folder.sh")


def test_the_functions_trace_is_written_once(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "torch.json"
    result = cli("capture", "torchrun", "--python-functions-trace", "torch.json")
    assert f"functions={trace}" in result.out, "ranks start elsewhere: a whole path"
    assert "wrote torch.json" in result.err
    assert trace.read_text() == functions_trace()
    trace.write_text(json.dumps([]))
    assert cli("capture", "torchrun", "--python-functions-trace", "torch.json").code == 0
    assert trace.read_text() == "[]", "the user may have changed it"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a real run: rank 1 waits in fsync in its load."""
    db = tmp_path_factory.mktemp("why") / "run.duckdb"
    rankscope.ingest([captured("2023.4/why_fsync")], db)
    return db


def test_the_next_capture_is_small(cli: Cli, run: Path) -> None:
    following = cli("capture", "slurm", "--for", run, "--format", "json").document["for"]
    ranks = {each["rank"]: each["label"] for each in following["ranks"]}
    assert (len(ranks), ranks[1]) == (3, "slow")
    assert {*ranks.values()} == {"slow", "median", "fast"}
    verdict = rankscope.open_run(run).imbalance().verdict
    first, last = following["iterations"]["first"], following["iterations"]["last"]
    assert first in verdict.iterations
    assert last in verdict.iterations
    assert last - first < MOST_ITERATIONS
    assert "rank 1" in following["sentence"]
    assert "--osrt-file-access=true" in [each["option"] for each in following["options"]]
    assert all(each["privilege"] and each["cost"] for each in following["options"])


def test_named_ranks_are_recorded(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = rankscope.open_run(run).compare()
    named = replace(comparison.verdict, ranks=(1, 2))
    both = replace(comparison, _verdict=named)
    following = next_capture(both, picks_of(both, None))
    assert [(each.rank, each.label) for each in following.ranks[:2]] == [(1, "slow"), (2, "slow")]
    assert {each.label for each in following.ranks[2:]} <= {"median", "fast"}
    assert "ranks 1-2 are slow" in following.sentence
    monkeypatch.setattr("rankscope.compare.next_capture.MOST_LISTED", 1)
    assert [each.label for each in next_capture(both, picks_of(both, None)).ranks].count(
        "slow"
    ) == 1


def test_the_script_of_the_next_capture_says_why(cli: Cli, run: Path) -> None:
    script = cli("capture", "slurm", "--for", run).out
    assert "# rank 1 is slow in load; which file does it wait for in fsync?\n" in script
    assert "ranks='1 " in script
    for setting in ("trace=cuda,nvtx,osrt", "sample=process-tree", "cpuctxsw=process-tree"):
        assert f"\n{setting}\n" in script
    script = cli("capture", "slurm", "--for", run, "--trace", "nvtx", "--delay", 7).out
    assert "\ntrace=nvtx\n" in script
    assert "window=(--delay=7 --duration=" in script
    script = cli("capture", "slurm", "--for", run, "--capture-range", "cudaProfilerApi").out
    assert "window=(--capture-range=cudaProfilerApi --capture-range-end=stop)" in script


@pytest.mark.slow
def test_nothing_is_open_in_a_balanced_run(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    forge(without_plants(scene("buckets", 4, 12, 1)), tmp_path)
    rankscope.ingest([tmp_path], db)
    assert rankscope.open_run(db).imbalance().verdict.kind == "balanced"
    cli("capture", "slurm", "--for", db).refused(2, "balanced")


@pytest.mark.slow
def test_a_run_of_pytorch_gets_no_script_of_nsys(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path / "job", Job(between=None, first=30))
    rankscope.ingest([folder], tmp_path / "run.duckdb", jobs=1)
    refused = cli("capture", "slurm", "--for", tmp_path / "run.duckdb")
    refused.refused(2, "PyTorch profiler")
    assert "record ranks 2, " in refused.err
    assert "torch.profiler.schedule(wait=28, warmup=2, active=12)" in refused.err


def test_the_snippet(cli: Cli) -> None:
    result = cli("capture", "--snippet")
    assert result.code == 0
    assert 'with nvtx(f"step {step}"):' in result.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "slurm|pbs|mpirun|torchrun|k8s"),
        (("lsf",), "lsf"),
        (("slurm", "--capture-range", "cudaProfilerApi", "--duration", 9), "--capture-range"),
        (("slurm", "--capture-range", "nvtx"), "cudaProfilerApi"),
        (("slurm", "--local-ranks", "first"), "--local-ranks"),
        (("slurm", "--nodes", 0), "--nodes"),
        (("slurm", "--trace", "cuda;nvtx"), "--trace"),
    ],
)
def test_what_cannot_be_meant(cli: Cli, arguments: tuple[object, ...], word: str) -> None:
    cli("capture", *arguments).refused(2, word)


@pytest.mark.parametrize("settles", [None, 60])
def test_what_is_inconclusive_needs_the_iterations_that_settle_it(
    run: Path, settles: int | None
) -> None:
    """The rank that leads is recorded; where more iterations settle nothing, `next` is said."""
    comparison = rankscope.open_run(run).compare()
    leading = Leading((1,), 1, 0.2, 0.04)
    verdict = Verdict(
        kind=VerdictKind.INCONCLUSIVE, next="do this", leading=leading, settles=settles
    )
    undecided = replace(comparison, _verdict=verdict)
    picks = picks_of(undecided, None)
    if settles is None:
        with pytest.raises(UsageError) as refused:
            next_capture(undecided, picks)
        assert refused.value.hint.startswith("do this; without --for")
        return
    following = next_capture(undecided, picks)
    assert {each.label: each.rank for each in following.ranks}["leads"] == 1
    assert {each.label for each in following.ranks} == {"leads", "median", "fast"}
    assert "rank 1 may be slow" in following.sentence
    assert following.iterations.last - following.iterations.first + 1 == settles
    assert following.duration_s > rankscope.open_run(run).next_capture().duration_s
