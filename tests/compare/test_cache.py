"""Cached answers are the computed ones, and are used only while they hold."""

import logging
import os
import pickle
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import polars as pl
import pytest
from msgspec.structs import replace

import rankscope
from rankscope.api import picks_of
from rankscope.compare.cache import fingerprint
from rankscope.compare.comparison import Comparison, Stage
from rankscope.compare.stages import compare
from rankscope.errors import DatabaseError
from rankscope.model.metrics import METRICS
from rankscope.model.options import Options
from rankscope.output.documents import imbalance as documents
from rankscope.output.documents import pick_reports
from rankscope.output.documents.common import plain
from rankscope.store import Database
from rankscope.store.tables import RunTables, TableReader, TableRequest
from rankscope.util.source_digest import OF_ANSWERS, source_digest
from tests.forge import forge, scene
from tests.support import ROOT, Cli, MakeStored, mostly_nightly, mostly_slow

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"iter_range": slice(4, 20)},
    {"include_warmup": True},
    {"clock": "host", "iter_range": slice(4, 20)},
    {"roles": "tp=2,dp=2"},
    {"iter_range": slice(0, None)},
    {"clock": "host"},
    {"statistic": "p95"},
    {"roles": "tp=2,dp=2", "iter_range": slice(4, 20)},
)

LARGE = {"collectives", "exposed", "activities", "measures"}
"""Tables that grow with the run, and that cached answers spare."""


class Watched:
    """A reader that notes what is read, by the one thread that may use a connection."""

    def __init__(self, reader: TableReader) -> None:
        self.reader = reader
        self.requests: list[TableRequest] = []

    def read(self, request: TableRequest) -> pl.DataFrame:
        assert current_thread() is main_thread()
        self.requests.append(request)
        return self.reader.read(request)


def watched(run: rankscope.Run, **options: Any) -> tuple[Comparison, list[TableRequest]]:
    """The comparison of a run with cached answers, and the list of what it reads from now on."""
    cached = run.compare()
    reader = Watched(cached.tables.reader)
    tables = RunTables("run", reader)
    reuse = replace(cached, scope=replace(cached.scope, tables=tables))
    return compare(tables, Options(**options), reuse), reader.requests


def answers(comparison: Comparison) -> dict[str, Any]:
    """All that the commands say of a comparison."""
    result = comparison.imbalance()
    picks = picks_of(comparison, None)
    marked = comparison.rows(["work", "iteration"], all_iterations=True, flags=True)
    flags = comparison.flags()
    picked = pick_reports.pick_reports(
        None, comparison, comparison.warnings, picks, command=None, view=None, rsync=None
    )
    return {
        **plain(documents.imbalance(None, comparison, result, result.iterations)),
        "load": comparison.imbalance(["load"]).iterations.to_dicts(),
        "error": result.wait_error_ns,
        "picks": plain(picked),
        "flags": None if flags is None else flags.sort("rank", "iteration").rows(),
        "marked": marked.sort("rank", "iteration").rows(),
        "rows": comparison.rows(all_iterations=True).rows(),
        "known": [name for name in METRICS if comparison.knows(name)],
        "waits": comparison.waits().rows(),
    }


def computed(run: rankscope.Run, **options: Any) -> Comparison:
    """The same comparison without any cache."""
    return compare(run.tables, Options(**options))


@cache
def everything(tables: RunTables) -> Comparison:
    """All stages, computed once."""
    return compare(tables, Options())


def is_cached(run: rankscope.Run) -> bool:
    return run._cached is not None


@pytest.mark.parametrize("options", mostly_slow(OPTIONS, 2, 3), ids=str)
def test_cached_answers_are_the_computed_ones(stored: MakeStored, options: dict[str, Any]) -> None:
    run = stored("buckets").run
    assert is_cached(run)
    assert answers(run.compare(Options(**options))) == answers(computed(run, **options))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mostly_nightly(["host_only", "late_capture", "slow_host", "sequence_lengths"])
)
def test_also_those_of_other_jobs(stored: MakeStored, name: str) -> None:
    run = stored(name).run
    assert answers(run.compare()) == answers(computed(run))


@pytest.mark.slow
def test_transfers_that_roles_pair_are_paired(stored: MakeStored) -> None:
    run = stored("pipeline", ranks=16, iterations=12).run
    found = answers(run.compare(Options(roles="pp=4,dp=4")))
    assert found == answers(computed(run, roles="pp=4,dp=4"))
    assert found["verdict"] != answers(run.compare())["verdict"]


@pytest.mark.parametrize("options", [{}, {"iter_range": slice(4, 20)}, {"clock": "host"}], ids=str)
def test_a_pickled_comparison_gives_equal_answers(
    stored: MakeStored, options: dict[str, Any]
) -> None:
    comparison = stored("buckets").run.compare(Options(**options))
    again = pickle.loads(pickle.dumps(comparison))
    assert answers(again) == answers(comparison)
    result = pickle.loads(pickle.dumps(comparison.imbalance()))
    assert result.ranks.equals(comparison.imbalance().ranks)
    assert result.verdict == comparison.verdict


@pytest.mark.slow
@pytest.mark.parametrize("until", mostly_slow(Stage, 2))
def test_a_stage_gives_what_the_whole_comparison_gives(stored: MakeStored, until: Stage) -> None:
    run = stored("buckets").run
    part, whole = compare(run.tables, Options(), until=until), everything(run.tables)
    assert part.facts == whole.facts
    if until >= Stage.TABLE:
        assert part.rows().equals(whole.rows())
    if until >= Stage.OUTLIERS:
        assert part.rank_iterations().equals(whole.rank_iterations())
    if until >= Stage.VERDICT:
        assert part.verdict == whole.verdict
        assert part.scores.equals(whole.scores)
    else:
        with pytest.raises(LookupError, match=r"Stage\.VERDICT"):
            _ = part.verdict
    if until < Stage.SUMMARY:
        with pytest.raises(LookupError, match=r"Stage\.SUMMARY"):
            _ = part.summary
    else:
        assert (part.summary.what_if is None) is (until < Stage.WHAT_IF)


