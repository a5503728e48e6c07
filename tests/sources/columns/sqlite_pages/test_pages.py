"""SQLite's pages, read without SQLite: the same frames as through it, or none."""

import random
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankscope.model.limits import Limits
from rankscope.sources import formats
from rankscope.sources.columns import sqlite
from rankscope.sources.columns.request import ColumnRequest
from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.discover import describe
from tests.sources.exports import as_export
from tests.sources.tables import PAGES, Row, agreed, both, edit, from_pages, made
from tests.support import MakeForged, mostly_nightly

EDGES = [
    0,
    1,
    -1,
    *(
        sign * 2**bits + one
        for bits in (7, 15, 23, 31, 47)
        for sign in (1, -1)
        for one in (-1, 0, 1)
    ),
]
EDGES += [2**63 - 1, -(2**63) + 1, -(2**63)]

WHOLE = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1), st.integers(-200, 200))
TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "with\0nul", "ünïcødé 漢字 🚀", "aten::add_, seq = 1", "x" * 300]),
)
ANY = st.one_of(
    WHOLE,
    TEXT,
    st.none(),
    st.floats(),
    st.sampled_from([59.0, "59", b"59", b"", b"broken \xff utf-8", b"\0", 1e300, "12"]),
    st.binary(max_size=8),
)
DECLARED = ["INTEGER", "TEXT", "REAL", "", "BLOB", "NUMERIC", "FLOATING POINT", "VARCHAR(3)"]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(WHOLE | st.none(), TEXT | st.none(), WHOLE), max_size=40),
    st.sampled_from(PAGES),
    st.integers(1, 30),
)
def test_what_exports_hold_is_read_from_pages(rows: list[Row], page: int, times: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        columns = "a integer, b text, c integer not null"
        path = made(Path(folder) / "a", rows * times, page, columns)
        for only in (None, ("a", [0, 1, 59, -129])):
            paged, library = both(path, ["c", "a"], ["b"], only)
            assert library is not None
            if (
                max((len(str(row[1] or "").encode()) for row in rows), default=0) < 300
                or page > 512
            ):
                assert paged is not None
                assert paged.equals(library)
            else:
                assert paged is None or paged.equals(library)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_anything_is_the_same_or_left_to_the_library(data: st.DataObject) -> None:
    declared = data.draw(st.lists(st.sampled_from(DECLARED), min_size=2, max_size=5))
    key = data.draw(
        st.sampled_from(
            [
                "",
                "",
                "integer primary key",
                "integer primary key desc",
                "int primary key",
                "integer not null primary key",
            ]
        )
    )
    names = [f"c{i}" for i in range(len(declared))]
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, declared, strict=True))
    rows = data.draw(st.lists(st.tuples(*[ANY] * len(names)), max_size=30))
    added = data.draw(
        st.sampled_from(["", "integer", "integer default 7", "text default 'x'", "text"])
    )
    after = data.draw(st.lists(st.tuples(*[ANY] * (len(names) + bool(added))), max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        connection = sqlite3.connect(path)
        connection.execute(f"pragma page_size = {data.draw(st.sampled_from(PAGES))}")
        connection.execute(f"pragma auto_vacuum = {data.draw(st.sampled_from([0, 1]))}")
        connection.execute(f"create table t (key {key or 'integer'}, {columns})")
        marks = ", ".join("?" * len(names))
        for first in (0, 1000):
            connection.executemany(
                f"insert or ignore into t values (?, {marks})",
                [(first + 3 * i, *row) for i, row in enumerate(rows)],
            )
        if added:
            connection.execute(f"alter table t add column added {added}")
            names.append("added")
        marks = ", ".join("?" * len(names))
        connection.executemany(
            f"insert or ignore into t values (?, {marks})",
            [(-i, *row) for i, row in enumerate(after)],
        )
        connection.execute("delete from t where key % 4 = 1")
        connection.commit()
        connection.close()
        chosen = data.draw(st.permutations(["key", *names]))
        cut = data.draw(st.integers(0, len(chosen)))
        integers, text = list(chosen[:cut]), list(chosen[cut:])
        only = data.draw(
            st.sampled_from([None, *((name, [59, 0, 12, 3]) for name in ["key", *names])])
        )
        paged, library = both(path, integers, text, only)
        assert library is not None
        assert paged is None or paged.equals(library), (paged, library)


def whole(path: Path) -> Path:
    """A file with a deep tree, texts of many lengths and something in between the pages."""
    rows = [(i * 37, f"name {i % 50}" * (i % 7), None if i % 3 else i, i % 4) for i in range(1500)]
    made(path, rows, 512, "a integer, b text, c integer, d integer")
    return edit(
        path, "create table other as select * from t where a % 2", "delete from t where a % 11 = 0"
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return whole(tmp_path_factory.mktemp("whole") / "a").read_bytes()


@pytest.mark.parametrize("seed", mostly_nightly(range(8), 2))
def test_damage_never_makes_other_rows(source: bytes, seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path = tmp_path / "damaged"
    for _ in range(25):
        path.write_bytes(damaged(source, draw))
        agreed(path, ["a", "c"], ["b"], draw.choice([None, ("d", [1, 2])]))


def damaged(source: bytes, draw: random.Random) -> bytes:
    """Flipped bits, whole pages elsewhere, numbers of pages and places exchanged."""
    content = bytearray(source)
    page, how = 512, draw.choice(["flip", "flip", "heads", "heads", "swap", "zero", "start"])
    pages = len(content) // page
    for _ in range(draw.choice([1, 1, 4, 20])):
        at = draw.randrange(1, pages) * page
        if how == "flip":
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        elif how == "heads":
            content[at + draw.randrange(40)] = draw.choice(
                [0, 1, 5, 13, 127, 128, 255, draw.randrange(256)]
            )
        elif how == "swap":
            other = draw.randrange(1, pages) * page
            content[at : at + page] = content[other : other + page]
        elif how == "zero":
            content[at : at + draw.choice([1, 8, 512])] = bytes(draw.choice([1, 8, 512]))
        else:
            content[draw.randrange(16, 100)] = draw.randrange(256)
    return bytes(content)


def _in_wal_mode(path: Path) -> Path:
    return edit(path, "pragma journal_mode = wal")


def _utf16(path: Path) -> Path:
    path.unlink()
    return edit(path, "pragma encoding = 'UTF-16le'", "create table t (a integer, b text)")


def _indexed(path: Path) -> Path:
    return edit(path, "create index i on t (a, b)")


def _unique(path: Path) -> Path:
    return edit(
        path,
        "alter table t rename to old",
        "create table t (a integer unique, b text)",
        "insert into t select * from old",
    )


def _without_rowid(path: Path) -> Path:
    return edit(
        path,
        "alter table t rename to old",
        "create table t (a integer, b text, primary key (a, b)) without rowid",
        "insert into t select * from old",
    )


def _generated(path: Path) -> Path:
    return edit(path, "alter table t add column c integer as (a + 1)")


def _long_text(path: Path) -> Path:
    return edit(path, f"insert into t values (0, '{'x' * 10_000}')")


def _journal(path: Path) -> Path:
    path.with_name(f"{path.name}-journal").write_bytes(b"")
    return path


def _number_as_text(path: Path) -> Path:
    return edit(path, "drop table t", "create table t (a, b)", "insert into t values (1, 2)")


@pytest.mark.parametrize(
    "make",
    [
        _in_wal_mode,
        _utf16,
        _indexed,
        _unique,
        _without_rowid,
        _generated,
        _long_text,
        _journal,
        _number_as_text,
    ],
)
def test_what_is_unusual_is_left_to_the_library(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = make(made(tmp_path / "a", [(i, str(i)) for i in range(9)]))
    assert agreed(path, ["a"], ["b"]) is None


def test_without_the_compiled_part_the_library_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "compiled", lambda: None)
    paged, library = both(made(tmp_path / "a", [(1, "x")]), ["a"], ["b"])
    assert paged is None
    assert library is not None
    assert library.rows() == [(1, "x")]


def in_pieces(path: Path) -> SQLiteColumns:
    return SQLiteColumns(path, Limits(piece_bytes=8192))


def test_who_stops_reading_leaves_no_thread_behind(tmp_path: Path) -> None:
    before = threading.active_count()
    path = made(tmp_path / "a", [(i, f"name {i}") for i in range(3000)])
    with closing(in_pieces(path)) as file:
        pieces = file.pieces("t", ["a"], ["b"])
        next(pieces)
        assert threading.active_count() > before  # it reads ahead
        assert isinstance(pieces, Generator)
        pieces.close()
    assert threading.active_count() == before


def test_the_library_goes_on_where_pages_turn_unusual(tmp_path: Path) -> None:
    rows = [(i, f"name {i}") for i in range(3000)]
    rows[2500] = (2500, "x" * 10_000)
    with closing(in_pieces(made(tmp_path / "a", rows))) as file:
        assert len(list(file.pieces("t", ["a"], ["b"]))) > 3
        assert file.read("t", ["a"], ["b"]).rows() == rows


@pytest.mark.parametrize("kind", ["sqlite", "parquetdir"])
def test_the_compiled_part_is_loaded_once_there_is_enough_to_read(
    forged: MakeForged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    report = describe(as_export(forged("plain").reports[0], kind, tmp_path), f"nsys-{kind}")
    monkeypatch.delenv(loader.SWITCH)
    monkeypatch.setattr(loader, "amount", loader.Amount(*[5 * report.bytes // 2] * 2))
    traces, loaded = [], []
    for _ in range(3):
        traces.append(formats.read(report))
        loaded.append(loader.compiled() is not None)
    assert loaded == [False, False, True]
    library, _, pages = traces
    assert library.ranges.whole.equals(pages.ranges.whole)
    assert library.device_work.whole.equals(pages.device_work.whole)


def test_the_compiled_part_is_loaded_at_once_where_enough_is_announced() -> None:
    amount = loader.Amount(worth_bytes=1000)
    amount.announce(999)
    amount.expect(999)
    assert not amount.pays_off
    amount.announce(1)
    assert amount.pays_off


def test_bytes_come_as_they_are(tmp_path: Path) -> None:
    rows = [(i, value) for i, value in enumerate([b"\xff\0\x01", None, b"", "text", b"x" * 50])]
    wanted = ColumnRequest(["a"], raw=["b"], only=("a", [0, 1, 2, 3, 4]))
    with closing(SQLiteColumns(made(tmp_path / "a", rows, columns="a integer, b blob"))) as file:
        paged = from_pages(file, wanted)
        assert paged.equals(file._from_library("t", wanted))
        assert paged["b"].to_list() == [b"\xff\0\x01", None, None, b"text", b"x" * 50]


@pytest.mark.parametrize("long_at", [None, 0, 1900, 2999])
@pytest.mark.parametrize("text_first", [False, True])
def test_pieces_keep_their_rows_whatever_is_asked_of_them(
    long_at: int | None, text_first: bool, tmp_path: Path
) -> None:
    rows = [(i, "x" * 10_000 if i == long_at else f"name {i}") for i in range(3000)]
    texts = [["b"], None] if text_first else [None, ["b"]]
    only = ("a", [*range(0, 3000, 7)])
    with closing(in_pieces(made(tmp_path / "a", rows))) as file:
        first = [frame["a"].to_list() for frame in file.pieces("t", ["a"], texts[0])]
        assert [a for piece in first for a in piece] == [*range(3000)]
        again = [frame["a"].to_list() for frame in file.pieces("t", ["a"], texts[1], only)]
        assert again == [[a for a in piece if a % 7 == 0] for piece in first]
        for chosen in ([], [0], [len(first) - 1], [*range(0, len(first), 3)]):
            some = [*file.pieces("t", ["a"], ["b"], chosen=chosen)]
            assert [frame.rows() for frame in some] == [
                [rows[a] for a in first[number]] for number in chosen
            ]


def test_only_the_pages_of_chosen_pieces_are_read(tmp_path: Path) -> None:
    path = made(tmp_path / "a", [(i, f"name {i}") for i in range(3000)])
    with closing(in_pieces(path)) as file:
        first = [frame.rows() for frame in file.pieces("t", ["a"], ["b"])]
        content = path.read_bytes()
        at = content.index(b"name 2999") & -4096
        path.write_bytes(content[:at] + bytes(4096) + content[at + 4096 :])
        assert [frame.rows() for frame in file.pieces("t", ["a"], ["b"], chosen=[1])] == [first[1]]
        assert next(file.pieces("t", ["a"], ["b"])).rows() == first[0]


def test_pieces_may_be_chosen_at_once(tmp_path: Path) -> None:
    path = made(tmp_path / "a", [(i, f"name {i}") for i in range(3000)])
    with closing(in_pieces(path)) as file, closing(in_pieces(path)) as other:
        [third] = file.pieces("t", ["a"], ["b"], chosen=[3])
        assert third.equals([*other.pieces("t", ["a"], ["b"])][3])
