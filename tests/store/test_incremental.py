"""Ingest again: what is unchanged stays, what changed is replaced, what is foreign is refused."""

import os
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

import rankscope
from rankscope.errors import ForeignRun, RankConflict, ReportError, UnreadableReport
from rankscope.store import Database
from tests.support import MakeForged, MakeStored, copied, edit, mostly_nightly


@pytest.fixture
def stored_reports(stored: MakeStored, tmp_path: Path) -> list[Path]:
    """The same, and a database that holds them as they are: `tmp_path / "run.duckdb"`."""
    job = stored("plain", iterations=12)
    copies = copied(sorted(job.folder.glob("*.sqlite")), tmp_path / "reports")
    shutil.copyfile(job.db, tmp_path / "run.duckdb")
    with duckdb.connect(str(tmp_path / "run.duckdb")) as connection:
        for table in ("reports", "ranks", "problems"):
            connection.execute(
                f"update {table} set path = replace(path, ?, ?)",
                [str(job.folder), str(tmp_path / "reports")],
            )
        for report in copies:
            os.utime(report, ns=(job.folder.joinpath(report.name).stat().st_mtime_ns,) * 2)
    return copies


def damage(report: Path) -> None:
    """Overwrite the pages after the first, which has the names of the tables."""
    content = report.read_bytes()
    report.write_bytes(content[:4096] + b"\xa5" * (len(content) - 4096))


def statuses(run: rankscope.Run) -> list[str]:
    assert run.ingested is not None
    return [outcome.status for outcome in run.ingested.outcomes]


def contents(db: Path) -> dict[str, pl.DataFrame]:
    """Every table, its rows in one order."""
    with Database.open(db) as database:
        names = database.query("select table_name t from duckdb_tables()")["t"].to_list()
        return {
            name: database.query(f'select * from "{name}" order by all') for name in sorted(names)
        }


def same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> bool:
    return one.keys() == other.keys() and all(one[name].equals(other[name]) for name in one)


