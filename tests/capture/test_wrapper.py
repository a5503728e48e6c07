"""The wrappers run for real: reports with the right names, of the right ranks, and no others."""

import json
import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.capture import CaptureConfig, Scheduler, functions_trace, save, snippet, wrapper
from rankscope.errors import UsageError
from rankscope.model.options import ShapingOptions
from rankscope.sources.conventions import vocabulary
from rankscope.sources.nsys.header import head_facts
from tests.capture.jobs import environment, launch, program
from tests.frames import ranges
from tests.support import mostly_slow, ran

needs_nsys = pytest.mark.skipif(
    shutil.which("nsys") is None or find_spec("nvtx") is None,
    reason="nsys, or nvtx 0.2.11, is not installed",
)
loses_agents = pytest.mark.flaky(reruns=5, reruns_delay=2)
"""What a real nsys records: on a busy machine it now and then loses its agent, and fails."""

HOSTILE = 'it\'s 100% $(touch pwned) `touch pwned` "q" %h'
EVIDENCE = {
    "slurm": "environment SLURM_PROCID",
    "pbs": "environment PMI_RANK",
    "torchrun": "environment RANK",
    "k8s": "environment OMPI_COMM_WORLD_RANK",
}
FOLDERS = {"slurm": "profiles/77.0", "pbs": "profiles/77.1234abcd"}


def script(folder: Path, scheduler: str, wish: CaptureConfig | None = None) -> str:
    save(folder / "profile.sh", wrapper(scheduler, wish or CaptureConfig(trace="nvtx")))
    return "./profile.sh"


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("scheduler", mostly_slow([*Scheduler]))
def test_shellcheck_finds_nothing(scheduler: str, tmp_path: Path) -> None:
    every = (
        CaptureConfig(),
        CaptureConfig(capture_range="cudaProfilerApi", metrics=True, graph_nodes=True),
        CaptureConfig((0, 4), 2, None, 60, 30, None, HOSTILE, HOSTILE, HOSTILE, nsys=(HOSTILE,)),
    )
    scripts = [tmp_path / f"{number}.sh" for number, _ in enumerate(every)]
    for path, wish in zip(scripts, every, strict=True):
        save(path, wrapper(scheduler, wish, HOSTILE))
    done = ran("shellcheck", *scripts)
    assert (done.code, done.out) == (0, "")


@pytest.mark.slow
@needs_nsys
@loses_agents
@pytest.mark.parametrize("scheduler", EVIDENCE)
def test_chosen_ranks_write_reports_of_themselves(scheduler: str, tmp_path: Path) -> None:
    """Of four ranks on two nodes, local rank 1 of the first node and nobody else."""
    run = script(tmp_path, scheduler, CaptureConfig(trace="nvtx", local_ranks=(1, 3), nodes=1))
    done = launch(scheduler, [run, *program(tmp_path)], tmp_path, range(4))
    assert [each.code for each in done] == [0] * 4, done
    assert len((tmp_path / "ran").read_text().split()) == 4, "every rank trains"
    reports = tmp_path / FOLDERS.get(scheduler, "profiles")
    assert [path.name for path in reports.iterdir()] == ["report_rank_1.nsys-rep"]
    claim = head_facts(reports / "report_rank_1.nsys-rep").environment[0]
    assert (claim.rank, claim.world_size, claim.evidence.name) == (1, 4, EVIDENCE[scheduler])


@pytest.mark.slow
@needs_nsys
@loses_agents
def test_only_the_ranks_of_the_next_capture_are_recorded(tmp_path: Path) -> None:
    """Options that this nsys is too old for are left out."""
    wish = CaptureConfig(
        trace="nvtx",
        ranks=(3,),
        optional=("--no-such-option=true",),
        comments=("why: rank 3",),
    )
    run = script(tmp_path, "slurm", wish)
    done = launch("slurm", [run, *program(tmp_path)], tmp_path, range(4))
    assert [each.code for each in done] == [0] * 4, done
    assert len((tmp_path / "ran").read_text().split()) == 4, "every rank trains"
    reports = tmp_path / FOLDERS["slurm"]
    names = sorted(path.name for path in reports.iterdir())
    assert names == ["report_rank_3.nsys-rep"]
    assert "too old for --no-such-option: left out" in done[3].err
    assert "# why: rank 3" in (tmp_path / "profile.sh").read_text()


