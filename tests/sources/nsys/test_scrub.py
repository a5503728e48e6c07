"""A copy of a report says nothing about people and machines, and answers as the report does."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import UnreadableReport, UsageError
from rankscope.sources.nsys.scrub import scrub
from tests.support import Forged, Result, captured, mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

SECRET = "s3cr3t-of-somebody"


def scrubbed(folder: Path, into: Path, **how: str) -> Path:
    into.mkdir()
    for report in sorted(folder.glob("*.sqlite")):
        scrub(report, into / report.name, **how)
    return into


@pytest.mark.parametrize(
    "name", mostly_nightly(["2023.4/why_fsync", "2022.4/ddp_a", "2023.4/ddp_a"])
)
def test_copies_of_real_reports_answer_as_they_do(tmp_path: Path, name: str) -> None:
    whole = rankscope.ingest([captured(name)], tmp_path / "whole.duckdb")
    copies = scrubbed(captured(name), tmp_path / "copies")
    run = rankscope.ingest([copies], tmp_path / "copies.duckdb")
    assert run.iterations().equals(whole.iterations())
    assert run.imbalance().verdict.findings == whole.imbalance().verdict.findings
    assert run.imbalance().metrics == whole.imbalance().metrics
    assert run.sql("select distinct host from ranks")["host"].to_list() == [None]
    states = "select * from host_states order by all"
    assert run.sql(states).equals(whole.sql(states))


def test_copies_of_device_work_answer_as_the_reports(
    forged: Callable[..., Forged], tmp_path: Path
) -> None:
    folder = forged("planted").folder
    whole = rankscope.ingest([folder], tmp_path / "whole.duckdb")
    copies = scrubbed(folder, tmp_path / "copies", host="node0")
    run = rankscope.ingest([copies], tmp_path / "copies.duckdb")
    assert run.iterations().equals(whole.iterations())
    assert run.sql("select distinct host from ranks")["host"].to_list() == ["node0"]


def spoiled(report: Path) -> Path:
    """A secret in every text of every table that names no range, and in tables nobody knows."""
    with closing(sqlite3.connect(report)) as file, file:
        tables = [name for (name,) in file.execute("select name from sqlite_master")]
        for table in tables:
            columns = file.execute(
                "select name from pragma_table_info(?) where not pk", [table]
            ).fetchall()
            for (column,) in columns:
                where = "1"
                if table == "NVTX_EVENTS":  # names of ranges stay; numbers may hold text, too
                    where = "0" if column in ("text", "start", "end", "eventType") else "rowid = 1"
                elif table == "StringIds":
                    where = "0"
                elif column in ("start", "end", "id", "globalTid", "nameId"):
                    where = "rowid = 1"
                file.execute(
                    f'update "{table}" set "{column}" = ? where {where} and '
                    f"(typeof(\"{column}\") <> 'blob')",
                    [f"/home/{SECRET}"],
                )
        file.execute(f'create table "{SECRET}" ("{SECRET}" TEXT)')
        file.execute(f'insert into "{SECRET}" values (?)', [SECRET])
        file.execute(f"alter table NVTX_EVENTS add column \"{SECRET}\" TEXT default '{SECRET}'")
        file.execute("insert into StringIds values (777777, ?)", [SECRET])
        file.execute(
            "insert into NVTX_EVENTS (start, end, eventType, text) values (1, null, 34, ?)",
            [SECRET],
        )
        file.execute(
            "insert into NVTX_EVENTS (start, end, eventType, textId) values (1, null, 34, 777777)"
        )
    return report


@pytest.mark.parametrize("rank", mostly_nightly([0, 1]))
def test_secrets_are_in_no_byte_of_the_copy(
    forged: Callable[..., Forged], tmp_path: Path, rank: int
) -> None:
    report = spoiled(Path(shutil.copy(forged("plain").reports[rank], tmp_path / "r.sqlite")))
    assert SECRET.encode() in report.read_bytes()
    scrub(report, tmp_path / "copy.sqlite")
    assert SECRET.encode() not in (tmp_path / "copy.sqlite").read_bytes()


def test_paths_lose_their_folders(tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(report)) as file, file:
        file.execute("create table StringIds (id integer, value text)")
        file.executemany(
            "insert into StringIds values (?, ?)",
            [(1, f"/home/{SECRET}/lib.so"), (2, f"C:\\Users\\{SECRET}\\lib.dll"), (3, "a/b")],
        )
        file.execute("create table SAMPLING_CALLCHAINS (id, symbol, module, stackDepth)")
        file.executemany("insert into SAMPLING_CALLCHAINS values (1, 3, ?, 0)", [(1,), (2,)])
    scrub(report, tmp_path / "copy.sqlite")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as file:
        values = [value for (value,) in file.execute("select value from StringIds order by id")]
    assert values == ["lib.so", "lib.dll", "a/b"]


def test_the_environment_keeps_ranks_that_are_numbers(tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    with closing(sqlite3.connect(report)) as file, file:
        file.execute("create table TARGET_INFO_SYSTEM_ENV (name, value)")
        variables = f"RANK=3;USER={SECRET};WORLD_SIZE={SECRET};LOCAL_RANK=1"
        rows = [("DeviceEnvironment", variables), ("Hostname", SECRET)]
        file.executemany("insert into TARGET_INFO_SYSTEM_ENV values (?, ?)", rows)
    scrub(report, tmp_path / "copy.sqlite", host="node7")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as file:
        rows = file.execute("select name, value from TARGET_INFO_SYSTEM_ENV").fetchall()
    assert rows == [("DeviceEnvironment", "RANK=3;LOCAL_RANK=1"), ("Hostname", "node7")]


@pytest.mark.parametrize(
    "content", mostly_nightly([b"SQLite format 3\0" + b"x" * 5000, b"", b"no database"])
)
def test_what_is_no_export_is_refused(tmp_path: Path, content: bytes) -> None:
    report = tmp_path / "r.sqlite"
    report.write_bytes(content)
    with pytest.raises(UnreadableReport, match=r"r\.sqlite"):
        scrub(report, tmp_path / "copy.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["r.sqlite"]


def test_the_report_itself_is_never_replaced(forged: Callable[..., Forged], tmp_path: Path) -> None:
    report = Path(shutil.copy(forged("plain").reports[0], tmp_path / "r.sqlite"))
    before = report.read_bytes()
    with pytest.raises(UsageError, match="the report itself"):
        scrub(report, report)
    assert report.read_bytes() == before


def test_the_command_says_what_it_wrote(
    forged: Callable[..., Forged], tmp_path: Path, cli: Callable[..., Result]
) -> None:
    copy = tmp_path / "copy.sqlite"
    told = cli("scrub", forged("plain").reports[0], "-o", copy)
    assert told.code == 0
    assert str(copy) in told.err
    assert copy.exists()
    cli("scrub", tmp_path / "none.sqlite", "-o", copy).refused(3, "no such file")
