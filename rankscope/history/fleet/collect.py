"""The evidence of many databases; of each only the needed tables are read."""

import logging
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from glob import glob
from pathlib import Path

import polars as pl
from msgspec import Struct

from rankscope.compare.cache import cached_answers
from rankscope.compare.comparison import Stage
from rankscope.compare.stages import compare
from rankscope.errors import RankscopeError, ReportError, UsageError
from rankscope.history.fleet.evidence import EVIDENCE, RUNS, TABLES, RunEvidence, evidence
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.store.ledger import Ledger
from rankscope.store.run_reader import opened
from rankscope.store.tables import RunTables
from rankscope.util.wording import agreeing, and_more, counted

THREADS = 4
"""Databases that are open at the same time, since part of the work is waiting for files."""

NAMED = 3
"""Most databases that a warning names."""

log = logging.getLogger("rankscope.history.fleet")


class Collected(Struct, frozen=True):
    """RUNS and EVIDENCE of many runs, and warnings about them."""

    runs: pl.DataFrame
    evidence: pl.DataFrame
    problems: tuple[RunWarning, ...] = ()


def databases(texts: Sequence[str]) -> list[Path]:
    """The databases that paths, folders (searched recursively) and glob patterns name.

    Raises:
        UsageError: a path names none.
    """
    paths: dict[Path, None] = {}
    for text in texts:
        path = Path(text)
        if path.is_dir():
            walked = os.walk(path)  # which passes over folders that go meanwhile
            found = (Path(folder, name) for folder, _, names in walked for name in names)
            matches = sorted(each for each in found if each.suffix == ".duckdb")
        elif path.exists():
            matches = [path]
        else:
            matches = sorted(Path(each) for each in glob(text, recursive=True))
        if not matches:
            raise UsageError(
                f"{text}: no such database, and no folder with some",
                hint="name databases that `rankscope ingest --db FILE` made, or their folder",
            )
        paths |= dict.fromkeys(matches)
    return [*paths]


def collect(paths: Sequence[Path]) -> Collected:
    """The evidence of databases; one that cannot be read is left out, with a warning.

    Raises:
        DatabaseError, ReportError: none can be read.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        results = [*pool.map(_tried, paths)]
    failed = [(path, each) for path, each in results if isinstance(each, RankscopeError)]
    usable = [each for _, each in results if isinstance(each, RunEvidence)]
    if failed and not usable:
        raise failed[0][1]
    problems = [] if not failed else [_left_out(failed)]
    runs = pl.concat([RUNS.to_frame(), *(each.run for each in usable)])
    ranks = pl.concat([EVIDENCE.to_frame(), *(each.ranks for each in usable)])
    return merged(runs, ranks, problems)


def merged(
    runs: pl.DataFrame, ranks: pl.DataFrame, problems: Iterable[RunWarning] = ()
) -> Collected:
    """Runs in the order of their starts, each once.

    Args:
        runs: RUNS; a run may have several rows.
        ranks: EVIDENCE of them; a run with several rows has its evidence as often.
    """
    warnings = [*problems]
    several = runs.height - runs["run"].n_unique()
    if several:
        names = runs.filter(~pl.col("run").is_first_distinct())["db"].drop_nulls().to_list()
        which = f": {and_more(names, NAMED)}" if names else ""
        warnings.append(
            RunWarning(
                "same-run",
                f"{counted(several, 'database')} {agreeing(several, 'holds', 'hold')} runs that "
                f"others hold as well, and {agreeing(several, 'is', 'are')} left out{which}",
            )
        )
    runs = runs.unique("run", keep="first", maintain_order=True)
    ranks = ranks.unique(["run", "rank"], keep="first", maintain_order=True)
    unknown = runs.filter(pl.col("start_ns").is_null()).height
    if unknown:
        warnings.append(
            RunWarning(
                "start-unknown",
                f"{counted(unknown, 'run')} {agreeing(unknown, 'does', 'do')} not say when "
                f"{agreeing(unknown, 'it', 'they')} began: no trend",
            )
        )
    # One order, whatever came first: sums of the same numbers differ by their order.
    in_time = runs.sort("start_ns", "run", nulls_last=True)
    return Collected(in_time, ranks.sort("run", "rank"), tuple(warnings))


def evidence_of(path: Path) -> RunEvidence:
    """The evidence of one database, by its cached verdict; without one the ranks are compared.

    Raises:
        DatabaseError: missing, locked, damaged, or of another version.
        ReportError: no iterations can be compared.
    """
    with opened(path) as (database, _):
        tables = RunTables(path.stem, database)
        reports, ranks = tables.reports, tables.ranks
        if ranks.is_empty():
            raise ReportError(f"{path}: holds no ranks", hint="rankscope ingest PROFILES")
        answers = cached_answers(tables, database.comparison_table("answers"))
        if answers is not None:
            verdict, roles, scope = answers.verdict, answers.roles, answers.scope
            numbers, blind = scope.selection.numbers, scope.blind_ranks
        else:
            log.info("%s: its ranks are compared: ingest caches the answer", path)
            comparison = compare(tables, Options(), until=Stage.VERDICT)
            verdict, roles = comparison.verdict, comparison.roles.of
            numbers, blind = comparison.selection.numbers, comparison.scope.blind_ranks
    return evidence(str(path), reports, ranks, verdict, roles, len(numbers), blind)


def _tried(path: Path) -> tuple[Path, RunEvidence | RankscopeError]:
    try:
        return path, evidence_of(path)
    except RankscopeError as error:
        return path, error


def _left_out(failed: list[tuple[Path, RankscopeError]]) -> RunWarning:
    messages = (f"{path}: {error.message.removeprefix(f'{path}: ')}" for path, error in failed)
    named = and_more([*messages], NAMED, "; ")
    return RunWarning(
        "left-out",
        f"{counted(len(failed), 'database')} {agreeing(len(failed), 'is', 'are')} left out: "
        f"{named}",
    )


def add_to_ledger(path: Path, collected: Collected) -> None:
    """Write the evidence of runs to a ledger, in place of that of the same runs.

    Raises:
        DatabaseError: it cannot be written, or is no ledger.
    """
    Ledger(path, TABLES).add({"runs": collected.runs, "evidence": collected.evidence})


def read_ledger(path: Path, more: Collected | None = None) -> Collected:
    """The evidence of a ledger, and of other runs.

    Raises:
        DatabaseError: the ledger does not exist, or the file is not a ledger.
    """
    tables = Ledger(path, TABLES).read()
    if more is None:
        return merged(tables["runs"], tables["evidence"])
    known = more.runs.filter(~pl.col("run").is_in(tables["runs"]["run"].implode()))
    fresh = more.evidence.filter(pl.col("run").is_in(known["run"].implode()))
    return merged(
        pl.concat([tables["runs"], known]),
        pl.concat([tables["evidence"], fresh]),
        more.problems,
    )
