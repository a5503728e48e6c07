"""What an ingest keeps gives the answers that computing gives, and only while it may."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.api import picks_of
from rankscope.compare.cache import Recalled
from rankscope.compare.comparison import Analysis
from rankscope.errors import DatabaseError
from rankscope.model.options import Options
from rankscope.output import json_documents
from rankscope.store import Database
from rankscope.store.tables import RunTables
from tests.forge import forge, scene
from tests.support import Stored

LOOKS: tuple[dict[str, Any], ...] = (
    {},
    {"iter_range": slice(4, 20)},
    {"iter_range": slice(0, None)},
    {"include_warmup": True},
    {"clock": "host"},
    {"statistic": "p95"},
    {"roles": "tp=2,dp=2"},
)


def answers(analysis: Analysis) -> dict[str, Any]:
    """All that the commands say of a way of looking at a run."""
    result = analysis.imbalance()
    picks = picks_of(analysis, None)
    judged = analysis.judged(["work", "iteration"]).sort("rank", "iteration")
    body = {
        "metrics": json_documents.metrics(result.metrics),
        "ranks": json_documents.ranks(result),
        "iterations": json_documents.rows(result.iterations),
        "verdict": json_documents.verdict(result.verdict),
        "efficiency": json_documents.efficiency(result),
        "what_if": None if result.what_if is None else json_documents.rows(result.what_if),
        "error": result.wait_error_ns,
        "picks": json_documents.picks(picks, None, None, None),
        "judged": judged.rows(),
        "wide": analysis.wide.rows(),
    }
    return json_documents.document("imbalance", None, analysis.facts, analysis.problems, body)


def computed(run: rankscope.Run, **options: Any) -> Analysis:
    """The same way of looking, nothing recalled."""
    return Analysis(run.analysis().frames, Options(**options))


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_recalled_is_what_is_computed(stored: Callable[..., Stored], look: dict[str, Any]) -> None:
    run = stored("buckets").run
    recalled = run.analysis(Options(**look))
    assert isinstance(recalled, Recalled)
    assert answers(recalled) == answers(computed(run, **look))


def test_transfers_that_roles_pair_are_paired(stored: Callable[..., Stored]) -> None:
    run = stored("pipeline", ranks=16, iterations=12).run
    look = {"roles": "pp=4,dp=4"}
    told = answers(run.analysis(Options(**look)))
    assert told == answers(computed(run, **look))
    assert told["verdict"] != answers(run.analysis())["verdict"]


def test_usual_answers_need_no_collectives(stored: Callable[..., Stored]) -> None:
    analysis = stored("buckets").run.analysis()
    assert isinstance(analysis, Recalled)
    loaded: list[str] = []

    def source(
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        loaded.append(table)
        return analysis.frames.some(table, columns, ranks, iterations, narrow)

    watched = Recalled(RunTables("run", source), Options(), analysis._known)
    answers(watched)
    assert not {"collectives", "exposed", "activities", "measures"} & {*loaded}, loaded


def test_a_range_reads_its_own_iterations(stored: Callable[..., Stored]) -> None:
    """So that an answer takes as long as the range is, not as the run."""
    analysis = stored("buckets").run.analysis()
    assert isinstance(analysis, Recalled)
    asked: dict[str, set[object]] = {}

    def source(
        table: str,
        columns: Collection[str] | None = None,
        ranks: Collection[int] | None = None,
        iterations: Collection[int] | None = None,
        narrow: bool = False,
    ) -> pl.DataFrame:
        asked.setdefault(table, set()).add(None if iterations is None else tuple(iterations))
        return analysis.frames.some(table, columns, ranks, iterations, narrow)

    look = Options(iter_range=slice(4, 8))
    told = Recalled(RunTables("run", source), look, analysis._known).imbalance()
    assert told.what_if is not None
    for table in ("collectives", "exposed", "measures", "rank_iterations"):
        assert asked[table] == {(4, 5, 6, 7)}, table


def test_a_report_that_comes_later_is_compared(tmp_path: Path) -> None:
    folder, db = tmp_path / "profiles", tmp_path / "run.duckdb"
    folder.mkdir()
    forge(scene("planted", ranks=3, iterations=12), folder)
    late = sorted(folder.glob("*.sqlite"))[2]
    shutil.move(late, tmp_path / late.name)
    before = rankscope.ingest([folder], db)
    assert "missing-ranks" in {each.code for each in before.analysis().problems}
    after = rankscope.ingest([tmp_path / late.name], db)
    assert answers(after.analysis()) == answers(computed(after))
    assert [row["rank"] for row in answers(after.analysis())["ranks"]] == [0, 1, 2]
    with pytest.raises(DatabaseError, match="has changed since it was opened"):
        _ = before.analysis().wide


def test_what_was_not_compared_is_computed(stored: Callable[..., Stored], tmp_path: Path) -> None:
    """As after a kill between the last report and the comparison; and with older answers."""
    job = stored("buckets")
    spoiling = (
        "delete from meta where key = 'rank_iterations_clock'",
        "drop table clocks",
        "update answers set value = '\"0.0.0\"' where name = 'version'",
    )
    for number, spoiled in enumerate(spoiling):
        db = tmp_path / f"{number}.duckdb"
        shutil.copyfile(job.db, db)
        with Database.open(db, write=True) as database:
            database._connection.execute(spoiled)
        told = rankscope.open_run(db).analysis()
        assert not isinstance(told, Recalled), spoiled
        assert told.verdict == job.analysis().verdict
