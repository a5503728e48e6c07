"""Bad input: one line of error, one of hint, the contract's exit code, nothing lost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rankscope_cli import limits

import rankscope
from rankscope.compare.comparison import Stage
from rankscope.compare.stages import compare
from rankscope.model.options import Options
from tests.support import (
    SAMPLE,
    Cli,
    Stored,
    change,
    edit,
    in_use,
    mostly_nightly,
    mostly_slow,
    with_environment,
)

REPORT = "report_rank_1.sqlite"


def truncate(path: Path, percent: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * percent / 100)])


CUTS = (50, 30, 70, 90, 95, 99)
"""Where reports are cut (%)."""


OTHER_NAMES = {"no ranges that fit"}
"""Names of SPOILED after which all reports are read, by detected steps."""


def emptied(path: Path) -> Path:
    path.write_bytes(b"")
    return path


SPOILED: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no database": lambda path: path.write_text("hello\n" * 100),
    "no report": lambda path: edit(emptied(path), "create table bills (i int)"),
    "no NVTX": lambda path: edit(path, "drop table NVTX_EVENTS"),
    "no ranges that fit": lambda path: edit(
        path, "update NVTX_EVENTS set text = 'x' || text where text like 'Batch%'"
    ),
    "two of a rank": lambda path: with_environment(path, RANK="0", WORLD_SIZE="4"),
    "no world like ours": lambda path: with_environment(path, RANK="1", WORLD_SIZE="9"),
    "contradicts itself": lambda path: with_environment(
        path, RANK="1", WORLD_SIZE="4", SLURM_PROCID="2", SLURM_NTASKS="4"
    ),
    **{f"cut at {n} %": lambda path, n=n: truncate(path, n) for n in CUTS},
}


def spoiled(less: set[str], slow: int | None = None) -> list[Any]:
    """Names of SPOILED as parameters: one is fast, and one cut stands for the others."""
    names = [each for each in SPOILED if each not in less]
    last = next(place for place, each in enumerate(names, 1) if each.startswith("cut"))
    return [*mostly_slow(names[:last], slow=slow), *mostly_nightly(names[last:], 0)]


@pytest.fixture
def reports(sample_reports: list[Path]) -> list[Path]:
    """Real reports, in the newer schema's clothes where the environment must be changed."""
    for rank, path in enumerate(sample_reports):
        edit(path, "create table if not exists META_DATA_CAPTURE (name text, value text)")
        with_environment(path, RANK=str(rank), WORLD_SIZE="4")
    return sample_reports


@pytest.mark.parametrize("what", spoiled(OTHER_NAMES, slow=4))
def test_a_bad_report_stops_ingest_and_loses_nothing(
    cli: Cli, reports: list[Path], what: str
) -> None:
    named = "2 runs" if what == "no world like ours" else REPORT  # in a new database
    assert cli("ingest", *reports).code == 0
    before = cli("imbalance", "--format", "json").out
    SPOILED[what](reports[1])
    cli("ingest", *reports).refused(3, REPORT)
    assert cli("imbalance", "--format", "json").out == before
    cli("ingest", *reports, "--rebuild").refused(3, named)
    assert cli("imbalance", "--format", "json").out == before
    cli("ingest", *reports, "--db", "fresh.duckdb").refused(3, named)
    if Path("fresh.duckdb").exists():  # reports before the bad one may be in, each of them whole
        assert_consistent(rankscope.open_run("fresh.duckdb"))


def assert_consistent(run: rankscope.Run) -> None:
    """The stored metric table is what the reports in the database give, computed anew."""
    stored = run.sql("select * from rank_iterations order by rank, iteration")
    computed = compare(run.tables, Options(), until=Stage.OUTLIERS)
    assert computed.table is not None
    assert stored.equals(computed.rank_iterations().select(stored.columns))


