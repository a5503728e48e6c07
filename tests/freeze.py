"""`python -m tests.freeze OUT`: every command's answer on every job at hand, a file each.

Run it before and after a change that must not change answers, and compare the two folders:

    python -m tests.freeze /tmp/before
    python -m tests.freeze /tmp/after --like /tmp/before

The jobs are all scenes of the forge, the sample reports, and the captures in `../shared` where
that folder exists. Only the command line is used, so that the script outlives changes inside.

A few of these answers are in the repository (`tests/goldens`) and compared by `test_goldens.py`;
`python -m tests.freeze --goldens` writes them.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import io
import json
import lzma
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared" / "reports"

BY = ("rank", "host", "iteration", "phase", "collective", "kernel")
METRICS = ("iteration", "load", "work", "wait", "backward", "compute", "collective_transfer")
IMBALANCES: dict[str, list[str]] = {
    **{f"by_{by}": ["--by", by] for by in BY},
    **{f"metric_{metric}": ["--metric", metric] for metric in METRICS},
    "range_3_12": ["--iter-range", "3:12"],
    "range_3_12_by_collective": ["--iter-range", "3:12", "--by", "collective"],
    "range_last_5": ["--iter-range", "-5:"],
    "range_of_nothing": ["--iter-range", "9000:"],
    "clock_gpu": ["--clock", "gpu"],
    "clock_host": ["--clock", "host"],
    "clock_host_range": ["--clock", "host", "--iter-range", "2:"],
    "median": ["--statistic", "median"],
    "p95": ["--statistic", "p95"],
    "warmup": ["--include-warmup"],
    "roles_dp": ["--roles", "dp=4"],
    "roles_tp": ["--roles", "tp=2,dp=2"],
    "roles_pp": ["--roles", "pp=2,dp=2"],
}
TABLES = ("rank_iterations", "windows", "phases", "operations", "collectives")
DATABASE = "run.duckdb"

GOLDENS = Path(__file__).parent / "goldens"
GOLDEN_JOBS = ("sample_ddp_4ranks", "sample_gpu_simulated_4ranks", "sample_torch_profiler_2ranks")
GOLDEN_ANSWERS = (
    "check",
    "ingest",
    *(f"imbalance_by_{by}" for by in BY),
    "imbalance_range_3_12",
    "imbalance_clock_host",
    "pick",
    "diff_same",
)


@dataclass(frozen=True)
class Job:
    """A set of reports, and the options that ingest needs to read them."""

    name: str
    reports: Path | None = None  # None: a scene of the forge with this name
    ranks: int = 4
    options: tuple[str, ...] = ()


def jobs() -> list[Job]:
    """All jobs at hand, the slow ones first."""
    from tests.forge import SCENES

    found = [Job(name) for name in SCENES if name != "large"]
    found += [Job(f"{name}@8", ranks=8) for name in ("planted", "tensor_parallel", "pipeline")]
    samples = sorted(path.parent for path in ROOT.glob("sample_reports/*/README.md"))
    found += [Job(f"sample_{path.name}", path) for path in samples if path.name != "pictures"]
    compute = ("--phase", "backward=Compute")
    named: dict[str, tuple[str, ...]] = {
        "captured/2022.4/ddp_a": (),
        "captured/2022.4/ddp_b": (),
        "captured/2022.4/killed": (),
        "captured/2022.4/mpi": compute,
        "captured/2022.4/one_report/mpirun_all_ranks.sqlite": compute,
        "captured/2022.4/one_report/torchrun_all_ranks.sqlite": ("--rank-pattern", r"(?P<pid>\d+)"),
        "captured/2023.4/ddp_a": (),
        "captured/2023.4/export_dirs": (),
        "public/nsys/mfu_2gpu_before.sqlite": ("--iteration", "auto"),
        "public/nsys/ai_profiler_baseline_nvtx.nsys-rep": ("--iteration", "whole"),
        "public/kineto/astrasim_2ranks": ("--iteration", "auto"),
        "public/kineto/hta_2ranks_rank1_5steps.json.gz": (),
        "public/kineto/hta_nccl_metadata_rank0.json.gz": ("--iteration", "whole"),
        "public/kineto/hta_gpu_user_annotation.json.gz": (),
        "public/kineto/tb_resnet50_old_format.json.gz": (),
        "public/kineto/resnet_kineto.json.gz": ("--iteration", "whole"),
    }
    found += [
        Job(name.replace("/", "_"), SHARED / name, options=options)
        for name, options in named.items()
        if (SHARED / name).exists()
    ]
    return found


def freeze(job: Job, out: Path, only: tuple[str, ...] | None = None) -> str:
    """Write the answers on one job into a folder of its name; gives the name.

    Args:
        job: the reports.
        out: where the folder is made.
        only: names of answers; None for all.
    """
    target = out / job.name
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _prepare(job, Path(folder))
        for name, arguments in _commands(job):
            if only is not None and name not in only:
                continue
            answer = _run(arguments)
            for written in Path(folder).glob("written*"):
                answer += f"--- {written.name}\n{_text(written)}\n"
                written.unlink()
            (target / f"{name}.txt").write_text(_plain(answer, folder), encoding="utf-8")
    return job.name


def golden(out: Path) -> None:
    """Write the answers that the repository keeps into a folder."""
    for job in jobs():
        if job.name in GOLDEN_JOBS:
            freeze(job, out, GOLDEN_ANSWERS)


def _prepare(job: Job, folder: Path) -> None:
    reports = folder / "reports"
    if job.reports is None:
        from tests.forge import forge, scene

        forge(scene(job.name.partition("@")[0], ranks=job.ranks), reports)
    elif job.reports.is_dir():
        shutil.copytree(job.reports, reports)
        for packed in reports.rglob("*.xz"):
            packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
            packed.unlink()
        for path in reports.rglob("*.sqlite"):  # the reports beside them need a real nsys
            path.with_suffix(".nsys-rep").unlink(missing_ok=True)
    else:
        reports.mkdir()
        shutil.copyfile(job.reports, reports / job.reports.name)
    for path in reports.rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def _commands(job: Job) -> Iterator[tuple[str, list[str]]]:
    db = ["--db", DATABASE]
    as_json = [*db, "--format", "json"]
    yield "check", ["check", "reports", *job.options, "--format", "json"]
    yield "ingest", ["ingest", "reports", *job.options, "--jobs", "1", *as_json]
    for name, options in IMBALANCES.items():
        yield f"imbalance_{name}", ["imbalance", *options, *as_json]
    yield "imbalance_table", ["imbalance", *db]
    yield "imbalance_markdown", ["imbalance", *db, "--format", "markdown"]
    yield "pick", ["pick-reports", *as_json]
    yield "pick_view", ["pick-reports", *as_json, "--view", "written.nsys-view"]
    yield "pick_load", ["pick-reports", *as_json, "--metric", "load", "--iter-range", "2:"]
    yield "diff_same", ["diff", DATABASE, DATABASE, "--format", "json"]
    yield "diff_host", ["diff", DATABASE, DATABASE, "--clock", "host", "--format", "json"]
    for table in TABLES:
        yield f"export_{table}", ["export", *db, "--table", table, "-o", "written.csv"]
    yield "export_trace", ["export", *db, "-o", "written.json"]
    for kind in ("heatmap", "phases", "timeline", "arrivals"):
        yield f"plot_{kind}", ["plot", kind, *db, "-o", "written.svg"]
    yield "report", ["report", *db, "-o", "written.html"]


def _run(arguments: list[str]) -> str:
    from rankscope_cli.main import main

    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code
        except BaseException:
            traceback.print_exc()
            code = "traceback"
    return f"exit {code or 0}\n--- stdout\n{out.getvalue()}--- stderr\n{err.getvalue()}"


def _text(path: Path) -> str:
    """What a command wrote; of a page its data, since its code may change."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', text, re.DOTALL)
        return text if found is None else json.dumps(json.loads(found[1]), indent=1)
    if path.suffix == ".svg":
        return "\n".join(re.findall(r"<!-- (.*?) -->", text))
    return text


