"""`python -m tests.freeze COMMIT`: answers that this checkout gives and COMMIT does not, as text.

Runs the commands of both on the same reports, and prints what differs, before and after, at most
a screen each. A difference is no failure: it is either a bug, or what the change is for. The jobs
are some samples and scenes of the forge; with `--all` every scene, every command, and the captures
in `../shared` where that folder exists. Only the command line of the other checkout is used, so
that the script outlives changes inside.
"""

import argparse
import contextlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
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
DATABASE = "run.duckdb"

FEW_ANSWERS = (
    "check",
    "ingest",
    *(f"imbalance_by_{by}" for by in BY),
    "imbalance_range_3_12",
    "imbalance_clock_host",
    "imbalance_table",
    "pick",
    "diff_same",
    "plot_heatmap",
    "report",
)
VERDICT = ("ingest", "imbalance_by_rank", "imbalance_table")
FEW = {
    "sample_ddp_4ranks": FEW_ANSWERS,
    "sample_gpu_simulated_4ranks": FEW_ANSWERS,
    "sample_torch_profiler_2ranks": FEW_ANSWERS,
    "planted": FEW_ANSWERS,
    "pipeline": FEW_ANSWERS,
    "tensor_parallel": FEW_ANSWERS,
    "host_only": FEW_ANSWERS,
    "plain": VERDICT,
    "planted@transient": VERDICT,
    "planted@rotating": VERDICT,
    "planted@structural": VERDICT,
    "plain@1": VERDICT,
    "slow_link@8": VERDICT,
}
"""Job → its answers without --all. Together they have verdicts of every class."""

SCREEN_LINES, LINE_CHARACTERS = 40, 400


@dataclass(frozen=True)
class Job:
    """A set of reports, and the options that ingest needs to read them."""

    name: str
    reports: Path | None = None  # None: a scene of a simulator, with this name up to an @
    ranks: int = 4
    options: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()  # of the scene


def jobs() -> list[Job]:
    """All jobs at hand."""
    from tests.forge import SCENES

    found = [Job(name) for name in SCENES if name != "slow_link"]
    found += [Job(f"{name}@8", ranks=8) for name in ("planted", "tensor_parallel", "pipeline")]
    found += [
        Job("planted@transient", parameters=(("kind", "transient"),)),
        Job("planted@rotating", parameters=(("kind", "rotating"),)),
        Job("planted@structural", parameters=(("kind", "structural"), ("where", "data"))),
        Job("plain@1", ranks=1),
        Job("slow_link@8", ranks=8),
    ]
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


def freeze(job: Job, only: Sequence[str] | None = None) -> dict[str, str]:
    """The answers on one job, by name."""
    answers = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _prepare(job, Path(folder))
        for name, arguments in _commands(job):
            if only is not None and name not in only:
                continue
            answer = _run(arguments)
            for written in sorted(Path(folder).glob("written*")):
                answer += f"--- {written.name}\n{_text(written)}\n"
                written.unlink()
            answers[f"{name} of {job.name}"] = _plain(answer, folder)
    return answers


def _prepare(job: Job, folder: Path) -> None:
    reports = folder / "reports"
    if job.reports is None:
        from tests.forge import forge, scene

        name = job.name.partition("@")[0]
        forge(scene(name, ranks=job.ranks, **dict(job.parameters)), reports)
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
    yield "export_table", ["export", *db, "-o", "written.csv"]
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


def answers_of(tree: Path, some: Sequence[Job], every: bool, processes: int) -> dict[str, str]:
    """What the command line of a checkout says of jobs, by `answer of job`."""
    with ProcessPoolExecutor(processes, get_context("spawn"), _use, (tree,)) as pool:
        names = [None if every else FEW.get(job.name, FEW_ANSWERS) for job in some]
        each = pool.map(freeze, some, names)
        return {name: text for answers in each for name, text in answers.items()}


def _use(tree: Path) -> None:
    """Import rankscope from a checkout, in this process."""
    sys.path[:0] = [str(tree), str(tree / "cli")]
    import rankscope_cli

    import rankscope

    for module in (rankscope, rankscope_cli):
        if module.__file__ is None or not Path(module.__file__).is_relative_to(tree):
            raise ImportError(f"{module.__name__} is not that of {tree}: {module.__file__}")


def checked_out(commit: str, folder: Path) -> Path:
    """The program of a commit, in a folder."""
    packed = folder / "program.tar"
    paths = ("rankscope", "cli")
    subprocess.run(["git", "archive", "-o", packed, commit, *paths], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", packed, "-C", folder], check=True)  # Python 3.11.2 has no filter
    return folder.resolve()


def differences(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """Differences as text, at most a screen each, and the answers that differ in this way."""
    found: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for name in {**before, **after}:
        old, new = (answers.get(name, "").splitlines() for answers in (before, after))
        lines = [*unified_diff(old, new, lineterm="", n=1)][2:]
        if not lines:
            continue
        # The same change is often seen in many answers, at other places of the text.
        key = tuple(line for line in lines if line[0] in "+-")
        shown = [line[:LINE_CHARACTERS] for line in lines[:SCREEN_LINES]]
        if len(lines) > SCREEN_LINES:
            shown.append(f"… and {len(lines) - SCREEN_LINES} more lines")
        found.setdefault(key, ("\n".join(shown), []))[1].append(name)
    return dict(found.values())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.freeze",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("commit", help="the commit to compare with, such as main")
    parser.add_argument("--all", action="store_true", help="all jobs, all commands; minutes")
    parser.add_argument("--only", nargs="*", help="these jobs only (part of the name)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    args = parser.parse_args(arguments)
    os.environ["COLUMNS"] = "200"
    some = [job for job in jobs() if args.all or args.only or job.name in FEW]
    if args.only:
        some = [job for job in some if any(part in job.name for part in args.only)]
    with tempfile.TemporaryDirectory() as folder:
        before = answers_of(checked_out(args.commit, Path(folder)), some, args.all, args.jobs)
    after = answers_of(ROOT, some, args.all, args.jobs)
    found = differences(before, after)
    for text, names in found.items():
        print(f"\n{', '.join(names)}:\n{text}")
    count = sum(map(len, found.values()))
    print(f"\n{count} of {len(after)} answers differ from those of {args.commit}")


if __name__ == "__main__":
    main()