@pytest.mark.slow
@needs_nsys
@loses_agents
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_under_mpirun(tmp_path: Path) -> None:
    run = script(tmp_path, "mpirun", CaptureConfig(trace="nvtx,mpi"))
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    assert len(snippet().splitlines()) <= 10
    command = ["mpirun", *root, "--oversubscribe", "-n", "2", run, *program(tmp_path)]
    names = [f"report_rank_{rank}.nsys-rep" for rank in range(2)]
    reports = tmp_path / "reports"
    done = ran(
        *command,
        cwd=tmp_path,
        env=environment(
            TMPDIR="/tmp",  # Open MPI's sockets want short paths
            RANKSCOPE_REPORTS=str(reports),
            SLURM_PROCID="0",  # of the batch script, and inherited by every rank
            SLURM_NTASKS="2",
        ),
        timeout=60,
    )
    assert done.code == 0, done.err
    assert sorted(path.name for path in reports.iterdir()) == names
    run_of = rankscope.ingest([reports], tmp_path / "run.duckdb")
    ranks = run_of.compare().tables.ranks.sort("rank")
    assert ranks.select("rank", "evidence", "local_rank", "world_size").rows() == [
        (rank, "environment OMPI_COMM_WORLD_RANK", rank, 2) for rank in range(2)
    ]
    rows = run_of.iterations(include_warmup=True)
    assert sorted({*rows["number"]}) == [0, 1, 2, 3], "the snippet numbers its steps"
    for phase in ("load", "forward", "backward", "optimizer"):
        assert (rows[f"{phase}_ns"] > 0).all(), f"the snippet's {phase} is known"


@pytest.mark.slow
@needs_nsys
@loses_agents
def test_folders_are_taken_as_they_stand_and_reports_never_overwritten(tmp_path: Path) -> None:
    wish = CaptureConfig(trace="nvtx", reports=HOSTILE)
    command = [script(tmp_path, "torchrun", wish), *program(tmp_path)]
    [done] = launch("torchrun", command, tmp_path, [3])
    assert done.code == 0, done
    report = tmp_path / HOSTILE / "report_rank_3.nsys-rep"
    before = report.read_bytes()
    assert not (tmp_path / "pwned").exists()
    [again] = launch("torchrun", command, tmp_path, [3])
    assert again.code == 1
    assert "report_rank_3.nsys-rep: is there already; move it away" in again.err
    assert report.read_bytes() == before
    assert len((tmp_path / "ran").read_text().split()) == 1, "fails before it trains"
    [restarted] = launch("torchrun", command, tmp_path, [3], TORCHELASTIC_RESTART_COUNT="1")
    assert restarted.code == 0, "a restarted worker trains on"


@pytest.mark.slow
@needs_nsys
@loses_agents
def test_recording_ends_before_training_does(tmp_path: Path) -> None:
    code = "import time; time.sleep(2.5); open('ran', 'w')"
    run = script(tmp_path, "slurm", CaptureConfig(trace="nvtx", delay_s=1, duration_s=1))
    [done] = launch("slurm", [run, sys.executable, "-c", code], tmp_path, [0])
    assert done.code == 0, done
    assert (tmp_path / "ran").exists(), "training was not killed"
    assert (tmp_path / "profiles/77.0/report_rank_0.nsys-rep").exists()


