"""Columns as arrays: numbers of rows stay apart, whatever the values are."""

import numpy as np
import polars as pl

from rankscope.model.arrays import codes, leading, looked_up, summed, with_latest


def test_rows_differ_however_far_apart_their_values_are() -> None:
    far = [0, 2**32, 2**63 - 1, -(2**63), None]
    rows = pl.DataFrame({name: far for name in "abc"}).join(pl.DataFrame({"d": far}), how="cross")
    number = codes(rows)
    assert len({*number.tolist()}) == rows.n_unique() == 25
    assert number.min() > 0
    first, again = np.split(codes(pl.concat([rows, rows])), 2)
    assert (first == again).all()


def test_texts_and_nulls_are_grouped_as_values_are() -> None:
    keys = pl.DataFrame({"name": ["b", "a", None, "b", None], "window": [1, 1, None, 1, None]})
    some, sums, place = summed(keys, np.array([[1, 2, 4, 8, 16]]))
    assert dict(zip(some.rows(), sums[0].tolist(), strict=True)) == {
        ("b", 1): 9,
        ("a", 1): 2,
        (None, None): 20,
    }
    assert [some.row(each) for each in place] == keys.rows()


def test_each_key_has_its_latest_end() -> None:
    keys = pl.DataFrame({"window": [1, None, 1, None], "talks": [True, False, True, True]})
    latest = with_latest(keys, np.array([-9, 4, -7, 2]))
    assert {*latest.iter_rows()} == {(1, True, -7), (None, False, 4), (None, True, 2)}


def test_the_names_with_most_lead_in_each_group_and_ties_go_by_name() -> None:
    names = pl.DataFrame({"kind": ["x", "x", "x", "y"], "name": ["c", "a", "b", "z"]})
    assert leading(names, np.array([5, 3, 3, 1]), most=2).tolist() == [True, True, False, True]


def test_columns_that_are_looked_up_are_one_chunk() -> None:
    frame = pl.DataFrame({"rank": [0, 0, 1], "iteration": [1, 2, 1]})
    more = frame.with_columns(value=pl.col("iteration") + 5)
    for parts in (more[:1], more[1:]), (more[2:], more[:2]):
        found = looked_up(frame, pl.concat(parts, rechunk=False))
        assert found["value"].to_list() == [6, 7, 6]
        assert found["value"].n_chunks() == 1