def test_unchanged_reports_are_not_read_again(reports: list[Path], tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    assert statuses(rankscope.ingest(reports, db)) == ["read"] * 4
    before = contents(db)
    again = rankscope.ingest(reports, db)
    assert statuses(again) == ["unchanged"] * 4
    assert again.ingested is not None
    assert again.ingested.events == 0
    assert [outcome.ranks for outcome in again.ingested.outcomes] == [(0,), (1,), (2,), (3,)]
    assert {outcome.iterations for outcome in again.ingested.outcomes} == {12}
    assert same(before, contents(db))
    reports[1].write_bytes(b"")
    with pytest.raises(UnreadableReport, match=reports[1].name):
        rankscope.ingest(reports, db)
    assert same(before, contents(db)), "a bad report leaves what was there"


@pytest.mark.slow
def test_a_changed_report_is_replaced(stored_reports: list[Path], tmp_path: Path) -> None:
    reports, db = stored_reports, tmp_path / "run.duckdb"
    before = rankscope.open_run(db).iterations()
    edit(reports[2], "delete from NVTX_EVENTS where text = 'step 11'")
    run = rankscope.ingest(reports, db)
    assert statuses(run) == ["unchanged", "unchanged", "read", "unchanged"]
    after = run.iterations()
    assert after.height == before.height - 1
    assert after.filter(rank=2)["iteration"].max() == 10
    for table in ("measures", "iterations", "collectives", "exposed"):
        output = run.sql(f"select max(iteration) i from {table} where rank = 2")
        assert output["i"].item() == 10, table


@pytest.mark.slow
def test_other_options_shape_other_rows(reports: list[Path], tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest(reports, db)
    run = rankscope.ingest(reports, db, phases={"optimizer": "^backward$"})
    assert statuses(run) == ["read"] * 4
    assert run.iterations()["backward_ns"].is_null().all()
    assert run.iterations()["optimizer_ns"].drop_nulls().min() > 15_000_000
    again = rankscope.ingest(reports, db, phases={"optimizer": "^backward$"})
    assert statuses(again) == ["unchanged"] * 4


@pytest.mark.slow
def test_ranks_may_come_one_by_one(reports: list[Path], tmp_path: Path) -> None:
    whole = rankscope.ingest(reports, tmp_path / "whole.duckdb")
    for report in reversed(reports):
        run = rankscope.ingest([report], tmp_path / "parts.duckdb")
    assert run.iterations().equals(whole.iterations())
    assert run.compare().missing_ranks == ()


@pytest.mark.slow
def test_nothing_is_ever_removed(reports: list[Path], tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest(reports, db)
    reports[3].unlink()
    run = rankscope.ingest([tmp_path / "reports"], db)
    assert {*run.iterations()["rank"]} == {0, 1, 2, 3}


@pytest.mark.slow
def test_several_jobs_give_the_same_database(reports: list[Path], tmp_path: Path) -> None:
    one = rankscope.ingest(reports, tmp_path / "one.duckdb", jobs=1)
    two = rankscope.ingest(reports, tmp_path / "two.duckdb", jobs=2)
    assert same(contents(one.db), contents(two.db))


@pytest.mark.slow
def test_a_report_of_another_run_is_refused(
    forged: MakeForged, stored_reports: list[Path], tmp_path: Path
) -> None:
    reports, db = stored_reports, tmp_path / "run.duckdb"
    before = contents(db)
    with pytest.raises(ForeignRun, match="8") as refused:
        rankscope.ingest(forged("plain", ranks=8, iterations=12).reports[5:6], db)
    assert f"--db {db} --rebuild" in refused.value.hint
    assert same(before, contents(db))
    with Database.open(db, write=True) as database:
        database.remove([str(reports[3])])
    before = contents(db)
    [late] = copied(reports[3:], tmp_path / "late")
    edit(late, "update TARGET_INFO_SESSION_START_TIME set utcEpochNs = utcEpochNs + 86400000000000")
    with pytest.raises(ForeignRun, match="captured"):
        rankscope.ingest([late], db)
    assert same(before, contents(db))


@pytest.mark.slow
def test_a_rank_that_is_there_already_is_refused(reports: list[Path], tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest(reports, db)
    before = contents(db)
    [twin] = copied(reports[1:2], tmp_path / "twin")
    edit(twin, "pragma user_version = 7")  # no copy
    with pytest.raises(RankConflict, match="rank 1") as refused:
        rankscope.ingest([twin], db)
    assert str(reports[1]) in refused.value.message
    assert str(twin) in refused.value.message
    assert same(before, contents(db))


@pytest.mark.slow
@pytest.mark.parametrize("spoil", mostly_nightly(["damaged pages", "", "no database at all"]))
def test_a_rebuild_that_fails_leaves_the_old_run(
    reports: list[Path], tmp_path: Path, spoil: str
) -> None:
    db = tmp_path / "run.duckdb"
    rankscope.ingest(reports, db)
    before, there = contents(db), {*tmp_path.iterdir()}
    if spoil == "damaged pages":
        damage(reports[3])
    else:
        reports[3].write_text(spoil)
    with pytest.raises(ReportError, match=reports[3].name):
        rankscope.ingest(reports, db, rebuild=True)
    assert same(before, contents(db))
    assert {*tmp_path.iterdir()} == there, "no half-built database stays behind"


@pytest.mark.slow
def test_a_rebuild_mends_a_damaged_database(reports: list[Path], tmp_path: Path) -> None:
    db = tmp_path / "run.duckdb"
    db.write_bytes(b"damaged")
    assert rankscope.ingest(reports, db, rebuild=True).iterations().height == 4 * 12


def test_nothing_but_bad_reports_is_an_error(reports: list[Path], tmp_path: Path) -> None:
    for report in reports:
        report.write_bytes(b"")
    with pytest.raises(ReportError, match="none of the 4 reports"):
        rankscope.ingest(reports, tmp_path / "run.duckdb", on_error="skip")
    assert not (tmp_path / "run.duckdb").exists()
