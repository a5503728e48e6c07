"""`python -m tests.bench.scale`: what comparing a large run costs.

Makes the collectives and measures of 512 ranks, 200 iterations and 40 collectives an iteration
(4 million calls) as frames, with one slow rank, and prints CPU time, wall time and peak memory of
matching, clocks, waits and the verdict, each in turn.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import polars as pl

from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.rules import judge
from rankscope.match.collectives import match
from rankscope.match.wait_sums import sum_waits
from rankscope.match.waits import with_waits
from rankscope.store.tables import narrowed
from tests.match.worlds import World, all_exposed, world

Answer = TypeVar("Answer")
SLOW = 5
RANKS_PER_HOST = 8


def measures(made: World, ranks: int, iterations: int) -> pl.DataFrame:
    """rank, role, iteration and what an iteration is made of; one rank's backward is longer."""
    rng = np.random.default_rng(1)
    shape = (ranks, iterations)
    shares = {"load": 4e6, "forward": 10e6, "backward": 20e6, "optimizer": 3e6, "other": 1e5}
    parts = {name: ns * rng.lognormal(0, 0.03, shape) for name, ns in shares.items()}
    parts["backward"][SLOW] += 6e6
    work = np.sum([*parts.values()], axis=0)
    length = work.max(axis=0) + 2e6
    columns = {f"{name}_ns": values for name, values in parts.items()}
    columns |= {"work_ns": work, "iteration_ns": np.broadcast_to(length, shape)}
    return pl.DataFrame(
        {
            "rank": np.repeat(np.arange(ranks), iterations),
            "iteration": np.tile(np.arange(iterations), ranks),
            **{name: values.ravel().astype(np.int64) for name, values in columns.items()},
        }
    ).with_columns(role=pl.lit("all"))


def step(name: str, work: Callable[[], Answer]) -> Answer:
    """The answer, and a line of what it cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    answer = work()
    line(name, time.perf_counter() - wall, time.process_time() - cpu)
    return answer


def line(name: str, wall: float, cpu: float) -> None:
    """Print one."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # kB on Linux
    sys.stdout.write(f"{name:<12}{cpu:8.1f} s CPU{wall:8.1f} s wall{peak:8.2f} GB peak so far\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code: 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--collectives", type=int, default=40, help="of an iteration")
    args = parser.parse_args(arguments)
    calls = ("tttd" * args.collectives)[: args.collectives]
    made = world(
        args.ranks, args.iterations, tp=RANKS_PER_HOST, calls=calls, per_clock=RANKS_PER_HOST
    )
    made = replace(made, collectives=narrowed(made.collectives))  # as they come from a database
    wide = measures(made, args.ranks, args.iterations)
    exposed = all_exposed(made.collectives)
    sys.stdout.write(f"{made.collectives.height:,} calls of collectives\n")
    line("made", 0.0, 0.0)
    wall, cpu = time.perf_counter(), time.process_time()
    matched = step("match", lambda: match(made.collectives, made.utc_starts))
    waited = step("waits", lambda: with_waits(matched, made.utc_starts))
    step("split", lambda: sum_waits(waited, exposed, ("device",)))
    hosts: dict[int, str | None] = {
        rank: f"node{rank // RANKS_PER_HOST}" for rank in range(args.ranks)
    }
    inputs = VerdictInputs(
        run=RunSummary(args.ranks, wide["iteration"].n_unique(), (), (), "work"),
        selected=tuple(range(args.iterations)),
        spent_ns=int(wide["iteration_ns"].sum()) // args.ranks,
        role_of=dict.fromkeys(range(args.ranks), "all"),
        wide=wide,
        hosts=hosts,
        tables=lambda *_: None,
    )
    verdict = step("verdict", lambda: judge(inputs))
    line("together", time.perf_counter() - wall, time.process_time() - cpu)
    sys.stdout.write(f"{len(matched.clocks.fits)} clocks; {verdict.sentence}\n")
    right = len(matched.clocks.fits) == args.ranks and matched.unmatched.is_empty()
    return 0 if right and verdict.ranks == (SLOW,) else 1


if __name__ == "__main__":
    sys.exit(main())
