"""What many tests need: reports in, answers out, and ways to spoil a report."""

import atexit
import csv
import io
import json
import lzma
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from msgspec.structs import replace

import rankscope
from rankscope.compare.comparison import Comparison, Stage, calls_again
from rankscope.compare.timeline import ORDERS
from rankscope.judge.excess import excess_of
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.replay import Replay
from rankscope.judge.replay_inputs import replay_parts
from rankscope.match.collectives import Matched
from rankscope.match.communication import match_run
from rankscope.model.kinds import PARTS
from rankscope.model.results import Timeline
from rankscope.model.tables import TABLES
from rankscope.output.perfetto import trace
from rankscope.store import Database
from tests.forge import SCENES, Truth
from tests.invariants import assert_consistent

MS = 1_000_000
ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "sample_reports" / "ddp_4ranks"
CAPTURES = ROOT / "tests" / "captures"
SHARED = ROOT.parent / "shared" / "reports"
"""The whole captures, which few machines have; CAPTURES holds the reduced ones."""

PART_COLUMNS = [f"{part}_ns" for part in PARTS]


@dataclass(frozen=True)
class Forged:
    """A forged job on disk."""

    truth: Truth
    folder: Path

    @property
    def reports(self) -> list[Path]:
        return sorted(self.folder.glob("*.sqlite"))


@dataclass(frozen=True)
class Stored:
    """A run that was ingested, with what is true of it where it was forged."""

    folder: Path
    db: Path
    run: rankscope.Run
    truth: Truth | None = None

    def analysis(self, **options: Any) -> Comparison:
        """The comparison with some options; its verdict contradicts nothing."""
        key = (self.db, repr(options))
        if key not in _compared:
            found = self.run.compare(rankscope.Options(**options))
            if found.comparable:
                assert_consistent(found)
            _compared[key] = found
        return _compared[key]

    def timeline(self, ranks: Iterable[int], iterations: Iterable[int]) -> Timeline:
        """Ranks and iterations, read again from the reports; once in each process."""
        return _timeline(self.db, tuple(ranks), tuple(iterations))

    def matched(self, **options: Any) -> Matched:
        """All collectives of the run, matched anew."""
        comparison = self.analysis(**options)
        return match_run(comparison.scope, comparison.roles.links)


MakeForged = Callable[..., Forged]
MakeStored = Callable[..., Stored]
"""The fixtures `forged` and `stored`."""

_compared: dict[tuple[Path, str], Comparison] = {}


@cache
def _timeline(db: Path, ranks: tuple[int, ...], iterations: tuple[int, ...]) -> Timeline:
    return rankscope.open_run(db).timeline(ranks, iterations)


def traced(
    timeline: Timeline, about: dict[str, object] | None = None, labels: dict[int, str] | None = None
) -> bytes:
    """The trace of a timeline, written in a part for each rank."""
    parts = (
        replace(
            timeline,
            ranks=timeline.ranks.filter(rank=rank),
            **{name: getattr(timeline, name).filter(rank=rank) for name in ORDERS},
        )
        for rank in timeline.ranks["rank"]
    )
    return b"".join(trace(parts, about or {}, labels or {}))


@dataclass(frozen=True)
class Result:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Its JSON, after a success."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, str]]:
        """Its CSV, after a success."""
        assert self.code == 0, self.err
        return [*csv.DictReader(io.StringIO(self.out))]

    def refused(self, code: int, *words: object) -> None:
        """It failed as the contract says: one line of error, one of hint, no traceback."""
        assert self.code == code, (self.code, self.err)
        lines = self.err.splitlines()
        errors = [line for line in lines if line.startswith("rankscope: error: ")]
        hints = [line for line in lines if line.startswith("hint: ")]
        assert len(errors) == 1, self.err
        assert len(hints) == 1, self.err
        assert len(hints[0]) > len("hint: "), self.err
        assert "Traceback" not in self.err
        assert self.out == "", "an error leaves no half an answer on stdout"
        for word in words:
            assert str(word) in errors[0] + hints[0], self.err


