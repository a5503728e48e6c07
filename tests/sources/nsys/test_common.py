"""Strings are found whatever their ids, and so is what some of them tell."""

from pathlib import Path

import polars as pl
import pytest

from rankscope.sources.columns.sqlite import SQLiteColumns
from rankscope.sources.nsys.common import Strings
from tests.support import with_rows, with_table

POOL = {0: "zero", 1: "one", 2: "two", 5: "five", 10**12: "far", -3: "below", 4: None}
ASKED = [5, None, 10**12, 3, -3, 4, 0, 2**62, -1, 5]
FOUND = ["five", None, "far", None, "below", None, "zero", None, None, "five"]


@pytest.fixture
def pool(tmp_path: Path) -> Strings:
    path = with_table(tmp_path / "report.sqlite", "StringIds", "id, value text", *POOL.items())
    return Strings.read(SQLiteColumns(with_rows(path, "StringIds", (5, "again"))))


def test_strings_by_their_ids(pool: Strings) -> None:
    assert pool.of(pl.Series(ASKED)).to_list() == FOUND
    assert pool.of(pl.Series([2, 0, None])).to_list() == ["two", "zero", None]
    nothing = pool.of(pl.Series([None, None], dtype=pl.Int64))
    assert (nothing.to_list(), nothing.dtype) == ([None, None], pl.String)


def test_what_ids_tell(pool: Strings) -> None:
    ids = [5, 5, 5, None, -3, 10**12, 3]
    values = pl.Series([None, "five", "again", "x", "below", "far", None], dtype=pl.Categorical)
    some = pool.of_values(pl.Series(ids), values)
    found = some.of(pl.Series(ASKED))
    assert found.to_list() == [*FOUND[:6], None, *FOUND[7:]]  # nothing tells of zero
    assert found.dtype == some.of(pl.Series([None], dtype=pl.Int64)).dtype == pl.Categorical