def test_default_answers_read_no_large_table(stored: MakeStored) -> None:
    comparison, requests = watched(stored("buckets").run)
    comparison.imbalance()
    assert comparison.warnings is not None
    assert "iterations" not in {each.table for each in requests}, requests
    picks_of(comparison, None)
    comparison.rows(["work"], flags=True)
    assert not LARGE & {each.table for each in requests}, requests


def test_a_range_reads_its_own_iterations(stored: MakeStored) -> None:
    """So that an answer takes as long as the range is, not as the run."""
    comparison, requests = watched(stored("buckets").run, iter_range=slice(4, 8))
    assert comparison.imbalance().what_if is not None
    for table in ("collectives", "exposed", "measures", "rank_iterations"):
        asked = {each.iterations for each in requests if each.table == table}
        assert asked == {(4, 5, 6, 7)}, table


@pytest.mark.slow
def test_a_report_that_comes_later_is_compared(tmp_path: Path) -> None:
    folder, db = tmp_path / "profiles", tmp_path / "run.duckdb"
    folder.mkdir()
    forge(scene("planted", ranks=3, iterations=12), folder)
    late = sorted(folder.glob("*.sqlite"))[2]
    shutil.move(late, tmp_path / late.name)
    before = rankscope.ingest([folder], db)
    assert "missing-ranks" in {each.code for each in before.compare().warnings}
    after = rankscope.ingest([tmp_path / late.name], db)
    assert is_cached(after)
    assert answers(after.compare()) == answers(computed(after))
    assert [row["rank"] for row in answers(after.compare())["ranks"]] == [0, 1, 2]
    with pytest.raises(DatabaseError, match="has changed since it was opened"):
        before.compare().collectives([3])


@pytest.mark.slow
def test_what_does_not_hold_is_computed(stored: MakeStored, tmp_path: Path) -> None:
    """As after a kill between the last report and the comparison; and with older answers."""
    job = stored("buckets")
    spoiling = (
        "delete from meta where key = 'rank_iterations_clock'",
        "drop table clocks",
        "update answers set value = '\"0\"' where name = 'fingerprint'",
        "update reports set modified_ns = modified_ns + 1 where path like '%0.sqlite'",
    )
    for number, spoiled in enumerate(spoiling):
        db = tmp_path / f"{number}.duckdb"
        shutil.copyfile(job.db, db)
        with Database.open(db, write=True) as database:
            database._connection.execute(spoiled)
        run = rankscope.open_run(db)
        assert not is_cached(run), spoiled
        assert run.compare().verdict == job.analysis().verdict


@pytest.mark.slow
def test_the_environment_turns_the_cache_off_and_the_log_says_so(
    stored: MakeStored, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    db = stored("buckets").db
    caplog.set_level(logging.INFO, "rankscope.compare")
    cached = rankscope.open_run(db)
    assert is_cached(cached)
    monkeypatch.setenv("RANKSCOPE_CACHE", "0")
    run = rankscope.open_run(db)
    assert not is_cached(run)
    assert answers(run.compare()) == answers(cached.compare())
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert said == ["answers are cached", "answers are computed: RANKSCOPE_CACHE=0"]


@pytest.mark.slow
def test_verbose_says_where_the_answers_come_from(
    cli: Cli, stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = stored("buckets").db
    assert "answers are cached" in cli("imbalance", "--db", db, "--verbose").err
    assert "answers are" not in cli("imbalance", "--db", db).err
    monkeypatch.setenv("RANKSCOPE_CACHE", "0")
    assert "answers are computed" in cli("imbalance", "--db", db, "--verbose").err


def test_changed_sources_are_another_fingerprint(
    stored: MakeStored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = stored("buckets").run.tables.reports
    package = tmp_path / "rankscope"
    shutil.copytree(ROOT / "rankscope", package, ignore=shutil.ignore_patterns("__pycache__"))
    assert source_digest(package, OF_ANSWERS) == source_digest(ROOT / "rankscope", OF_ANSWERS)
    was = fingerprint(Options(), reports)
    for name in ("match/clocks.py", "judge/rules.py", "model/metrics.py"):
        source_digest.cache_clear()
        with (package / name).open("a") as file:
            file.write("\n")
        monkeypatch.setattr("rankscope.compare.cache.PACKAGE", package)
        now = fingerprint(Options(), reports)
        assert now != was, name
        was = now
    source_digest.cache_clear()
    assert fingerprint(Options(statistic="p95"), reports) != was


@pytest.mark.slow
def test_an_edited_threshold_changes_the_answer_at_once(stored: MakeStored, tmp_path: Path) -> None:
    """On a database that is there, with no version to remember."""
    db = stored("planted", kind="persistent", where="backward").db
    shutil.copytree(
        ROOT / "rankscope", tmp_path / "rankscope", ignore=shutil.ignore_patterns("__pycache__")
    )
    code = f"import rankscope; print(rankscope.open_run({str(db)!r}).imbalance().verdict.kind)"

    def kind() -> str:
        paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert kind() == "persistent"
    edited = tmp_path / "rankscope" / "judge" / "preconditions.py"
    text = edited.read_text()
    assert "run.ranks < 2" in text
    edited.write_text(text.replace("run.ranks < 2", "run.ranks < 99"))
    assert kind() == "inconclusive"