def _plain(text: str, folder: str) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(Path(folder).resolve()), "FOLDER").replace(folder, "FOLDER")
    text = re.sub(r'"seconds": [0-9.]+', '"seconds": 0', text)
    return re.sub(r" in [0-9.]+ s:", " in 0 s:", text)


def differences(old: Path, new: Path) -> list[str]:
    """Files of two folders that differ, or are in one only."""
    both = {path.relative_to(side) for side in (old, new) for path in side.rglob("*.txt")}
    return [
        str(path)
        for path in sorted(both)
        if not (old / path).exists()
        or not (new / path).exists()
        or not filecmp.cmp(old / path, new / path, shallow=False)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; exit code 1 where answers differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.freeze", description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="folder to write to; must not exist")
    parser.add_argument("--goldens", action="store_true", help="write tests/goldens instead")
    parser.add_argument("--like", type=Path, help="a folder written earlier, to compare with")
    parser.add_argument("--only", nargs="*", help="these jobs only (part of the name)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args(arguments)
    os.environ["COLUMNS"] = "200"
    if args.goldens:
        golden(GOLDENS)
        return 0
    if args.out is None:
        parser.error("OUT is needed")
    out = args.out.resolve()
    out.mkdir(parents=True)
    some = [job for job in jobs() if not args.only or any(part in job.name for part in args.only)]
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        for name in pool.map(partial(freeze, out=out), some):
            print(name, flush=True)
    if args.like is None:
        return 0
    found = differences(args.like.resolve(), out)
    if args.only:
        found = [path for path in found if (out / path).parent.exists()]
    print(*found, f"{len(found)} answers differ", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
