"""Many files, many names, files that unpack to far more, and files that grow: answers or one line.

Each is a command as a process of its own, whose address space and time are limited.
"""

import gzip
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import DatabaseError
from rankscope.view.page_server import RunAnswers
from tests.support import SAMPLE, MakeForged, Result, Stored, copied, edit, mostly_nightly, python

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

ONE_STATE = (
    "imbalance --db", "imbalance --iter-range 5:12 --by kernel --db", "pick-reports --db",
    "plot timeline --db", "report -o r.html --db", "export -o t.json --db", "check --db", "fleet",
    "capture torchrun --for",
)  # fmt: skip
"""Commands that read a database, which is their last word."""

LONGEST_S = 300
"""Of processor time, whatever else the machine does; most take a second or two."""

BYTES = 8 * 10**9
"""Address space of a process, of which engines reserve far more than they use."""

HEAD = '{"schemaVersion":1,"distributedInfo":{"rank":%d,"world_size":%d},"traceEvents":['
STEP = (
    '{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":%d,"tid":1,"ts":%d,"dur":%d}'
)


def limited(folder: Path, *words: object) -> Result:
    """A command in a folder, within limits."""
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES}))\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({LONGEST_S}, {LONGEST_S}))\n"
        "from rankscope_cli.main import main\n"
        "main(sys.argv[1:])"
    )
    own = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
    return python("-c", code, *words, cwd=folder, env=own)


def clear(output: Result) -> None:
    """An answer, or one line of error that blames reports or usage."""
    assert "Traceback" not in output.err, output.err[-3000:]
    assert len(output.err) < 20_000
    assert output.code in (0, 2, 3), output.err
    if output.code and not output.out:  # `check` tells what is unusable, and ends with 3
        output.refused(output.code)


def test_thousands_of_files_that_are_no_reports(tmp_path: Path) -> None:
    """Among them four reports; those named like reports are told in few lines."""
    folder = tmp_path / "profiles"
    copied(sorted(SAMPLE.glob("*.sqlite")), folder)
    for number in range(5000):
        kind = ("txt", "log", "json", "py", "sqlite-journal")[number % 5]
        (folder / f"other_{number}.{kind}").write_text("{}")
    output = limited(tmp_path, "check", folder)
    clear(output)
    output = limited(tmp_path, "ingest", folder, "--on-error", "skip", "--db", "run.duckdb")
    assert output.code == 0, output.err
    clear(output)
    assert rankscope.open_run(tmp_path / "run.duckdb").tables.ranks.height == 4
    output = limited(tmp_path, "watch", folder, "--once", "--settle", "0", "--db", "w.duckdb")
    assert output.code == 0, output.err
    clear(output)


def tiny(folder: Path, ranks: int, steps: int = 4) -> Path:
    """Traces of some hundred bytes; the last rank's steps are the longest."""
    folder.mkdir()
    for rank in range(ranks):
        events = [
            STEP % (number, 100 + rank, 10_000 * number, 9000 + 500 * (rank == ranks - 1))
            for number in range(1, steps + 1)
        ]
        text = HEAD % (rank, ranks) + ",".join(events) + "]}"
        (folder / f"trace_rank_{rank}.json").write_text(text)
    return folder


@pytest.mark.parametrize("ranks", mostly_nightly([100, 2000]))
def test_as_many_tiny_reports(tmp_path: Path, ranks: int) -> None:
    folder, db = tiny(tmp_path / "profiles", ranks), tmp_path / "run.duckdb"
    for words in (
        ("check", folder),
        ("ingest", folder, "--db", db),
        ("imbalance", "--db", db, "--format", "json"),
        ("report", "--db", db, "-o", "r.html"),
        ("pick-reports", "--db", db),
    ):
        output = limited(tmp_path, *words)
        assert output.code in (0, 3), output.err
        clear(output)
    assert rankscope.open_run(db).tables.ranks["rank"].sort().to_list() == [*range(ranks)]
    assert (tmp_path / "r.html").stat().st_size < 10**8


