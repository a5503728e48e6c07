"""`python -m tests.bench.verdicts`: how often verdicts are right, as tables in MEASUREMENTS.md.

The scenes of `tests.jobs`, whose verdicts must meet targets, else the exit code is 1. Results are
kept in `--cache`, so that an interrupted run goes on; with `--keep` so are the databases, and
another run with another cache only judges them anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.bench import scenes
from tests.bench.scenes import SceneCase
from tests.bench.tables import put

Result = dict[str, Any]


def judge_all(todo: list[SceneCase], cache: Path, keep: Path | None, jobs: int) -> None:
    """Judge cases in parallel, each result written as soon as it is there."""
    context = multiprocessing.get_context("spawn")  # polars' threads do not survive a fork
    with (
        ProcessPoolExecutor(jobs, mp_context=context) as pool,
        cache.open("a", encoding="utf-8") as file,
    ):
        running = [pool.submit(scenes.judge_scene, case, keep) for case in todo]
        try:
            for done, future in enumerate(as_completed(running), start=1):
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
                sys.stderr.write(f"\r{done} of {len(todo)}")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    sys.stderr.write("\n")


def known(cache: Path) -> dict[str, Result]:
    """Results by case; a line cut off by a kill is none."""
    results = {}
    for line in cache.read_text("utf-8").splitlines() if cache.exists() else ():
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        results[SceneCase(result["scene"], result["ranks"], result["seed"]).key] = result
    return results


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.verdicts", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 32, 128], metavar="RANKS")
    parser.add_argument("--seeds", type=int, default=5, help="runs of a scene and size")
    parser.add_argument("--only", default="", metavar="SCENE", help="only scenes so named")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cache", type=Path, help="file of results to go on from")
    parser.add_argument("--keep", type=Path, help="folder for the databases")
    parser.add_argument("--known", action="store_true", help="judge none, show those in --cache")
    parser.add_argument("--print", action="store_true", help="print the table, write no file")
    args = parser.parse_args(arguments)
    chosen = scenes.scene_cases(args.sizes, args.seeds, args.only)
    with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
        cache = args.cache or Path(folder) / "results.jsonl"
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
        before = known(cache)
        if not args.known:
            judge_all([c for c in chosen if c.key not in before], cache, args.keep, args.jobs)
        judged = known(cache)
    results = [judged[case.key] for case in chosen if case.key in judged]
    for result in filter(scenes.faulty, results):
        sys.stderr.write(json.dumps(result) + "\n")
    sizes = " ".join(map(str, args.sizes))
    command = f"python -m tests.bench.verdicts --sizes {sizes} --seeds {args.seeds}"
    if len(results) < len(chosen):
        command += f"`, so far {len(results)} of {len(chosen)} runs, read back with `--known"
    sums, met = scenes.totals(results)
    text = "\n".join([f"`{command}`:", "", scenes.table(results), "", *sums])
    if args.print or args.only:
        sys.stdout.write(text + "\n")
    else:
        put(text, "jobs")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
