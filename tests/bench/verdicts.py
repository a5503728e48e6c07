"""`python -m tests.bench.verdicts`: how often verdicts are right, as tables in MEASUREMENTS.md.

Two sets. `jobs`: the scenes of `tests.jobs`, whose verdicts must meet targets, else the exit code
is 1. `forge`: jobs with 3 % noise per iteration and phase, a slow 5 % random walk of each rank's
speed, and a straggler that costs 10 to 29 % of the iterations it hits, or nobody. Results are kept
in `--cache`, so that an interrupted run goes on; with `--keep` so are the databases, and another
run with another cache only judges them anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import rankscope
from rankscope.ingestion.finalize import compare_stored
from rankscope.store import Database
from tests.bench import scenes
from tests.bench.cases import NO_STRAGGLER, STRAGGLERS, Case, cases
from tests.bench.tables import put
from tests.forge import export, simulate

ROLES = any(field.name == "roles" for field in fields(rankscope.Options))

Result = dict[str, Any]


def stored(case: Case, db: Path) -> rankscope.Run:
    """The case's run: from its database where that is, else forged and ingested."""
    if db.exists():
        with Database.open(db, write=True) as database:
            compare_stored(database)  # by the rules of today
        return rankscope.open_run(db)
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        job = case.job()
        for record in simulate(job).records:
            export(job, record, Path(folder))
        # A database that was left half-made must not look like a whole one.
        part = db.with_suffix(".part")
        for left in (part, part.with_name(part.name + ".wal")):
            left.unlink(missing_ok=True)
        rankscope.ingest([folder], part, jobs=1)
    part.rename(db)
    return rankscope.open_run(db)