BOMBS = {
    "blanks": b" " * 2**23,
    "events": b'{"ph":"X","cat":"kernel","name":"k","pid":1,"tid":1,"ts":1,"dur":1},' * 100_000,
    "one name": b"x" * 2**23,
    "empty events": b"{}," * 2**21,
    "nesting": b'{"a":[' * 2**20,
}

READING = (
    ("check", "bomb.json.gz"),
    ("ingest", "bomb.json.gz", "--db", "new.duckdb"),
    ("imbalance", "."),
    ("watch", ".", "--once", "--settle", "0", "--db", "new.duckdb"),
    ("scrub", "bomb.json.gz", "-o", "s.sqlite"),
    ("capture", "torchrun", "--python-functions-trace", "bomb.json.gz"),
)
OPENING = (
    *("imbalance", "pick-reports", "view", "plot heatmap", "report -o r.html", "export -o t.json"),
    *("fleet", "fleet --store", "diff bomb.duckdb", "capture torchrun --for", "imbalance --roles"),
)
"""Commands that take the same file for a database, or for roles."""


@pytest.mark.parametrize("kind", mostly_nightly(BOMBS, 1))
def test_files_that_unpack_to_far_more(sample: Stored, tmp_path: Path, kind: str) -> None:
    """A trace of a few MB that unpacks to a GB, and never comes to its end."""
    with gzip.open(tmp_path / "bomb.json.gz", "wb", compresslevel=9) as file:
        file.write((HEAD % (0, 1)).encode())
        for _ in range(120):
            file.write(BOMBS[kind])
    for words in READING:
        output = limited(tmp_path, *words)
        assert output.code == (0 if words[0] in ("watch", "capture") else 3), (words, output.err)
        clear(output)
    shutil.copy(tmp_path / "bomb.json.gz", tmp_path / "bomb.duckdb")
    shutil.copy(sample.db, tmp_path / "rankscope.duckdb")
    for command in OPENING:
        named = () if command.startswith(("fleet", "diff", "capture")) else ("--db",)
        named = () if "--roles" in command else named
        output = limited(tmp_path, *command.split(), *named, "bomb.duckdb")
        output.refused(2 if "--roles" in command else 4)


NAMES = """
with recursive number(n) as (select 0 union all select n + 1 from number where n < {count})
"""


@pytest.mark.parametrize("count", mostly_nightly([100_000, 1_000_000]))
def test_as_many_different_names(forged: MakeForged, tmp_path: Path, count: int) -> None:
    """Of ranges and of kernels: what a database keeps of them is bounded."""
    reports = copied(forged("plain", ranks=2, iterations=12).reports, tmp_path / "profiles")
    for report in reports:
        edit(report, f"insert into StringIds {NAMES.format(count=count)} "
             "select 5000000 + n, 'void kernel_' || n || '(float*)' from number")  # fmt: skip
        edit(report, "update CUPTI_ACTIVITY_KIND_KERNEL set demangledName = 5000000 + rowid, "
             "shortName = 5000000 + rowid where rowid % 3")  # fmt: skip
        edit(report, "insert into NVTX_EVENTS (start, end, eventType, text, globalTid) "
             f"{NAMES.format(count=count)} select e.start + n % 1000, e.start + n % 1000 + 10, "
             "59, 'range ' || n, e.globalTid from number, "
             "(select min(start) as start, globalTid from NVTX_EVENTS) e")  # fmt: skip
    db = tmp_path / "run.duckdb"
    for words in (
        ("check", "profiles"),
        ("ingest", "profiles", "--db", db),
        ("imbalance", "--db", db, "--by", "kernel"),
        ("report", "--db", db, "-o", "r.html"),
        ("export", "--db", db, "-o", "t.json.gz"),
    ):
        output = limited(tmp_path, *words)
        assert output.code == 0, (words, output.err)
        clear(output)
    assert db.stat().st_size < 10**8
    assert (tmp_path / "r.html").stat().st_size < 10**8


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Within it, something is done again and again."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(0.005):
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("kind", ["sqlite", "json"])
def test_files_that_grow_while_they_are_read(forged: MakeForged, tmp_path: Path, kind: str) -> None:
    """Commands tell that they grow, or read what was whole; afterwards all is as it is."""
    folder = tmp_path / "profiles"
    if kind == "json":
        grows = tiny(folder, 4) / "trace_rank_1.json"
    else:
        grows = copied(forged("plain", iterations=12).reports, folder)[1]

    def grow() -> None:
        with grows.open("ab") as file:
            file.write(b" " * 16)  # a trace may end with 16 MB of them

    with meanwhile(grow):
        for words in (
            ("check", folder),
            ("ingest", folder, "--db", "run.duckdb"),
            ("ingest", folder, "--db", "some.duckdb", "--on-error", "skip"),
            ("scrub", grows, "-o", "s.sqlite"),
            ("watch", folder, "--once", "--settle", "0", "--db", "w.duckdb"),
        ):
            clear(limited(tmp_path, *words))
    done = limited(tmp_path, "ingest", folder, "--db", "run.duckdb")
    assert done.code == 0, done.err
    assert rankscope.open_run(tmp_path / "run.duckdb").tables.ranks.height == 4


