"""`python -m tests.bench.answers`: how long a large run's answers take.

Writes the reduced reports of 1,024 ranks, 1,000 iterations and 20 collectives an iteration (20
million calls) into a database, through the code that an ingest writes and compares with; then runs
the commands, each as a process of its own, and prints wall time, CPU time and peak memory of each.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.bench.costs import Cost, cost

SLOW = 5
"""The rank that `job` makes slow."""

COMMANDS = (
    ("imbalance",),
    ("imbalance", "--format", "json"),
    ("pick-reports", "--format", "json"),
    ("plot", "heatmap", "-o", "{folder}/heatmap.png"),
    ("--help",),
)

UNUSUAL = (
    ("imbalance", "--statistic", "p95", "--format", "json"),
    ("imbalance", "--iter-range", "100:200", "--format", "json"),
    ("imbalance", "--include-warmup", "--format", "json"),
    ("imbalance", "--clock", "host", "--format", "json"),
    ("imbalance", "--by", "collective", "--format", "json"),
    ("imbalance", "--by", "kernel", "--format", "json"),
)
"""What is not kept but computed."""

OF_WHY = (("imbalance", "--by", "cause", "--format", "json"),)
"""The same, of reports that hold what tells why."""


def measured(cache: str, name: str, *arguments: str) -> Cost:
    """What a Python process of `arguments` costs; prints a row of the table.

    `cache` is the folder of its caches: in a shared one, others push out which tables were checked.
    """
    took = cost([sys.executable, *arguments], {"XDG_CACHE_HOME": cache})
    say(
        f"{name:<56}{took.seconds:8.2f} s wall{took.cpu_s:8.2f} s CPU"
        f"{took.peak_bytes / 1e9:8.2f} GB peak"
    )
    return took


def write(db: Path, ranks: int, iterations: int, collectives: int, why: bool) -> None:
    """The reports of a job, not yet compared; prints what its slow rank costs, in ns."""
    from rankscope.ingestion.finalize import open_or_create
    from rankscope.model.options import ShapingOptions
    from rankscope.store import ReportWriter
    from tests.bench.job import simulated

    with open_or_create(db) as database:
        incoming = ReportWriter(database, ShapingOptions().to_json())
        job = simulated(ranks, iterations, collectives)
        for report in job.reports(db.parent, why):
            incoming.add(report)
        incoming.flush()
        database.checkpoint()
    lasted = float(job.ends.max())
    del job
    say(str(round(lasted - float(simulated(ranks, iterations, collectives, 0).ends.max()))))


def end_of_ingest(db: Path) -> None:
    """What an ingest does once all reports are in, which checks no rows of its own."""
    from rankscope.ingestion.finalize import compare_stored, open_or_create
    from rankscope.model.tables import TABLES

    with open_or_create(db) as database:
        database.known.checked.update(dict.fromkeys(TABLES))
        compare_stored(database)


def say(text: str) -> None:
    """Print it at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code: 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.answers", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--collectives", type=int, default=20, help="of an iteration")
    parser.add_argument("--db", type=Path, help="keep the database there, or take the one there is")
    parser.add_argument("--unusual", action="store_true", help="ask what is not kept, too")
    parser.add_argument("--why", action="store_true", help="reports that hold what tells why")
    parser.add_argument("--step", choices=("write", "compare"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    sizes = (args.ranks, args.iterations, args.collectives)
    if args.step == "write":
        write(args.db, *sizes, args.why)
        return 0
    if args.step == "compare":
        end_of_ingest(args.db)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        db = args.db or Path(folder) / "run.duckdb"
        step = ["-m", "tests.bench.answers", "--db", str(db)]
        names = ("--ranks", "--iterations", "--collectives")
        asked = [word for pair in zip(names, map(str, sizes), strict=True) for word in pair]
        asked += ["--why"] * args.why
        cost_ns = None
        if not db.exists():
            written = measured(folder, "reports written", *step, "--step", "write", *asked)
            cost_ns = int(written.output)
        before = db.stat().st_size
        measured(folder, "end of ingest", *step, "--step", "compare")
        say(f"database {db.stat().st_size / 1e6:,.0f} MB, of it derived: "
            f"{(db.stat().st_size - before) / 1e6:,.0f} MB")  # fmt: skip
        right = True
        unusual = UNUSUAL + OF_WHY * args.why if args.unusual else ()
        for command in (*COMMANDS, *unusual):
            words = [word.format(folder=folder) for word in command]
            where = [] if command == ("--help",) else ["--db", str(db)]
            took = measured(
                folder, "rankscope " + " ".join(command), "-m", "rankscope", *words, *where
            )
            # nothing is exposed on the host's clock of this job, so that nobody is waited for
            if (
                command[-2:] == ("--format", "json")
                and command[0] == "imbalance"
                and ("host" not in command)
            ):
                right &= found_the_slow_one(took.output, cost_ns, args.iterations)
    return 0 if right else 1


def found_the_slow_one(answer: str, cost_ns: int | None, iterations: int) -> bool:
    """Whether the verdict names the planted rank, its phase, and what it costs, within 5 %."""
    output = json.loads(answer)
    verdict, count = output["verdict"], output["run"]["iterations"]["count"]
    say(f"  {verdict['sentence']}")
    named = verdict["ranks"] == [SLOW] and verdict["cause"] == "backward"
    # in a simulated job every call has its counterparts
    named &= "unmatched-collectives" not in {each["code"] for each in output["warnings"]}
    if cost_ns is None:
        return named
    return named and abs(verdict["gain_ns"] / (cost_ns * count / iterations) - 1) < 0.05


if __name__ == "__main__":
    sys.exit(main())
