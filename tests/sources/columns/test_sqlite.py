"""SQLite columns: any type, any bytes, and files that are none."""

from contextlib import closing
from pathlib import Path

import pytest

from rankscope.errors import UnreadableReport
from rankscope.sources.columns.sqlite import BATCH_ROWS, SQLiteColumns
from tests.support import edit, with_table

BIG = 2**63 - 1

pytestmark = pytest.mark.usefixtures("reader")


def made(path: Path, rows: list[tuple[object, ...]]) -> Path:
    return with_table(path, "t", "number, name text", *rows)


def read(path: Path, **options: tuple[str, list[int]]) -> list[tuple[object, ...]]:
    with closing(SQLiteColumns(path)) as file:
        return file.read("t", ["number"], ["name"], **options).rows()


@pytest.mark.parametrize(
    ("stored", "output"),
    [
        ((1, "a"), (1, "a")),
        ((None, None), (None, None)),
        ((BIG, "x"), (BIG, "x")),
        ((-BIG, "x"), (-BIG, "x")),
        ((0, "with\0nul"), (0, "with\0nul")),
        ((0, "ünïcødé 漢字 🚀"), (0, "ünïcødé 漢字 🚀")),
        ((0, b"broken \xff utf-8"), (0, "broken \ufffd utf-8")),
        ((3.7, "real"), (None, "real")),
        (("12", "text"), (12, "text")),
        ((0, "x" * 10_000), (0, "x" * 10_000)),
        ((0, "'; drop table t; --"), (0, "'; drop table t; --")),
    ],
)
def test_values_survive(
    tmp_path: Path, stored: tuple[object, ...], output: tuple[object, ...]
) -> None:
    assert read(made(tmp_path / "a.sqlite", [stored])) == [output]
    mixed = [(None, None)] * 3 + [stored, (7, "seven")]
    path = made(tmp_path / "b.sqlite", mixed)
    assert read(path) == [(None, None)] * 3 + [output, (7, "seven")]


@pytest.mark.parametrize(
    ("later", "read_as"), [(None, None), ("9", 9), ("nine", None), (2.5, None), (b"9", None)]
)
def test_types_that_change_after_the_first_batch(
    tmp_path: Path, later: object, read_as: int | None
) -> None:
    first: list[tuple[object, ...]] = [(i, "name") for i in range(BATCH_ROWS + 1)]
    path = made(tmp_path / "a.sqlite", [*first, (later, b"\xfe"), (BIG, "last")])
    assert read(path) == [*first, (read_as, "\ufffd"), (BIG, "last")]


def test_conditions_and_absent_columns(tmp_path: Path) -> None:
    path = made(tmp_path / "a.sqlite", [(i, str(i)) for i in range(5)])
    assert read(path, only=("number", [2, 4])) == [(2, "2"), (4, "4")]
    with closing(SQLiteColumns(path)) as file:
        assert file.has("t", "number", "name")
        assert not file.has("t", "number", "other")
        assert not file.has("u")
        frame = file.read("t", ["number", "other"], ["name", "more"])
        assert frame["other"].is_null().all()
        assert frame["more"].is_null().all()


def test_hostile_names_of_tables_and_columns(tmp_path: Path) -> None:
    name = "t'; drop table x"
    path = edit(tmp_path / "a.sqlite", f'create table "{name}" ("a b" integer, [c"d] text)')
    with closing(SQLiteColumns(path)) as file:
        assert file.has(name, "a b", 'c"d')


@pytest.mark.parametrize("name", ["with space.sqlite", "q?mark#hash.sqlite", "100%.sqlite"])
def test_names_of_files_are_no_uris(tmp_path: Path, name: str) -> None:
    assert read(made(tmp_path / name, [(1, "a")])) == [(1, "a")]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "empty"), (b"PK\x03\x04" * 50, "is not"), (b"SQLite format 3\x00" + b"\xff" * 500, "")],
)
def test_files_that_are_no_databases(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "bad.sqlite"
    path.write_bytes(content)
    with pytest.raises(UnreadableReport, match=rf"bad\.sqlite.*{why}") as refused:
        SQLiteColumns(path)
    assert refused.value.hint


@pytest.mark.parametrize("percent", [30, 50, 70, 90, 99])
def test_truncated_databases(tmp_path: Path, percent: int) -> None:
    whole = made(tmp_path / "a.sqlite", [(i, "x" * 100) for i in range(3000)]).read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: len(whole) * percent // 100])
    with pytest.raises(UnreadableReport, match=r"cut\.sqlite"):
        read(path)


def test_a_folder_and_a_file_that_is_gone(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone.sqlite"):
        with pytest.raises(UnreadableReport, match="cannot be read"):
            SQLiteColumns(path)