@pytest.mark.slow
def test_a_bad_report_amid_other_options_loses_nothing(cli: Cli, reports: list[Path]) -> None:
    """All would be read again, for another shape; the last one cannot be."""
    cli("ingest", *reports)
    SPOILED["no NVTX"](reports[3])
    cli("ingest", *reports, "--phase", "optimizer=Forward").refused(3, "report_rank_3.sqlite")
    run = rankscope.open_run("rankscope.duckdb")
    assert_consistent(run)
    assert run.sql("select count(*) n from reports").item() == 4, "each is there, old or new"
    assert "options-differ" in [problem.code for problem in run.compare().warnings]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--iteration", "("], "--iteration"),
        (["--phase", "forward=["], "--phase"),
        (["--phase", "nonsense=x"], "nonsense"),
        (["--phase", "forward"], "--phase"),
        (["--phase", "=x"], "--phase"),
        (["--rank-pattern", "("], "--rank-pattern"),
        (["--rank-pattern", "no group"], "--rank-pattern"),
        (["--rank-pattern", r"node(?P<rank>\d+)"], "--rank-pattern"),
        (["--jobs", "0"], "jobs"),
        (["--jobs", "two"], "jobs"),
        (["--on-error", "ignore"], "on-error"),
        (["--format", "yaml"], "format"),
        (["--nonsense"], "--nonsense"),
        (["nowhere"], "nowhere"),
    ],
)
def test_wrong_usage_of_ingest(cli: Cli, options: list[str], named: str) -> None:
    cli("ingest", SAMPLE, *options).refused(2, named)
    assert not Path("rankscope.duckdb").exists()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--iter-range", "1000:"], "--iter-range"),
        (["--iter-range", "5:5"], "--iter-range"),
        (["--iter-range", "five"], "--iter-range"),
        (["--iter-range", "1:9:2"], "--iter-range"),
        (["--metric", "speed"], "--metric speed"),
        (["--clock", "gpu"], "--clock gpu"),
        (["--clock", "sun"], "clock"),
        (["--statistic", "mode"], "statistic"),
        (["extra"], "extra"),
    ],
)
def test_wrong_usage_of_a_comparison(
    cli: Cli, sample: Stored, options: list[str], named: str
) -> None:
    cli("imbalance", "--db", sample.db, *options).refused(2, named)


def test_wrong_usage_of_imbalance(cli: Cli, sample: Stored) -> None:
    cli("imbalance", "--db", sample.db, "--fail-above", "-1").refused(2, "fail-above")
    cli("imbalance", "--db", sample.db, "--by", "moon").refused(2, "by")
    cli("nonsense").refused(2, "nonsense")
    cli("ingest").refused(2, "PATH")


COMMANDS = [["imbalance"], ["ingest", SAMPLE]]


def test_a_missing_database(cli: Cli) -> None:
    cli("imbalance").refused(4, "rankscope.duckdb", "rankscope ingest")
    cli("imbalance", "--db", "no/such/folder.duckdb").refused(4, "folder.duckdb")
    assert not Path("rankscope.duckdb").exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "how", ["empty", "text", "zeros", "SQLite", "cut", "newer", "older", "not ours"]
)
def test_a_bad_database(
    cli: Cli, sample: Stored, tmp_path: Path, command: list[object], how: str
) -> None:
    db = tmp_path / "bad.duckdb"
    db.write_bytes(sample.db.read_bytes())
    if how == "empty":
        db.write_bytes(b"")
    elif how == "text":
        db.write_text("nothing of the kind")
    elif how == "zeros":
        db.write_bytes(b"\0" * 5000)
    elif how == "SQLite":
        db.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    elif how == "cut":
        truncate(db, 40)
    elif how == "not ours":
        db.unlink()
        change(db, "create table bills (i int)")
    else:
        with duckdb.connect(str(db)) as connection:
            version = "99" if how == "newer" else "0"
            connection.execute("update meta set value = ? where key = 'schema_version'", [version])
    content = db.read_bytes()
    cli(*command, "--db", db).refused(4, "bad.duckdb")
    assert db.read_bytes() == content


@pytest.mark.slow
@pytest.mark.parametrize("command", mostly_nightly(COMMANDS[::-1]), ids=lambda command: command[0])
def test_a_locked_database(cli: Cli, sample: Stored, tmp_path: Path, command: list[object]) -> None:
    db = tmp_path / "busy.duckdb"
    db.write_bytes(sample.db.read_bytes())
    with in_use(db):
        cli(*command, "--db", db).refused(4, "busy.duckdb", "in use")
    assert cli("imbalance", "--db", db).code == 0


def test_a_database_where_none_can_be(cli: Cli) -> None:
    cli("ingest", SAMPLE, "--db", "no/such/folder.duckdb").refused(4, "folder.duckdb")


def test_an_error_comes_of_memory_if_a_cause_does() -> None:
    """DuckDB's errors may be their own cause."""
    error = ValueError("damaged")
    error.__cause__ = error
    assert not limits.is_of_memory(error)
    error.__cause__ = MemoryError()
    assert limits.is_of_memory(error)