def ran(*command: Any, check: bool = False, **options: Any) -> Result:
    """What another program does; the options are those of `subprocess.run`."""
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=check, **options
    )
    return Result(done.returncode, done.stdout, done.stderr)


def python(*words: Any, **options: Any) -> Result:
    """What another process of Python does."""
    return ran(sys.executable, *words, **options)


Cli = Callable[..., Result]
"""The fixture `cli`."""


@cache
def capture(name: str) -> Path:
    """A file or folder of the real captures in the repository, unpacked; never change its files.

    Args:
        name: path below `tests/captures`, of a file without `.xz`.
    """
    packed = CAPTURES / name
    out = _unpacking() / name
    if packed.is_dir():
        return unpacked(packed, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if packed.is_file():
        shutil.copyfile(packed, out)
    else:
        out.write_bytes(lzma.decompress(packed.with_name(f"{packed.name}.xz").read_bytes()))
    return out


@cache
def _unpacking() -> Path:
    """A folder that goes when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-captures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def assert_exported(metrics: Path) -> None:
    """Prometheus's own checker finds nothing to say about a file for node_exporter."""
    done = ran("promtool", "check", "metrics", input=metrics.read_text("utf-8"))
    assert (done.code, done.out + done.err) == (0, "")


USUAL = (
    "buckets", "plain", "host_only", "mpi_like", "tensor_parallel", "autograd", "load_between",
)  # fmt: skip
"""Scenes of the forge that fast tests ingest with four ranks, once for all of them."""

UNUSUAL = ("cuda_graph", "no_launch_record", "no_sync", "pipeline", "copy_in_forward")
"""Scenes that go other ways through the code than USUAL: slow tests take these first."""


def scenes(but: Iterable[str] = ()) -> list[str]:
    """Names of the forge's scenes for `mostly_slow`: USUAL first, then UNUSUAL.

    Args:
        but: names that are left out.
    """
    named, first = {*SCENES} - {*but}, [*USUAL, *UNUSUAL]
    return [each for each in first if each in named] + sorted(named - {*first})


NIGHTLY = (pytest.mark.slow, pytest.mark.nightly)


def mostly_slow(values: Iterable[Any], fast: int = 1, slow: int | None = None) -> list[Any]:
    """Parameters of a test, all but the first few marked slow: each goes another way in the code.

    Args:
        values: a parameter, or a tuple of several, for each run of the test.
        fast: how many are not marked.
        slow: how many of the next ones are slow; those after them are nightly. None: all.
    """
    given = [*values]
    last = len(given) if slow is None else fast + slow
    return [
        *given[:fast],
        *(_marked(each, pytest.mark.slow) for each in given[fast:last]),
        *(_marked(each, *NIGHTLY) for each in given[last:]),
    ]


def mostly_nightly(values: Iterable[Any], first: int = 1) -> list[Any]:
    """Parameters of a test, all but the first few marked nightly: more of the same kind."""
    return [
        _marked(each, *NIGHTLY) if place >= first else each for place, each in enumerate(values)
    ]


def one_at_a_time(*axes: Iterable[Any]) -> list[Any]:
    """Parameters of a test: every combination of some values.

    The first of each axis together are not marked; what differs from them on one axis is slow, all
    other combinations are nightly.
    """
    marked = []
    for picked in product(*map(enumerate, axes)):
        several = (value if isinstance(value, tuple) else (value,) for _, value in picked)
        others = sum(place > 0 for place, _ in picked)
        marks = ((), (pytest.mark.slow,), NIGHTLY)[min(others, 2)]
        marked.append(_marked(tuple(chain.from_iterable(several)), *marks))
    return marked


def _marked(values: Any, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(*(values if isinstance(values, tuple) else (values,)), marks=marks)


def whole(db: Path) -> Path:
    """A database that an ingest made: what it holds passes the checks of the store, and where its
    ranks can be compared, the answers are cached."""
    with Database.open(db) as database:
        for name in (*TABLES, *database.compared):
            database.table(name)
        cached = "answers" in database.compared
    assert cached or not rankscope.open_run(db).compare(until=Stage.OUTLIERS).comparable
    return db


def captured(name: str) -> Path:
    """A folder (or file) of captures made for this project, reduced."""
    return capture(f"captured/{name}")


def public(name: str) -> Path:
    """A report that others published: reduced, or whole; the test is skipped where it is absent."""
    packed = CAPTURES / "public" / name
    if packed.exists() or packed.with_name(f"{packed.name}.xz").exists():
        return capture(f"public/{name}")
    whole = SHARED / "public" / name
    if not whole.exists():
        pytest.skip(f"the whole public reports are not here: {name}")
    return whole


def unpacked(folder: Path, into: Path) -> Path:
    """Reports of a folder, those in .xz unpacked, in another one."""
    into.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.suffix == ".xz":
            (into / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
        elif path.suffix in (".sqlite", ".gz"):
            shutil.copyfile(path, into / path.name)
    return into


def copied(reports: Sequence[Path], into: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Copies of reports, under other names if given."""
    into.mkdir(parents=True, exist_ok=True)
    targets = [into / name for name in (names or [report.name for report in reports])]
    for report, target in zip(reports, targets, strict=True):
        shutil.copyfile(report, target)
    return targets


def edit(path: Path, sql: str, *values: object) -> Path:
    """A report with one statement run on it."""
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    with connection:
        connection.execute(sql, values)
    connection.close()
    return path


def with_rows(path: Path, into: str, *rows: Sequence[object]) -> Path:
    """A report with more rows in a table, `into` with the names of columns if not of all."""
    if rows:
        with closing(sqlite3.connect(path)) as file, file:
            file.executemany(f"insert into {into} values ({', '.join('?' * len(rows[0]))})", rows)
    return path


MARKS = "NVTX_EVENTS (start, end, eventType, text, globalTid, domainId)"
"""Where `with_rows` puts ranges (59), marks (34) and names of domains (75)."""

THREAD = 1 << 48 | 1
"""A thread that no report has."""


def with_table(path: Path, table: str, columns: str, *rows: Sequence[object]) -> Path:
    """A report with such a table in place of its own; columns without a type are integers."""
    typed = [name if " " in name else f"{name} integer" for name in columns.split(", ")]
    edit(path, f"drop table if exists {table}")
    edit(path, f"create table {table} ({', '.join(typed)})")
    return with_rows(path, table, *rows)


def asked(path: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """What a report answers to a query."""
    with closing(sqlite3.connect(path)) as file:
        return file.execute(query, values).fetchall()


def change(db: Path, sql: str, *values: object) -> Path:
    """A database with one statement run on it."""
    with duckdb.connect(str(db)) as connection:
        connection.execute(sql, values)
    return db


def renamed(report: Path, host: str | bytes, kernels: str = "") -> Path:
    """A report of another host, with something in front of the names of its kernels."""
    edit(report, "update TARGET_INFO_SYSTEM_ENV set value = ? where name = 'Hostname'", host)
    if kernels:
        device = "select shortName from CUPTI_ACTIVITY_KIND_KERNEL"
        own = f"value not like '%nccl%' and id in ({device})"
        edit(report, f"update StringIds set value = ? || value where {own}", kernels)
    return report


def without_rank(path: Path) -> Path:
    """A report that says nothing about its rank in its environment."""
    tables = sqlite_tables(path)
    if "META_DATA_CAPTURE" in tables:
        edit(path, "delete from META_DATA_CAPTURE where name like '%ENVIRONMENT%'")
    return edit(path, "delete from TARGET_INFO_SYSTEM_ENV where name = 'DeviceEnvironment'")


def with_environment(path: Path, **variables: str) -> Path:
    """A report (of the newer schema) whose process had these variables and no others."""
    without_rank(path)
    for name, value in variables.items():
        edit(
            path,
            "insert into META_DATA_CAPTURE values ('PROCESS_0:ENVIRONMENT_VARIABLE', ?)",
            f'{name}="{value}"',
        )
    return path


def without_ranks(db: Path, to: Path, ranks: Iterable[int]) -> Path:
    """A copy of a database as if there were no reports of some ranks."""
    shutil.copy(db, to)
    with duckdb.connect(str(to)) as connection:
        connection.execute("delete from answers")  # of all ranks
        connection.execute(
            "delete from reports where path in "
            "(select path from ranks where rank in (select unnest(?)))",
            [[*ranks]],
        )
        tables = connection.execute(
            "select table_name from duckdb_columns() where column_name = 'rank' and not internal"
        ).fetchall()
        for (table,) in tables:
            connection.execute(
                f'delete from "{table}" where rank in (select unnest(?))', [[*ranks]]
            )
    return to


@contextmanager
def in_use(db: Path) -> Iterator[None]:
    """Within it, another process uses a database."""
    code = "import duckdb, sys; used = duckdb.connect(sys.argv[1]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        try:
            yield
        finally:
            user.communicate(b"\n")


def sqlite_tables(path: Path) -> set[str]:
    return {name for (name,) in asked(path, "select name from sqlite_master where type = 'table'")}


def assert_adds_up(frame: pl.DataFrame) -> None:
    """Phases and exposed communication fill every window, to the nanosecond, none negative.

    Where every part is unknown the window's length may still be known (device work that only the
    host could tell apart); then there is nothing to add up.
    """
    parts = frame.select(PART_COLUMNS)
    assert (parts.min_horizontal().fill_null(0) >= 0).all()
    known = frame.filter(
        pl.any_horizontal(pl.col(PART_COLUMNS).is_not_null()), pl.col("iteration_ns").is_not_null()
    )
    assert known.height
    off = known.filter(pl.sum_horizontal(PART_COLUMNS) != pl.col("iteration_ns"))
    assert off.is_empty(), off


def slowest_by_iteration(run: rankscope.Run, metric: str) -> dict[int, int]:
    """iteration → rank with the highest value of a metric."""
    frame = run.imbalance(metrics=[metric]).iterations
    return dict(frame.select("iteration", "slowest_rank").iter_rows())


def inputs_of(wide: pl.DataFrame, metric: str = "work", **more: Any) -> VerdictInputs:
    """What a verdict on a metric table made by hand is found from; it cannot be replayed.

    Args:
        wide: rank, role, iteration, `<metric>_ns`, iteration_ns.
    """
    ranks, numbers = wide["rank"].n_unique(), wide["iteration"].n_unique()
    run = RunSummary(ranks, numbers, (), (), metric)
    hosts: dict[int, str | None] = {rank: f"node{rank // 4}" for rank in wide["rank"].unique()}
    given: dict[str, Any] = {
        "run": run, "known": excess_of(wide, metric), "hosts": hosts,
        "role_of": dict(wide.select("rank", "role").unique().iter_rows()),
        "spent_ns": wide["iteration_ns"].sum() // ranks,
        "tables": lambda _: lambda *_: None,
    }  # fmt: skip
    return VerdictInputs(**given | more)


def replay_of(comparison: Comparison) -> Replay | None:
    """The selected iterations, to be played again with less work; None where that is unknown."""
    if comparison.outliers.metric != "work" or comparison.missing_ranks:
        return None
    rows = comparison.rows(all_iterations=comparison.scope.in_range is None)
    calls = calls_again(comparison, comparison.scope.in_range)
    parts = replay_parts(comparison.scope, calls, rows)
    return None if parts is None else Replay(*parts, comparison.roles.of)