def judge(case: Case, keep: Path | None) -> Result:
    """What the verdict on a case is, and what is right in it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        run = stored(case, (keep or Path(folder)) / f"{case.key.replace(' ', '_')}.duckdb")
        roles = case.job().roles if ROLES else None
        verdict = run.imbalance(**({"roles": roles} if roles else {})).verdict
    named, planted = {*verdict.ranks}, {*case.culprits}
    return asdict(case) | {
        "effect": round(case.effect, 3),
        "culprits": list(case.culprits),
        "said": {
            "class": verdict.kind,
            "ranks": list(verdict.ranks),
            "cause": verdict.cause,
            "gain": verdict.gain,
            "sentence": verdict.sentence,
        },
        "class_right": verdict.kind in case.classes,
        "rank_right": named == planted,
        "phase_right": verdict.cause in case.causes if case.causes else None,
        "accused": bool(named - planted) or bool(verdict.hosts and not planted),
        "seconds": round(time.monotonic() - began, 1),
    }


def _judge(case: Case | scenes.SceneCase, keep: Path | None) -> Result:
    return judge(case, keep) if isinstance(case, Case) else scenes.judge_scene(case, keep)


def judge_all(
    todo: list[Case | scenes.SceneCase], cache: Path, keep: Path | None, jobs: int
) -> None:
    """Judge cases in parallel, each result written as soon as it is there."""
    context = multiprocessing.get_context("spawn")  # polars' threads do not survive a fork
    with (
        ProcessPoolExecutor(jobs, mp_context=context) as pool,
        cache.open("a", encoding="utf-8") as file,
    ):
        running = [pool.submit(_judge, case, keep) for case in todo]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
                sys.stderr.write(f"\r{done} of {len(todo)}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    sys.stderr.write("\n")


def _key(result: Result) -> str:
    if result.get("bench") == "jobs":
        return scenes.SceneCase(result["scene"], result["ranks"], result["seed"]).key
    return Case(**{field.name: result[field.name] for field in fields(Case)}).key


def known(cache: Path) -> dict[str, Result]:
    """Results by case; a line cut off by a kill is none."""
    results = {}
    for line in cache.read_text("utf-8").splitlines() if cache.exists() else ():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        results[_key(result)] = result
    return results


def wrong(result: Result) -> bool:
    """Whether anything in a verdict is."""
    rights = ("class_right", "rank_right", "phase_right")
    return result["accused"] or any(result[right] is False for right in rights)


def _row(name: str, ranks: int | str, results: list[Result]) -> str:
    def count(right: str) -> str:
        told = [result[right] for result in results if result[right] is not None]
        return f"{sum(told)}" if told else "–"

    rights = [count(right) for right in ("class_right", "rank_right", "phase_right", "accused")]
    return "| " + " | ".join([name, str(ranks), str(len(results)), *rights]) + " |"


def _share(results: Iterable[Result]) -> str:
    told = list(results)
    right = sum(not wrong(result) for result in told)
    return f"{right} of {len(told)} ({100 * right / max(1, len(told)):.1f} %)"


def table(results: list[Result], command: str) -> str:
    """The results in Markdown: what was asked, a row a kind and size, and the sums."""
    order = [*STRAGGLERS, "pipeline", *NO_STRAGGLER]

    def place(result: Result) -> tuple[int, str, int]:
        return order.index(result["kind"]), result["where"], result["ranks"]

    effects = [result["effect"] for result in results if result["culprits"]] or [0.0]
    lines = [
        f"`{command}`: noise of 3 % per iteration and phase, a slow 5 % random walk of each rank's",
        f"speed; a slow rank costs {100 * min(effects):.0f} to {100 * max(effects):.0f} % of the "
        "iterations it hits. Counts of runs.",
        "",
        "| planted | ranks | runs | class right | rank right | phase right | wrongly accused |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for (_, where, ranks), group in groupby(sorted(results, key=place), place):
        rows = list(group)
        lines.append(_row(f"{rows[0]['kind']}, {where}", ranks, rows))
    planted = [result for result in results if result["culprits"]]
    lines += ["", f"Class, ranks and phase all right where a rank is slow: {_share(planted)}."]
    for kind in NO_STRAGGLER:
        runs = [result for result in results if result["kind"] == kind]
        accused = sum(result["accused"] for result in runs)
        lines.append(f"Wrongly accused in {kind} runs: {accused} of {len(runs)}.")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdicts", description=__doc__)
    parser.add_argument("--set", choices=("jobs", "forge"), default="jobs", dest="which")
    parser.add_argument("--sizes", type=int, nargs="+", metavar="RANKS")
    parser.add_argument("--seeds", type=int, help="runs of a planted kind, or scene, and size")
    parser.add_argument("--iterations", type=int, default=30, help="of forged jobs")
    parser.add_argument("--only", default="", metavar="KIND", help="only cases so named")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cache", type=Path, help="file of results to go on from")
    parser.add_argument("--keep", type=Path, help="folder for the databases")
    parser.add_argument("--known", action="store_true", help="judge none, show those in --cache")
    parser.add_argument("--print", action="store_true", help="print the table, write no file")
    args = parser.parse_args(arguments)
    ours = args.which == "jobs"
    args.sizes = args.sizes or ([4, 8, 32, 128] if ours else [8, 64, 256])
    args.seeds = args.seeds or (5 if ours else 20)
    listed = scenes.scene_cases(args.sizes, args.seeds, args.only)
    chosen: list[Case | scenes.SceneCase] = [*listed] if ours else [*_forged(args)]
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        cache = args.cache or Path(folder) / "results.jsonl"
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
        before = known(cache)
        if not args.known:
            judge_all([c for c in chosen if c.key not in before], cache, args.keep, args.jobs)
        told = known(cache)
    results = [told[case.key] for case in chosen if case.key in told]
    for result in filter(scenes.faulty if ours else wrong, results):
        sys.stderr.write(json.dumps(result) + "\n")
    sizes = " ".join(map(str, args.sizes))
    command = f"python -m tests.bench.verdicts --sizes {sizes} --seeds {args.seeds}"
    command += "" if ours else " --set forge"
    if len(results) < len(chosen):
        command += f"`, so far {len(results)} of {len(chosen)} runs, read back with `--known"
    met = True
    if ours:
        sums, met = scenes.totals(results)
        text = "\n".join([f"`{command}`:", "", scenes.table(results), "", *sums])
    else:
        text = table(results, command)
    if args.print or args.only:
        sys.stdout.write(text + "\n")
    else:
        put(text, "jobs" if ours else "verdicts")
    return 0 if met else 1


def _forged(args: argparse.Namespace) -> Iterable[Case]:
    return (
        case
        for case in cases(args.sizes, args.seeds, args.iterations, roles=ROLES)
        if args.only in f"{case.kind}, {case.where}"
    )


if __name__ == "__main__":
    sys.exit(main())
