"""What names mean is looked up once, and does not depend on what was asked before."""

import tracemalloc

import polars as pl

from rankscope.sources.conventions.vocabulary import NameCache


def _lengths(asked: list[list[str]], most: int = 100) -> NameCache:
    def look_up(names: pl.DataFrame) -> pl.DataFrame:
        asked.append(names["name"].to_list())
        return names.with_columns(length=pl.col("name").str.len_chars())

    return NameCache(["name"], look_up, most)


def test_only_new_names_are_looked_up() -> None:
    asked: list[list[str]] = []
    lengths = _lengths(asked)
    lengths.of(pl.DataFrame({"name": ["a", "bb", "a"]}))
    again = lengths.of(pl.DataFrame({"name": ["ccc", "bb", "ccc"]}))
    assert asked == [["a", "bb"], ["ccc"]]
    assert again.rows() == [("ccc", 3), ("bb", 2), ("ccc", 3)]


def test_too_many_names_are_reported_but_not_kept() -> None:
    asked: list[list[str]] = []
    lengths = _lengths(asked, most=2)
    many = pl.DataFrame({"name": ["a", "bb", "ccc"]})
    assert lengths.of(many).rows() == lengths.of(many).rows() == [("a", 1), ("bb", 2), ("ccc", 3)]
    assert len(asked) == 2


def test_a_name_of_many_rows_is_held_once() -> None:
    rows, long = 20_000, "x" * 1000
    lengths = _lengths([])
    named = pl.DataFrame({"name": [long, None]}).sample(rows, with_replacement=True, seed=1)
    tracemalloc.start()
    try:
        found = lengths.of(named)["length"]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.equals(named["name"].str.len_chars().rename("length"))
    assert peak < rows * len(long) / 4
