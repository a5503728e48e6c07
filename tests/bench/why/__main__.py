"""`python -m tests.bench.why`: how often the first cause is right, on captures by the real nsys.

Each plant is captured `--repeat` times, beside controls without one. Captures in `--keep` that are
there are not made again. As root on Linux, with nsys (`--nsys`, 2023.4 or newer samples Python),
pip's nvtx==0.2.11 and two cores that nothing else uses: load disturbs the controls.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rankscope
from rankscope.errors import RankscopeError
from tests.bench.costs import machine
from tests.bench.tables import put, rows

HERE = Path(__file__).parent
CAPTURE_S, TRIES, RANKS = 150, 3, 4
SLOW_RANK = 1  # of rank.py

CONTROL = "none"
TRUTH = {
    "fsync": ("blocked", r"fsync"),
    "read": ("blocked", r"read"),
    "mapped": ("preempted", r""),
    "lock": ("blocked", r"sem_|futex|pthread_"),
    "sleep": ("blocked", r"nanosleep"),
    "hot": ("on_cpu", r"^tokenize_documents"),
    "gc": ("garbage_collection", r""),
    "preempted": ("preempted", r""),
    "quota": ("preempted", r""),
    "malloc": ("allocator", r""),
}
"""Plant → kind and name of the cause."""

NO_CAUSE = "unexplained"


@dataclass(frozen=True)
class Judged:
    """What the verdict says of one capture."""

    plant: str
    ranks: tuple[int, ...]
    causes: tuple[tuple[str, str], ...]  # kind and name, the largest first

    @property
    def rank_right(self) -> bool:
        """Whether the slow rank, and no other, is named; nobody in a control."""
        return self.ranks == (() if self.plant == CONTROL else (SLOW_RANK,))

    @property
    def cause_right(self) -> bool:
        """Whether the first cause is the planted one; none in a control."""
        named = [cause for cause in self.causes if cause[0] != NO_CAUSE]
        if self.plant == CONTROL:
            return not named
        kind, name = TRUTH[self.plant]
        return bool(named) and named[0][0] == kind and re.search(name, named[0][1]) is not None


def capture(plant: str, into: Path, iterations: int, nsys: str) -> bool:
    """Four reports of one job; whether all came. Whatever is started has ended afterwards."""
    version = subprocess.run([nsys, "--version"], check=True, capture_output=True, text=True)
    new = " 2022." not in version.stdout
    environment = {**os.environ, "PYTHON": sys.executable, "NSYS": nsys}
    environment["OPTIONS"] = "--python-sampling=true" if new else ""
    into.mkdir(parents=True, exist_ok=True)
    for _ in range(TRIES):
        job = subprocess.Popen(
            [HERE / "capture.sh", into, str(iterations), plant],
            env=environment,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        try:
            job.wait(CAPTURE_S)
        except subprocess.TimeoutExpired:
            print(f"{plant}: no reports in {CAPTURE_S} s, again", file=sys.stderr)
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
        if len(reports(into)) == RANKS:
            return True
    return False


def reports(folder: Path) -> list[Path]:
    """The reports of a capture."""
    return sorted(folder.glob("report_rank_*.nsys-rep"))


def judge(plant: str, folder: Path, nsys: str) -> Judged:
    """Ingest a capture through this nsys, and read its verdict."""
    os.environ["RANKSCOPE_NSYS"] = nsys
    with tempfile.TemporaryDirectory(prefix="why-") as temp:
        run = rankscope.ingest(reports(folder), Path(temp) / "run.duckdb", jobs=1)
        verdict = run.imbalance().verdict
    causes = tuple((str(each.kind), each.name) for each in verdict.findings)
    return Judged(plant, verdict.ranks, causes)


def table(every: list[Judged]) -> Iterator[tuple[str, ...]]:
    """Plant, captures, ranks right, first cause right, causes named."""
    for plant in dict.fromkeys(each.plant for each in every):
        own = [each for each in every if each.plant == plant]
        first = [" ".join(each.causes[0]).strip() if each.causes else "none" for each in own]
        named = ", ".join(f"{first.count(name)} × {name}" for name in dict.fromkeys(first))
        yield (
            plant,
            str(len(own)),
            str(sum(each.rank_right for each in own)),
            str(sum(each.cause_right for each in own)),
            named,
        )


def main() -> int:
    """Capture, judge, write the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--plants", nargs="+", default=[CONTROL, *TRUTH], help="some plants")
    options.add_argument("--repeat", type=int, default=3, help="captures of each plant")
    options.add_argument("--iterations", type=int, default=30)
    options.add_argument("--nsys", default="nsys", metavar="COMMAND")
    options.add_argument("--keep", type=Path, metavar="DIR", help="folder of the captures")
    options.add_argument("--print", action="store_true", help="print the table, write no file")
    given = options.parse_args()
    every = []
    with tempfile.TemporaryDirectory(prefix="why-captures-") as temp:
        for number in range(1, given.repeat + 1):
            for plant in given.plants:
                folder = (given.keep or Path(temp)) / str(number) / plant
                there = len(reports(folder)) == RANKS
                if not there and not capture(plant, folder, given.iterations, given.nsys):
                    print(f"{plant}: not captured, see {folder}", file=sys.stderr)
                    continue
                try:
                    every.append(judge(plant, folder, given.nsys))
                except RankscopeError as problem:
                    print(f"{plant} {number}: {problem}", file=sys.stderr)
                    continue
                print(number, every[-1], file=sys.stderr)
    head = ("planted", "captures", "rank right", "first cause right", "first causes")
    version = subprocess.run([given.nsys, "--version"], check=True, capture_output=True, text=True)
    said = f"On {machine()}, {version.stdout.strip()}."
    text = f"{said}\n\n{rows(head, table(every))}"
    if given.print or {*given.plants} != {CONTROL, *TRUTH}:
        print(text)
    else:
        put(text, "why")
    return 0 if all(each.cause_right for each in every if each.plant == CONTROL) else 1


if __name__ == "__main__":
    raise SystemExit(main())