def newer_nsys(folder: Path, *options: str) -> str:
    """Stands for an nsys with other options than the one here: prints them, or its arguments."""
    path = folder / "nsys-newer"
    said = "".join(f"\\t{option}=\\n" for option in options)
    path.write_text(
        f"#!/bin/sh\n[ \"$2\" = --help ] && {{ printf '{said}'; exit; }}\n"
        'printf \'%s\\n\' "$TMPDIR" "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("offered", "used"),
    [
        (("--python-functions-trace", "--gpu-metrics-devices"), "--gpu-metrics-devices=all"),
        (("--python-nvtx-annotations", "--gpu-metrics-device"), "--gpu-metrics-device=all"),
    ],
)
def test_options_are_spelled_as_the_nsys_at_hand_does(
    offered: tuple[str, str], used: str, tmp_path: Path
) -> None:
    nsys = newer_nsys(tmp_path, *offered)
    run = script(tmp_path, "slurm", CaptureConfig(functions="/a b/torch.json", metrics=True))
    done = launch("slurm", [run, "train"], tmp_path, range(4), RANKSCOPE_NSYS=nsys)
    output = [each.out.splitlines() for each in done]
    assert all(f"{offered[0]}=/a b/torch.json" in options for options in output)
    assert [used in options for options in output] == [True, False] * 2, "once a node"
    assert "--output=profiles/77.0/report_rank_%q{SLURM_PROCID}" in output[0]
    assert output[0][-1] == "train"


def test_the_window_and_the_trace(tmp_path: Path) -> None:
    nsys = newer_nsys(tmp_path)
    node = tmp_path / HOSTILE
    wish = CaptureConfig(
        capture_range="cudaProfilerApi",
        tmpdir=str(node),
        graph_nodes=True,
        nsys=("--osrt-threshold=9",),
    )
    run = script(tmp_path, "mpirun", wish)
    [done] = launch("mpirun", [run, "train"], tmp_path, [2], RANKSCOPE_NSYS=nsys)
    output = done.out.splitlines()
    assert output[0] == str(node)
    assert node.is_dir()
    for option in (
        "--trace=cuda,nvtx,mpi",
        "--mpi-impl=mpich",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--osrt-threshold=9",
        "--sample=none",
    ):
        assert option in output


@pytest.mark.parametrize("scheduler", [*Scheduler])
def test_failures_say_what_to_do(scheduler: str, tmp_path: Path) -> None:
    run = script(tmp_path, scheduler)
    alone = ran(run, "train", cwd=tmp_path, env=environment())
    assert alone.code != 0
    assert "in front of this script" in alone.err
    [lost] = launch(scheduler, [run, "train"], tmp_path, [0], RANKSCOPE_NSYS="no-such-nsys")
    assert "no-such-nsys: not found; load its module, or set RANKSCOPE_NSYS" in lost.err
    assert lost.code == 1
    [nothing] = launch(scheduler, [run], tmp_path, [0])
    assert "name the training command" in nothing.err


def test_an_old_nsys_cannot_annotate_functions(tmp_path: Path) -> None:
    run = script(tmp_path, "slurm", CaptureConfig(functions="/x.json"))
    nsys = newer_nsys(tmp_path)
    [done] = launch("slurm", [run, "train"], tmp_path, [0], RANKSCOPE_NSYS=nsys)
    assert done.code == 1
    assert "too old to annotate Python functions" in done.err


def test_every_traced_function_has_a_meaning() -> None:
    """nsys names the ranges `module.function`."""
    groups = json.loads(functions_trace())
    names = [f"{each['module']}.{name}" for each in groups for name in each["functions"]]
    assert all({"module", "functions"} <= each.keys() for each in groups)
    frame = vocabulary(ShapingOptions()).meanings(ranges(*((0, 1, name) for name in names)))
    means = dict(frame.select("name", "means").iter_rows())
    assert not [name for name, meaning in means.items() if meaning is None]
    assert {*means.values()} == {"iteration", "load", "forward", "backward", "optimizer"}
    assert means["torch.optim.adamw.AdamW.step"] == "optimizer"
    assert frame.filter(pl.col("means") == "load")["fetch"].all()


@pytest.mark.parametrize(
    "wish",
    [
        CaptureConfig(capture_range="cudaProfilerApi", delay_s=1),
        CaptureConfig(capture_range="cudaProfilerApi", trace="nvtx"),
        CaptureConfig(capture_range="hotkey"),
        CaptureConfig(trace="cuda nvtx"),
        CaptureConfig(reports=""),
        CaptureConfig(tmpdir="a\nb"),
    ],
)
def test_wishes_that_cannot_be(wish: CaptureConfig) -> None:
    with pytest.raises(UsageError):
        wrapper("slurm", wish)
