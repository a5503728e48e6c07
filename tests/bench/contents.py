"""Databases that hold what none can hold: `python -m tests.bench.contents [EVERY [FIRST]]`.

Each is a copy of a whole one with one change: of a value in one row or all, of a column, of a
table. Every command must get an answer or one line with exit code 4 (3 where nothing is left to
compare); no traceback, and no more memory than a whole one takes and as much again.

EVERY n-th mutant is tried, from FIRST on. Prints a JSON object for each that got no clear answer,
and exits with 1 if there was one.
"""

import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import polars as pl

import rankscope
from rankscope.errors import DatabaseError
from rankscope.model.columns import Column
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.tables import TABLES
from rankscope.store import Database
from rankscope.view.page_server import RunAnswers
from tests.bench.fuzz import answer, complaint, named
from tests.forge import forge, scene

EVERY_TABLE = TABLES | COMPARED_TABLES

AS_LIMIT = 8 * 10**9
"""Of address space, which engines reserve far more of than they use."""

LONGEST_S = 30
"""Of processor time; a busy machine may take longer."""

COMMANDS = (
    "imbalance --db {db} --all --format json",
    "imbalance --db {db} --iter-range 5:12",
    "imbalance --db {db} --clock host --statistic p95",
    "imbalance --db {db} --by host",
    "imbalance --db {db} --by iteration",
    "imbalance --db {db} --by phase",
    "imbalance --db {db} --by collective",
    "imbalance --db {db} --by kernel",
    "imbalance --db {db} --by cause",
    "imbalance --db {db} --roles dp=4 --include-warmup",
    "pick-reports --db {db} --view view.txt",
    "plot heatmap --db {db} -o plot.svg",
    "plot phases --db {db} -o plot.svg",
    "plot timeline --db {db} -o plot.svg",
    "plot arrivals --db {db} -o plot.svg",
    "plot why --db {db} -o plot.svg",
    "report --db {db} -o report.html",
    "export --db {db} -o trace.json",
    "export --db {db} -o table.csv",
    "check --db {db}",
    "diff {whole} {db}",
    "diff {db} {whole}",
    "fleet {db} --html fleet.html",
    "fleet --store {db}.ledger add {db}",
    "capture torchrun --for {db}",
    "ingest {reports} --db {db}",
    "ingest {other} --db {db}",
    "watch {reports} --db {db} --once --settle 0",
    "served",
)


@dataclass(frozen=True)
class Change:
    """A change of a database, and what it is called."""

    what: str
    statements: tuple[str, ...]

    def made(self, source: Path, target: Path) -> Path:
        """A copy of a database with this change."""
        shutil.copyfile(source, target)
        with duckdb.connect(str(target)) as connection:
            for statement in self.statements:
                connection.execute(statement)
        return target


def changes() -> Iterator[Change]:
    """All of them."""
    for name, table in EVERY_TABLE.items():
        for column, described in table.columns.items():
            for value in column_values(described):
                for rows, where in (("a row", f"{name}.rowid = 0"), ("all rows", "true")):
                    update = f'update {name} set "{column}" = {value} where {where}'
                    yield Change(f"{name}.{column} = {value[:40]} in {rows}", (loose(name), update))
            yield from _of_column(name, column, described)
        yield Change(f"{name} without rows", (f"delete from {name}",))
        yield Change(f"{name} without a row", (f"delete from {name} where rowid = 0",))
        again = f"insert into {name} from {name}"
        yield Change(f"{name} twice", (loose(name), again))
        yield Change(f"{name} with a row twice", (loose(name), f"{again} limit 1"))
        yield Change(f"{name} missing", (f"drop table {name}",))
        yield Change(f"{name} with more", (f"alter table {name} add column extra integer",))
        more = "select 1::integer as extra, *"
        yield Change(
            f"{name} with more that may not be null",
            (
                f"create or replace table {name} as {more} from {name}",
                f"alter table {name} alter column extra set not null",
            ),
        )
    for clock in ("gpu", "host"):
        for name in ("measures", "exposed"):
            gone = f"delete from {name} where clock = '{clock}'"
            yield Change(f"{name} without {clock}", (gone,))
    for name in (name for name, each in EVERY_TABLE.items() if "rank" in each.columns):
        yield Change(f"{name} without a rank", (f"delete from {name} where rank = 1",))


def loose(table: str) -> str:
    """A table without constraints, so that anything may stand in it."""
    return f"create or replace table {table} as from {table}"