def test_an_ingest_while_others_read(forged: MakeForged, tmp_path: Path) -> None:
    """`imbalance`, Python and the served page get the old run or the new one, or are told why."""
    reports, db = forged("plain", iterations=12).reports, tmp_path / "run.duckdb"
    rankscope.ingest(reports[:2], db)
    held, answers = rankscope.open_run(db), RunAnswers(db, rankscope.Options())
    ways: list[Callable[[], rankscope.Run]] = [
        partial(rankscope.open_run, db), lambda: held, lambda: answers.run,
    ]  # fmt: skip
    seen: list[int] = []
    output: list[str] = []

    def ask() -> None:
        for run in ways:
            try:
                assert answers.page("")
                seen.append(run().imbalance(include_warmup=True).ranks.height)
            except DatabaseError as error:
                output.append(error.message)

    with meanwhile(ask):
        for some in (reports[:3], reports, reports[:2], reports):
            done = limited(tmp_path, "ingest", *some, "--db", db, "--rebuild")
            assert done.code == 0, done.err
        time.sleep(0.5)
    assert {*seen} <= {2, 3, 4}
    assert seen
    assert all("has changed" in each or "in use" in each for each in output), {*output}
    assert not [*tmp_path.glob(".run*"), *tmp_path.glob("*.wal"), *tmp_path.glob("*.tmp")]


def test_commands_while_ingests_write(forged: MakeForged, tmp_path: Path) -> None:
    """Each answers, or says who uses the database; no ingest fails for those who read."""
    reports, db = forged("planted", ranks=4, iterations=20).reports, tmp_path / "run.duckdb"
    rankscope.ingest(reports, db)
    whole = copied([db], tmp_path / "whole")[0]
    done: list[Result] = []

    def write() -> None:
        done.append(limited(tmp_path, "ingest", *reports[:3], "--db", db, "--rebuild"))
        done.append(limited(tmp_path, "ingest", *reports, "--db", db))

    with meanwhile(write):
        for command in ONE_STATE:
            output = limited(tmp_path, *command.split(), db)
            clear_or_in_use(output)
        clear_or_in_use(limited(tmp_path, "diff", whole, db))
    assert {each.code for each in done} == {0}, [each.err for each in done]


def clear_or_in_use(output: Result) -> None:
    """An answer, or the line that another process uses the database.

    Three of the four ranks may leave nobody to capture.
    """
    if output.code == 2:
        output.refused(2, "a capture of few ranks would not settle it")
    elif output.code:
        output.refused(4, "is in use by another process")
