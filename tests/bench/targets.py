"""`python -m tests.bench.targets`: what users wait for, beside what it should be, in one table.

Makes reports and databases, runs everything in turn, and writes a line for each target into
MEASUREMENTS.md: what was measured, the ratio that the target limits, and the same of another
checkout (`--beside TREE`) in the same run. Linux; 6 GB of disk. `--parts` picks some of the lines,
`--rivals FOLDER` says where `tests/bench/rivals.sh FOLDER` installed other tools. Without nsys on
PATH or in RANKSCOPE_NSYS the lines about exports are left out, and said so.
"""

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench import rivals
from tests.bench.beside import measured
from tests.bench.costs import ROOT, Cost, cost, machine, settle
from tests.bench.reports import large_report, large_reports, repeated
from tests.bench.shapes import SHAPES, shaped_reports
from tests.bench.tables import put, rows
from tests.support import SHARED

ONE_THREAD = {"POLARS_MAX_THREADS": "1"}
"""Environment of an ingest, whose work is shared out by processes alone."""

HEAD = ("what users wait for", "measured", "target", "met")

ROWS_MB, FEW, MANY = 121.0, 4, 8
"""A report of 2.1 million rows; of each shape a further one costs what `MANY` cost more than `FEW`,
each."""

AUTO_MB = (2.0, 580.0)
"""Reports of 33,000 and of 10 million events."""

PUBLIC = {"mfu_2gpu_before.sqlite": 50, "ai_profiler_baseline_nvtx.nsys-rep": 40}
"""Large public reports, and how often each is repeated."""

WORKERS = (1, 2, 4)

LARGE_RUN = ("--ranks", "1024", "--iterations", "1000", "--collectives", "20", "--why")
OTHERS = (
    ("--include-warmup",),
    ("--clock", "host"),
    ("--statistic", "p95"),
    ("--iter-range", "100:200"),
    ("--by", "collective"),
    ("--by", "kernel"),
    ("--by", "cause"),
)
"""Options that a database holds no answer for."""

NVTX_LOOP = """
import nvtx
for number in range(600):
    with nvtx.annotate(f"iteration {number}"):
        for phase in ("data", "forward", "backward"):
            with nvtx.annotate(phase):
                for _ in range(330):
                    with nvtx.annotate("operator"):
                        pass
"""
"""A program that nsys records 600,000 ranges of."""


