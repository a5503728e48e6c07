"""`python -m tests.bench.accuracy JOBS …`: how often verdicts are right on jobs of others.

Each of the folders JOBS holds jobs: folders with a `truth.json`, and the reports or a `run.duckdb`
that was made of them. In `truth.json` are `class`, `ranks`, `allowed` ([class, ranks] of every
right answer), `must` (the ranks that are at fault), `culprits`, `roles`, `fair_inconclusive`,
`first`, `iterations`, `iteration_ns` and `gain_by_iteration_ns`.

With `--ranges`, every range of the real captures at hand as well: the sample, and those beside the
checkout. Their planted delays are known, so each range must name what lies in it and nobody else.
With `--parts`, jobs of which reports are there are asked again as wrappers capture them: with the
reports of each fourth rank (rank 0 of each node of four), and with those of the first quarter.

`--rows FILE` writes what was judged, a line of JSON each. With `--write` the tables replace those
of ACCURACY.md.
"""

import argparse
import json
import os
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import rankscope
from rankscope.model.results import Verdict
from rankscope.util.wording import counted
from tests.bench.tables import put
from tests.bench.tables import rows as table
from tests.support import SAMPLE, SHARED

LEAST_GAIN = 0.01
"""Share of the time below which a culprit need not be named."""

TOLERANCE = 0.25
"""A gain is right within this share of the truth, or this share of the run's time below it."""

FLOOR = 0.01

RANGES = [(low, low + width) for width in (5, 10, 20, 40) for low in range(0, 30, 10)] + [(0, 30)]
"""First iteration and the one after the last."""

CAPTURES = (
    "2022.4/ddp_a",
    "2022.4/ddp_b",
    "2022.4/mpi",
    "2022.4/one_report/mpirun_all_ranks.sqlite",
    "2023.4/ddp_a",
    "2023.4/export_dirs",
)
"""Captures beside the checkout; rank 1 loads longer in every 7th iteration, rank 2 once (20)."""

