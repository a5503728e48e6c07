"""Frames made without expressions are as those made with them."""

import polars as pl

from rankscope.model.frames import stacked


def test_stacked_frames_remain_as_they_are() -> None:
    columns = {"number": pl.Int64, "name": pl.Categorical, "list": pl.List(pl.Int64)}
    frames = [pl.DataFrame([(n, str(n), [n])], columns, orient="row") for n in range(4)]
    assert stacked(frames).rows() == [(n, str(n), [n]) for n in range(4)]
    assert [each.rows() for each in frames] == [[(n, str(n), [n])] for n in range(4)]