def column_values(column: Column) -> list[str]:
    """Values, in SQL, that a column should not have, or hardly."""
    if column.dtype.is_nested():
        return ["null", "[null]", "[]", "[-1]", "[2147483647]", "range(2000000)"]
    if column.dtype == pl.String():
        return [
            "null",
            "''",
            "'x'",
            "'{'",
            "'[]'",
            "'null'",
            "'1e999'",
            "'\x1b[2J'",
            "repeat('x', 100000)",
        ]
    if column.dtype == pl.Boolean():
        return ["null", "true", "false"]
    if column.dtype == pl.UInt32():
        return ["null", "0", "4294967295"]
    most = str(column.limits[1]) if column.limits else "0"
    values = ["null", "0", "-1", most, str(-(2**63)), str(2**63 - 1)]
    return [*values, "'nan'", "'inf'", "'-inf'"] if column.dtype.is_float() else values


def _of_column(name: str, column: str, described: Column) -> Iterator[Change]:
    """Changes of a column."""
    other = "integer" if described.dtype == pl.String() else "varchar"
    retyped = f'select * replace (try_cast("{column}" as {other}) as "{column}") from {name}'
    yield Change(f"{name}.{column} as {other}", (f"create or replace table {name} as {retyped}",))
    without = f'create or replace table {name} as select * exclude ("{column}") from {name}'
    yield Change(f"{name} without {column}", (without,))


def served(db: Path) -> tuple[int, str]:
    """What a served page answers: exit code and error."""
    try:
        ask = RunAnswers(db, rankscope.Options())
        ask.page("")
        ask.timeline("", "0,1", "5")
        ask.states("", "1", "5")
    except rankscope.RankscopeError as error:
        return 4, f"rankscope: error: {error.message}\nhint: {error.hint}"
    return 0, ""


def refused(db: Path) -> str | None:
    """What the store says of a database; None if it takes all that is in it."""
    try:
        with Database.open(db) as database:
            for name in (*TABLES, *database.compared):
                database.table(name)
    except DatabaseError as error:
        return error.message
    return None


def run(every: int, first: int) -> int:
    """Try mutants; how many got no clear answer."""
    resource.setrlimit(resource.RLIMIT_AS, (AS_LIMIT, AS_LIMIT))
    outcomes: Counter[str] = Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        os.chdir(base)
        forge(scene("plain", ranks=4, iterations=14), base / "job")
        reports = sorted((base / "job").glob("*.sqlite"))
        (base / "other").mkdir()
        other = shutil.copy(reports[0], base / "other" / reports[0].name)
        whole = base / "whole.duckdb"
        rankscope.ingest(["job"], whole)
        for number, change in enumerate(changes()):
            if number % every != first:
                continue
            db = base / "run.duckdb"
            said = refused(change.made(whole, db))
            outcomes["refused" if said else "taken"] += 1
            turn = number // every * 3
            several = [*(COMMANDS * 2)[turn % len(COMMANDS) :][: 1 if said else 3]]
            for at, command in enumerate(several):
                os.environ["RANKSCOPE_CACHE"] = "10"[(at + turn) % 2]
                kept = change.made(whole, db)
                begin = time.process_time()
                paths = {"db": kept, "whole": whole, "reports": base / "job", "other": other}
                with named(f"{number} {change.what} {command}"):
                    code, err = _answer(command.format(**paths).split(), kept)
                outcomes[f"exit {code}"] += 1
                why = complaint(code, err, (2, 3, 4))
                if time.process_time() - begin > LONGEST_S:
                    why = "took too long"
                if why is not None:
                    bad += 1
                    output = {"mutant": change.what, "command": command, "why": why}
                    output["cache"] = os.environ["RANKSCOPE_CACHE"]
                    print(json.dumps({**output, "stderr": err[-1500:]}), flush=True)
            for left in base.glob("*.ledger"):
                left.unlink()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**outcomes, "bad": bad, "memory_MB": memory // 10**6}))
    return bad


def _answer(words: list[str], db: Path) -> tuple[int, str]:
    """Exit code and stderr of a command, or of a served page."""
    try:
        if words == ["served"]:
            return served(db)
        code, _, err = answer(*words)
    except BaseException as error:
        return 1, "".join(traceback.format_exception(error))
    return code, err


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(run(*(given + [1, 0][len(given) :])) > 0)
