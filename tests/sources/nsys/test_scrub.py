"""A copy of a report says nothing about people and machines, and answers as the report does."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import UnreadableReport, UsageError
from rankscope.sources.nsys.scrub import scrub
from tests.support import Cli, MakeForged, asked, captured, mostly_nightly, with_table

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


def test_copies_of_device_work_answer_as_the_reports(forged: MakeForged, tmp_path: Path) -> None:
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
def test_secrets_are_in_no_byte_of_the_copy(forged: MakeForged, tmp_path: Path, rank: int) -> None:
    report = spoiled(Path(shutil.copy(forged("plain").reports[rank], tmp_path / "r.sqlite")))
    assert SECRET.encode() in report.read_bytes()
    scrub(report, tmp_path / "copy.sqlite")
    assert SECRET.encode() not in (tmp_path / "copy.sqlite").read_bytes()


TEXTS = {
    f"/home/{SECRET}/lib.so": "lib.so",
    f"C:\\Users\\{SECRET}\\lib.dll": "lib.dll",
    f"/data/{SECRET} (old)/x.py": "x.py",
    f"run<(lambda at /home/{SECRET}/k.cu:33:4)>(float)": "run<(lambda at k.cu:33:4)>(float)",
    f"f<(lambda at /a/{SECRET}/k.cu:3:4), (lambda at /b/{SECRET} (2)/m.cu:5)>::call()":
        "f<(lambda at k.cu:3:4), (lambda at m.cu:5)>::call()",
    f"load ~{SECRET}/data.bin": "load data.bin",
    f"load ~/{SECRET}/data.bin": "load data.bin",
    f"read s3://{SECRET}/part.tar": "read part.tar",
    f"get http://{SECRET}:8080/{SECRET}/part": "get part",
    f"open file:///srv/{SECRET}/part": "open part",
    f"../{SECRET}/train.py(12): step": "train.py(12): step",
    f"cc -I/home/{SECRET}/include": "cc -Iinclude",
    f"\\\\server\\{SECRET}\\x": "x",
    f"//server/{SECRET}/x": "x",
    f"at /dev/{SECRET}:0/{SECRET}/x:12\nat /b/{SECRET}/y": "at x:12\nat y",
}  # fmt: skip
"""Names with paths in them → what stays."""

UNCHANGED = (
    "a/b", "block/attention", "layers[3]/mlp", "Block<2>/mlp", "step 3/100", "a / b", "aten::add",
    "void f<int>(float*, int)::operator/(X)", "cudaLaunchKernel_v7000", "~Foo()", "12:30",
)  # fmt: skip
"""Names without paths."""


@pytest.mark.parametrize("place", ["strings", "ranges"])
def test_paths_lose_their_folders(tmp_path: Path, place: str) -> None:
    report, copy = tmp_path / "r.sqlite", tmp_path / "copy.sqlite"
    texts = [*enumerate([*TEXTS, *UNCHANGED])]
    marks, strings = [(number, 59, None, number) for number, _ in texts], texts
    query = "select id, value from StringIds order by 1"
    if place == "ranges":
        marks, strings = [(number, 59, text, None) for number, text in texts], []
        query = "select start, text from NVTX_EVENTS order by 1"
    with_table(report, "StringIds", "id, value text", *strings)
    scrub(with_table(report, "NVTX_EVENTS", "start, eventType, text text, textId", *marks), copy)
    assert asked(copy, query) == [(number, TEXTS.get(text, text)) for number, text in texts]


def test_a_hostile_name_takes_no_time(tmp_path: Path) -> None:
    pieces = ("/a ", " /a", "a.", "~~", "a://", ":1", "\\\\a", "../", ":1/", "~a")
    rows = [(1, 59, piece * (10**6 // len(piece))) for piece in pieces]
    report = tmp_path / "r.sqlite"
    with_table(report, "NVTX_EVENTS", "start, eventType, text text", *rows)
    begin = time.process_time()
    scrub(report, tmp_path / "copy.sqlite")
    assert time.process_time() - begin < 10


def test_programs_lose_their_names(tmp_path: Path) -> None:
    report = tmp_path / "r.sqlite"
    modules = {
        f"/home/{SECRET}/{SECRET}": "program",
        f"/opt/{SECRET}.py": "program.py",
        "/usr/bin/python3.11": "python3.11",
        "/lib/x86_64-linux-gnu/libc.so.6": "libc.so.6",
        "/usr/lib/python3.11/threading.py": "threading.py",
        f"/home/{SECRET}/lib/python3.11/site-packages/torch/nn/functional.py": "functional.py",
        "[kernel.kallsyms]": "[kernel.kallsyms]",
        f"C:\\{SECRET}.exe": "program",
    }
    with_table(report, "StringIds", "id, value text", *enumerate([*modules, "main"]))
    chains = [(1, len(modules), number, 0) for number in range(len(modules))]
    with_table(report, "SAMPLING_CALLCHAINS", "id, symbol, module, stackDepth", *chains)
    scrub(report, copy := tmp_path / "copy.sqlite")
    values = asked(copy, "select value from StringIds order by id")
    assert [value for (value,) in values] == [*modules.values(), "main"]
    assert SECRET.encode() not in copy.read_bytes()


def test_the_environment_keeps_ranks_that_are_numbers(tmp_path: Path) -> None:
    report, copy = tmp_path / "r.sqlite", tmp_path / "copy.sqlite"
    variables = f"RANK=3;USER={SECRET};WORLD_SIZE={SECRET};LOCAL_RANK=1"
    rows = [("DeviceEnvironment", variables), ("Hostname", SECRET)]
    with_table(report, "TARGET_INFO_SYSTEM_ENV", "name text, value text", *rows)
    scrub(report, copy, host="node7")
    rows = asked(copy, "select name, value from TARGET_INFO_SYSTEM_ENV")
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


def test_the_report_itself_is_never_replaced(forged: MakeForged, tmp_path: Path) -> None:
    report = Path(shutil.copy(forged("plain").reports[0], tmp_path / "r.sqlite"))
    before = report.read_bytes()
    with pytest.raises(UsageError, match="the report itself"):
        scrub(report, report)
    assert report.read_bytes() == before


def test_the_command_says_what_it_wrote(forged: MakeForged, tmp_path: Path, cli: Cli) -> None:
    copy = tmp_path / "copy.sqlite"
    output = cli("scrub", forged("plain").reports[0], "-o", copy)
    assert output.code == 0
    assert str(copy) in output.err
    assert copy.exists()
    cli("scrub", tmp_path / "none.sqlite", "-o", copy).refused(3, "no such file")