@dataclass(frozen=True)
class Bench:
    """Where and how often to measure."""

    folder: Path
    repeat: int
    trees: tuple[Path, ...]  # this checkout first
    rivals: Path

    def run(self, *words: str, tree: Path = ROOT, own: dict[str, str] | None = None) -> Cost:
        """The cost of one rankscope command of a checkout; `own` is added to its environment."""
        path = os.pathsep.join((str(tree), str(tree / "cli")))
        own = {**(own or {}), "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        return cost([sys.executable, "-m", "rankscope", *words], own)

    def ingest(
        self,
        reports: list[Path],
        jobs: int | None,
        *words: str,
        tree: Path = ROOT,
        own: dict[str, str] | None = None,
    ) -> Cost:
        """The cost of an ingest into a database of the checkout; jobs: None leaves them open."""
        db = ("--db", str(self.folder / f"{self.trees.index(tree)}.duckdb"), "--rebuild")
        workers = () if jobs is None else ("--jobs", str(jobs))
        own = {**ONE_THREAD, **(own or {})}
        return self.run("ingest", *map(str, reports), *db, *workers, *words, tree=tree, own=own)

    def exported(self, reports: list[Path], own: dict[str, str], tree: Path) -> Cost:
        """The cost of an ingest of `.nsys-rep` files."""
        ranks = ("--rank-pattern", r"rank_(?P<rank>\d+)")
        return self.ingest(reports, 2, *ranks, tree=tree, own=own)

    def fastest(self, commands: dict[str, Callable[[], Cost]]) -> dict[str, Cost]:
        """The fastest run of each; in turn, so that what disturbs one disturbs all."""
        best: dict[str, Cost] = {}
        for _ in range(self.repeat):
            for name, command in commands.items():
                took = command()
                sys.stderr.write(f"{name}: {took.seconds:.2f} s, {took.cpu_s:.2f} s CPU\n")
                best[name] = min(best.get(name, took), took, key=lambda each: each.seconds)
        return best

    def per_tree(self, command: Callable[[Path], Cost], name: str) -> dict[str, Callable[[], Cost]]:
        """A command for each checkout."""
        return {f"{name}@{at}": lambda tree=tree: command(tree) for at, tree in self.trees_at()}

    def trees_at(self) -> Iterator[tuple[int, Path]]:
        """Each checkout with its place."""
        return iter(enumerate(self.trees))

    def line(self, what: str, value: Callable[[int], float], limit: float, unit: str) -> list[str]:
        """A row of the table: the value of this checkout, in brackets those of others."""
        own, *others = (value(at) for at in range(len(self.trees)))
        beside = "".join(f" ({each:.2f} {unit})" for each in others)
        return [
            what,
            f"{own:.2f} {unit}{beside}",
            f"{limit:g} {unit}",
            "yes" if own <= limit else "no",
        ]


def further(bench: Bench) -> Iterator[list[str]]:
    """A further report of 2.1 million rows and more, of each shape, beside sqlite3 of Python."""
    for number, (name, shape) in enumerate(SHAPES.items()):
        folder = bench.folder / f"shape_{number}"
        reports = shaped_reports(shape, folder, MANY)
        yield _further(bench, f"a further report, {name}", reports[:FEW], reports)
        shutil.rmtree(folder)


def public(bench: Bench) -> Iterator[list[str]]:
    """The same of two public exports, repeated: what twice as many repetitions cost more."""
    nsys = shutil.which(os.environ.get("RANKSCOPE_NSYS", "nsys"))
    for name, times in PUBLIC.items():
        source = SHARED / "public" / "nsys" / name
        what = f"{times} times {source.stem} more"
        if not source.exists() or (source.suffix != ".sqlite" and nsys is None):
            yield [what, "– (not here)", "0.7 ×", "–"]
            continue
        export = source
        if nsys is not None and source.suffix != ".sqlite":
            export = bench.folder / f"{source.stem}.sqlite"
            command = [nsys, "export", "-q", "true", "-t", "sqlite", "-o", str(export), str(source)]
            subprocess.run(command, check=True, capture_output=True)
        few, many = (
            repeated(export, bench.folder / f"{source.stem}_{each}.sqlite", each)
            for each in (times, 2 * times)
        )
        yield _further(bench, what, [few], [many])


def _further(bench: Bench, what: str, few: list[Path], many: list[Path]) -> list[str]:
    settle(many)
    commands: dict[str, Callable[[], Cost]] = {}
    for name, some in (("few", few), ("many", many)):
        plain = [sys.executable, "-m", "tests.bench.plain", "rows", "2", *map(str, some)]
        commands[f"sqlite3 {name}"] = lambda plain=plain: cost(plain, {})
        commands |= bench.per_tree(
            lambda tree, some=some: bench.ingest(some, 2, tree=tree), f"ingest {name}"
        )
    took = bench.fastest(commands)
    one = took["sqlite3 many"].cpu_s - took["sqlite3 few"].cpu_s

    def ratio(at: int) -> float:
        return (took[f"ingest many@{at}"].cpu_s - took[f"ingest few@{at}"].cpu_s) / one

    each = one / max(len(many) - len(few), 1)
    return bench.line(f"CPU time of {what}, beside sqlite3 ({each:.2f} s)", ratio, 0.7, "×")


def start(bench: Bench) -> Iterator[list[str]]:
    """Short commands."""
    reports = large_reports(1.0, bench.folder / "small", 8, numbered=False)
    commands = bench.per_tree(lambda tree: bench.ingest(reports, None, tree=tree), "small ingest")
    commands |= bench.per_tree(lambda tree: bench.run("--help", tree=tree), "--help")
    for at, tree in bench.trees_at():
        db = str(bench.folder / f"{at}.duckdb")
        commands[f"imbalance@{at}"] = lambda db=db, tree=tree: bench.run(
            "imbalance", "--db", db, tree=tree
        )
    took = bench.fastest(commands)
    for name, what, limit in (
        ("small ingest", "ingest of 8 reports of 1 MB", 1.0),
        ("--help", "rankscope --help", 0.1),
        ("imbalance", "rankscope imbalance", 0.6),
    ):
        yield bench.line(what, lambda at, name=name: took[f"{name}@{at}"].seconds, limit, "s")


def export(bench: Bench) -> Iterator[list[str]]:
    """`.nsys-rep` to verdict, beside the export alone."""
    nsys = shutil.which(os.environ.get("RANKSCOPE_NSYS", "nsys"))
    if nsys is None:
        yield ["`.nsys-rep` to verdict", "– (no nsys)", "1.25 ×", "–"]
        return
    folder = bench.folder / "recorded"
    folder.mkdir()
    reports = [folder / f"report_rank_{rank}.nsys-rep" for rank in range(MANY)]
    for report in reports:  # copies of one would be left out
        command = [nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none"]
        program = ["-o", str(report), sys.executable, "-c", NVTX_LOOP]
        subprocess.run([*command, *program], check=True, capture_output=True)
    usage = subprocess.run([nsys, "export", "--help"], capture_output=True, text=True, check=True)
    kind = "parquetdir" if "parquetdir" in usage.stdout else "sqlite"
    script = (
        f'rm -rf "$1/out"; mkdir "$1/out"; ls "$1"/*.nsys-rep | xargs -P2 -I@ sh -c '
        f'\'"$0" export -q true -t {kind} -o "$1/out/$(basename @)" @ > /dev/null\' "$2" "$1"'
    )
    alone = ["sh", "-c", script, "sh", str(folder), nsys]
    took = bench.fastest(
        {"export": lambda: cost(alone, {})}
        | bench.per_tree(lambda tree: bench.exported(reports, {}, tree), "ingest")
    )
    one = took["export"].seconds
    what = f"`.nsys-rep` to verdict, beside the export alone ({one:.1f} s, {kind})"
    yield bench.line(what, lambda at: took[f"ingest@{at}"].seconds / one, 1.25, "×")
    yield from _recipe_with_export(bench, reports)


def _recipe_with_export(bench: Bench, reports: list[Path]) -> Iterator[list[str]]:
    """The same beside a recipe, which exports too; both with the recipe's nsys."""
    recipe = next(way for way in rivals.of_nsys(bench.rivals) if way.name.endswith("nvtx_sum"))
    what = f"`.nsys-rep` to verdict, beside {recipe.name} with its export"
    nsys = rivals.nsys_with_recipes(bench.rivals)
    if nsys is None or recipe.missing is not None:
        yield [what, f"– ({recipe.missing})", "0.5 ×", "–"]
        return

    def exports_and_sums() -> Cost:
        for made in reports[0].parent.glob("*_pqtdir"):
            shutil.rmtree(made)
        return cost(recipe.command(2, reports), recipe.environment(2))

    own = {"RANKSCOPE_NSYS": nsys}
    took = bench.fastest(
        {recipe.name: exports_and_sums}
        | bench.per_tree(lambda tree: bench.exported(reports, own, tree), "ingest")
    )
    one = took[recipe.name].seconds
    what = f"{what} ({one:.1f} s)"
    yield bench.line(what, lambda at: took[f"ingest@{at}"].seconds / one, 0.5, "×")


def auto(bench: Bench) -> Iterator[list[str]]:
    """Steps found from what repeats, beside the same report with markers."""
    for megabytes in AUTO_MB:
        yield _auto(bench, megabytes)


def _auto(bench: Bench, megabytes: float) -> list[str]:
    folder = bench.folder / f"auto_{megabytes:g}"
    folder.mkdir()
    report = [large_report(megabytes, folder / "report_rank_0.sqlite")]
    settle(report)
    took = bench.fastest(
        bench.per_tree(lambda tree: bench.ingest(report, 1, tree=tree), "markers")
        | bench.per_tree(
            lambda tree: bench.ingest(report, 1, "--iteration", "auto", tree=tree), "auto"
        )
    )
    return bench.line(
        f"CPU time of `--iteration auto` beside markers, report of {megabytes:g} MB",
        lambda at: took[f"auto@{at}"].cpu_s / took[f"markers@{at}"].cpu_s,
        1.3,
        "×",
    )


def memory(bench: Bench) -> Iterator[list[str]]:
    """A report of 1 GB in one process."""
    folder = bench.folder / "large"
    folder.mkdir()
    report = [large_report(1000.0, folder / "report_rank_0.sqlite")]
    settle(report)
    took = bench.fastest(bench.per_tree(lambda tree: bench.ingest(report, 1, tree=tree), "1 GB"))
    yield bench.line(
        "peak memory of a process, report of 1 GB",
        lambda at: took[f"1 GB@{at}"].peak_bytes / 1e6,
        400,
        "MB",
    )


def across(bench: Bench) -> Iterator[list[str]]:
    """The end of an ingest of 1,024 ranks, with what tells why, and answers that are not kept."""
    ends, asked = [], []
    # in a shared cache, other programs push out which tables were checked
    cache = {"XDG_CACHE_HOME": str(bench.folder / "cache")}
    for at, tree in bench.trees_at():
        db = bench.folder / f"large_run_{at}.duckdb"
        path = {"PYTHONPATH": os.pathsep.join((str(tree), str(tree / "cli")))}
        step = ["-m", "tests.bench.answers", "--db", str(db), *LARGE_RUN, "--step"]
        own = {**path, **cache, "PYTHONSAFEPATH": "1"}
        cost([sys.executable, *step, "write"], own)
        ends.append(cost([sys.executable, *step, "compare"], own))
        where = ("imbalance", "--db", str(db), "--format", "json")
        asked.append(
            {words: bench.run(*where, *words, tree=tree, own=cache) for words in ((), *OTHERS)}
        )
    run = "1,024 ranks × 1,000 × 20 with `why`"
    yield bench.line(f"end of ingest, {run}", lambda at: ends[at].seconds, 12, "s")
    yield bench.line("its peak memory", lambda at: ends[at].peak_bytes / 1e9, 1.5, "GB")
    for words in asked[0]:
        what = " ".join(("imbalance", *words))
        yield bench.line(
            f"`{what}`, {run}", lambda at, words=words: asked[at][words].seconds, 4, "s"
        )


def peers(bench: Bench) -> Iterator[list[str]]:
    """Recipes and peers on the same events."""
    reports = large_reports(ROWS_MB, bench.folder / "exports", FEW, numbered=False)
    ways = rivals.of_nsys(bench.rivals)
    found = measured(ways, reports, 2, bench.repeat)
    yield from (
        [f"time per event beside {name}", f"– ({why})", "0.5 ×", "–"]
        for name, why in found.absent.items()
    )
    for way in ways:
        if way.name in found.absent or way.name == way.beside:
            continue
        took, events = found.best[way.name]
        ratio = found.per_event(way.beside) / found.per_event(way.name)
        yield bench.line(
            f"time per event beside {way.name} ({took.seconds:.1f} s for {events:,})",
            lambda _, ratio=ratio: ratio,
            0.5,
            "×",
        )


def traces(bench: Bench) -> Iterator[list[str]]:
    """Eight PyTorch traces, a public one with other ranks, beside HTA."""
    source = SHARED / "public" / "kineto" / "hta_nccl_metadata_rank0.json.gz"
    way = rivals.of_traces(bench.rivals)
    what = f"CPU time of 8 traces, beside {way.name}"
    missing = way.missing if source.exists() else "not here"
    if missing is not None:
        yield [what, f"– ({missing})", "1 ×", "–"]
        return
    folder = bench.folder / "traces"
    folder.mkdir()
    trace = json.loads(gzip.decompress(source.read_bytes()))
    reports = [folder / f"rank{rank}.json" for rank in range(MANY)]
    for rank, path in enumerate(reports):
        trace["distributedInfo"] |= {"rank": rank, "world_size": MANY}
        path.write_text(json.dumps(trace))
    settle(reports)
    took = bench.fastest(
        {way.name: lambda: cost(way.command(1, reports), {})}
        | bench.per_tree(lambda tree: bench.ingest(reports, 1, tree=tree), "ingest")
    )
    one = took[way.name].cpu_s
    size = sum(path.stat().st_size for path in reports) / 1e6
    what = f"{what} ({one:.1f} s), {size:.0f} MB together"
    yield bench.line(what, lambda at: took[f"ingest@{at}"].cpu_s / one, 1, "×")


def dask(bench: Bench) -> Iterator[list[str]]:
    """CPU time of a report with several workers of a Dask cluster, beside one worker."""
    from tests.ingestion.workers.dask_cluster import Cluster

    reports = large_reports(20.0, bench.folder / "reports", MANY, numbered=False)
    took: dict[int, float] = {}
    for count in WORKERS:
        cluster = Cluster(Path(tempfile.mkdtemp(dir=bench.folder)))
        try:
            cluster.ensure(count)
            options = ("--scheduler", cluster.address)
            bench.ingest(reports, None, *options)  # workers import what they need
            for _ in range(bench.repeat):
                before = sum(cluster.client.run(time.process_time).values())
                bench.ingest(reports, None, *options)
                spent = sum(cluster.client.run(time.process_time).values()) - before
                took[count] = min(took.get(count, spent), spent)
        finally:
            cluster.close()
    for count in WORKERS[1:]:
        ratio = took[count] / took[1]
        what = f"CPU time per report with {count} Dask workers, beside one ({took[1] / MANY:.2f} s)"
        yield bench.line(what, lambda _, ratio=ratio: ratio, 1.15, "×")


PARTS: dict[str, Callable[[Bench], Iterator[list[str]]]] = {
    each.__name__: each
    for each in (further, public, start, export, auto, memory, across, dask, peers, traces)
}


def commit(tree: Path) -> str:
    """The commit of a checkout, in short."""
    words = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.targets", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS], metavar="PART")
    parser.add_argument("--repeat", type=int, default=3, help="of which the fastest counts")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], metavar="TREE")
    parser.add_argument("--rivals", type=Path, default=Path("rivals"), metavar="FOLDER")
    parser.add_argument("--temp", type=Path, help="folder for the reports")
    parser.add_argument("--print", action="store_true", help="print the table, write no file")
    args = parser.parse_args(arguments)
    lines: list[list[str]] = []
    with tempfile.TemporaryDirectory(prefix="targets-", dir=args.temp) as name:
        for part in args.parts:
            folder = Path(name) / part
            folder.mkdir()
            trees = (ROOT, *(tree.resolve() for tree in args.beside))
            lines += PARTS[part](Bench(folder, args.repeat, trees, args.rivals.resolve()))
            shutil.rmtree(folder)
    beside = f" Beside: {', '.join(map(commit, args.beside))}." if args.beside else ""
    where = f"On {machine()}, load {os.getloadavg()[0]:.1f} afterwards.{beside}"
    text = f"{rows(HEAD, lines)}\n\n{where}"
    if args.print or {*args.parts} != {*PARTS}:
        sys.stdout.write(f"{text}\n")
    else:
        put(text, "targets")
    return 0 if all(line[-1] != "no" for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