PARTS = {
    "each fourth rank": lambda reports: reports[::4],
    "the first quarter": lambda reports: reports[: len(reports) // 4],
}
"""Which reports there are."""

PAGE = Path(rankscope.__file__).parent / "docs" / "ACCURACY.md"

OUTCOMES = ("right", "undecided, rightly", "undecided", "innocent", "other")

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A job, or a range or a part of one."""

    group: str
    job: Path
    iterations: tuple[int, int] | None = None
    part: str = ""


def cases(folders: list[Path], parts: bool) -> Iterator[Case]:
    """Every job of the folders, whole, and with `parts` some of its reports alone."""
    for folder in folders:
        for truth in sorted(folder.glob("*/truth.json")):
            yield Case(folder.name, truth.parent)
            for part in PARTS if parts and [*truth.parent.glob("*.sqlite")] else ():
                yield Case(folder.name, truth.parent, part=part)


def judged(case: Case) -> Row:
    """What the verdict is, and whether that is right."""
    os.environ["RANKSCOPE_CACHE"] = "0"
    try:
        return _range_judged(case) if case.iterations else _job_judged(case)
    except Exception as error:  # a crash is an answer that is wrong
        whose = {"regime": [0, 0, ""], "kind": case.group, "job": case.job.name}
        return whose | {"outcome": f"ERROR {error!r}"}


def _job_judged(case: Case) -> Row:
    truth = json.loads((case.job / "truth.json").read_text("utf-8"))
    db = case.job / "run.duckdb"
    with tempfile.TemporaryDirectory(prefix="accuracy-") as folder:
        if case.part or not db.exists():
            reports = sorted(case.job.glob("*.sqlite"))
            kept = PARTS[case.part](reports) if case.part else reports
            db = Path(folder) / "run.duckdb"
            rankscope.ingest(kept, db, jobs=1)
        roles = str(case.job / "roles.csv") if truth["roles"] else None
        comparison = rankscope.open_run(db).compare(rankscope.Options(roles=roles))
    verdict, numbers = comparison.verdict, comparison.selection.numbers
    used = [n - truth["first"] for n in numbers if 0 <= n - truth["first"] < truth["iterations"]]
    length = sum(truth["iteration_ns"][i] for i in used)
    true = sum(truth["gain_by_iteration_ns"][i] for i in used) / length
    claimed = (verdict.gain_ns or 0) / length
    if case.part:
        truth = _known_to(truth, comparison.tables.ranks["rank"].to_list())
    outcome = _outcome(truth, verdict, true)
    true *= _part_of_gain(truth, verdict)
    accused = outcome == "right" and verdict.kind in ("persistent", "periodic", "transient")
    exact = accused and true > LEAST_GAIN and not verdict.gain_is_bound
    return {
        "regime": [truth["world"], truth["iterations"], case.part],
        "kind": truth["scenario"],
        "job": case.job.name,
        "outcome": outcome,
        "truth": [truth["class"], truth["ranks"]],
        "said": [verdict.kind.value, [*verdict.ranks]],
        "sentence": verdict.sentence,
        "gain_right": abs(claimed - true) <= max(TOLERANCE * true, FLOOR) if exact else None,
        "gains": [true, claimed],
    }


def _known_to(truth: Row, kept: list[int]) -> Row:
    """What reports of some ranks can tell: most of them must not be slow."""
    there = {*kept}
    allowed = [[kind, sorted(there & {*ranks})] for kind, ranks in truth["allowed"]]
    culprits = {name: sorted(there & {*ranks}) for name, ranks in truth.get("culprits", {}).items()}
    must = sorted(there & {*truth["must"]})
    unsure = truth.get("fair_inconclusive") or not 0 < len(must) < len(kept) / 2
    known = {"allowed": allowed, "culprits": culprits, "must": must, "fair_inconclusive": unsure}
    return truth | known


def _part_of_gain(truth: Row, verdict: Verdict) -> float:
    """The share of the gain that belongs to the named ranks, where they are some of the culprits.

    `gain_of` has the gain of each name in `culprits`.
    """
    whole, ranks = sum(truth["gain_by_iteration_ns"]), sorted(verdict.ranks)
    if whole:
        for name, gain in truth.get("gain_of", {}).items():
            if sorted(truth["culprits"][name]) == ranks:
                return float(gain / whole)
    return 1.0


def _outcome(truth: Row, verdict: Verdict, true: float) -> str:
    kind, ranks = verdict.kind.value, sorted(verdict.ranks)
    culprits = {*truth["must"]} | {r for x in truth.get("culprits", {}).values() for r in x}
    if kind == "inconclusive":
        return "undecided, rightly" if truth.get("fair_inconclusive") else "undecided"
    if any(kind == one and sorted(who) == ranks for one, who in truth["allowed"]):
        return "right"
    if kind == "balanced" and truth["ranks"] and true < LEAST_GAIN:
        return "right"
    if {*ranks} - culprits:
        return "innocent"
    if ranks and {*ranks} == {*truth["must"]}:
        return "right ranks, other class"
    return "some of the ranks" if ranks else "missed" if kind == "balanced" else "other class"


def range_cases() -> Iterator[Case]:
    """The ranges of the captures at hand."""
    for reports in [SAMPLE, *(SHARED / "captured" / name for name in CAPTURES)]:
        for limits in RANGES if reports.exists() else ():
            db = _database(reports)
            if not db.exists():
                db.parent.mkdir(exist_ok=True)
                rankscope.ingest([reports], db)
            yield Case("ranges of captures", reports, limits)


def _database(reports: Path) -> Path:
    """Where the database of a capture is kept while the program runs."""
    name = f"{reports.parent.name}-{reports.stem}.duckdb"
    return Path(tempfile.gettempdir()) / f"accuracy-{os.getenv('ACCURACY_RUN')}" / name


def _range_judged(case: Case) -> Row:
    db = _database(case.job)
    assert case.iterations is not None
    limits = slice(*case.iterations)
    run = rankscope.open_run(db)
    comparison = run.compare(rankscope.Options(iter_range=limits))
    verdict, numbers = comparison.verdict, comparison.selection.numbers
    planted: dict[int, list[int]] = defaultdict(list)
    for number in numbers:
        if case.job == SAMPLE:
            if number % 5 == 2:
                planted[2].append(number)
            if number == 18:
                planted[1].append(number)
        else:
            if number % 7 == 3:
                planted[1].append(number)
            if number == 20:
                planted[2].append(number)
    named = {*verdict.ranks} | {rank for each in verdict.also for rank in each.ranks}
    wrong = {*verdict.ranks} - {*planted}  # others may follow: the machine was busy
    outcome = "innocent" if wrong else "right" if {*planted} <= named else "missed"
    return {
        "regime": [comparison.tables.ranks.height, 0, ""],
        "kind": case.group,
        "job": f"{case.job.parent.name}/{case.job.name} {case.iterations}",
        "outcome": outcome,
        "truth": dict(planted),
        "said": [verdict.kind.value, sorted(named)],
        "sentence": verdict.sentence,
    }


def main() -> None:
    """Judge all cases and print a table of outcomes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jobs", nargs="*", type=Path)
    parser.add_argument("--ranges", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--verbose", "-v", action="store_true", help="each case that is not right")
    parser.add_argument("--rows", type=Path, help="write each case as a line of JSON")
    parser.add_argument("--write", action="store_true", help="write the tables into ACCURACY.md")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    os.environ["ACCURACY_RUN"] = str(os.getpid())
    todo = [*cases(chosen.jobs, chosen.parts), *(range_cases() if chosen.ranges else ())]
    context = get_context("spawn")  # polars' threads do not survive a fork
    with ProcessPoolExecutor(chosen.workers, mp_context=context) as pool:
        rows = [*pool.map(judged, todo, chunksize=4)]
    found = {"regimes": regimes(rows), "kinds": kinds(rows)}
    print(*found.values(), sep="\n\n")
    if chosen.rows:
        chosen.rows.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    for row in rows if chosen.verbose else ():
        if row["outcome"] not in ("right", "undecided, rightly") or row.get("gain_right") is False:
            print(f"\n{row['regime']} {row['job']} [{row['outcome']}] {row.get('gains', '')}")
            print(f"  truth {row.get('truth')} said {row.get('said')}: {row.get('sentence')}")
    for mark, text in found.items() if chosen.write else ():
        put(text, mark, PAGE)


def regimes(rows: list[Row]) -> str:
    """Of each size of job what came out, in Markdown."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["regime"]):
        groups.setdefault(_regime(*row["regime"]), []).append(row)
    if len(groups) > 1:
        groups["all"] = rows
    head = ["jobs", "cases", *OUTCOMES, "gain within a quarter"]
    return table(head, [[name, *_cells(some), _gains(some)] for name, some in groups.items()])


def _regime(ranks: int, iterations: int, part: str) -> str:
    if not iterations:
        return f"ranges of captures of {ranks} ranks"
    return f"{ranks} ranks, {counted(iterations, 'iteration')}{part and f', {part}'}"


def kinds(rows: list[Row]) -> str:
    """Of each kind of job that was not always right what came out, the worst first."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[re.sub("^[a-z]_", "", row["kind"]).replace("_", " ")].append(row)
    good = {name: _right(some) / len(some) for name, some in groups.items()}
    worst = sorted((name for name in groups if good[name] < 1), key=lambda name: good[name])
    rest = sorted(set(groups) - {*worst})
    lines = [[name, *_cells(groups[name])] for name in worst]
    return f"{table(['kind', 'cases', *OUTCOMES], lines)}\n\nAlways right: {', '.join(rest)}."


def _right(rows: list[Row]) -> int:
    return sum(row["outcome"] in OUTCOMES[:2] for row in rows)


def _cells(rows: list[Row]) -> list[str]:
    counts = Counter(row["outcome"] if row["outcome"] in OUTCOMES else "other" for row in rows)
    return [f"{len(rows)}", *(f"{counts[each]}" for each in OUTCOMES)]


def _gains(rows: list[Row]) -> str:
    gains = [row["gain_right"] for row in rows if row.get("gain_right") is not None]
    return f"{sum(gains)} of {len(gains)}"


if __name__ == "__main__":
    main()
