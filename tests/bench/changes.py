"""`python -m tests.bench.changes`: how often `diff` is right, by the simulator's own numbers.

Pairs of runs of one job with other random numbers (nothing may be certain), and pairs of which
one run has a tenth of an iteration more: on one rank, or on all, in one phase. As for verdicts,
with 3 % noise per phase and a slow 5 % random walk of each rank's speed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import replace

import polars as pl

from rankscope.history.diff.compare import diff_runs
from tests.bench.cases import ITERATION_MS, LEAST_EFFECT, NOISE, PHASES, WALK
from tests.forge import Job, scene, simulate

METRICS = ["iteration", "work", *PHASES, "other", "exposed_communication", "time_to_all_reduce"]
EXTRA_MS = LEAST_EFFECT * ITERATION_MS


def measured(job: Job) -> pl.DataFrame:
    """What the simulator knows of a job's iterations after the first, on the gpu clock."""
    frame = pl.DataFrame(simulate(job).truth.iterations, infer_schema_length=None)
    return frame.filter(pl.col("iteration") > 0, clock="gpu")


def planted(size: tuple[int, int, int], where: str, rank: int | None) -> pl.DataFrame:
    """A run with a tenth of an iteration more in a phase; on all ranks where `rank` is None."""
    noise = {"noise": NOISE, "walk": WALK}
    job = scene("planted", *size, where=where, rank=rank or 0, extra_ms=EXTRA_MS, **noise)
    everybody = tuple(range(job.ranks))
    if rank is None:
        job = replace(job, plants=tuple(replace(plant, ranks=everybody) for plant in job.plants))
    return measured(job)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.changes", description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=31)
    parser.add_argument("--pairs", type=int, default=100, help="of equal runs")
    parser.add_argument("--plants", type=int, default=40, help="runs with one, of either kind")
    parser.add_argument("--statistic", default="mean", choices=("mean", "median", "p95"))
    args = parser.parse_args(arguments)
    count: Counter[str] = Counter()
    runs = [
        measured(scene("plain", args.ranks, args.iterations, seed, noise=NOISE, walk=WALK))
        for seed in range(2 * args.pairs)
    ]
    for before, after in zip(runs[::2], runs[1::2], strict=True):
        found = diff_runs(before, after, METRICS, args.statistic)
        count["iteration falsely certain"] += found.iteration.certain
        count["anything falsely certain"] += any(
            each.certain for each in (*found.metrics, *found.ranks)
        )
    for number in range(args.plants):
        size = (args.ranks, args.iterations, 10_000 + number)
        where = PHASES[number % len(PHASES)]
        slow = random.Random(number).randrange(args.ranks)
        for rank, kind in ((slow, "straggler"), (None, "slower phase")):
            one, other = runs[number % len(runs)], planted(size, where, rank)
            before, after = (one, other) if number % 2 == 0 else (other, one)  # new, repaired
            found = diff_runs(before, after, METRICS, args.statistic)
            rows = found.metrics if rank is None else found.ranks
            told = [each for each in rows if each.certain and each.metric in PHASES]
            count[f"{kind} found"] += (where, rank) in {(each.metric, each.rank) for each in told}
            count[f"{kind}: others blamed"] += any(
                (each.metric, each.rank) != (where, rank) for each in told
            )
            count[f"{kind}: iteration certain"] += found.iteration.certain
    for name, number in count.items():
        of = args.pairs if "falsely" in name else args.plants
        sys.stdout.write(f"{name}: {number} of {of}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
