"""Frames made without expressions: planning one costs more than the work on a thousand rows."""

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl


def framed(columns: Iterable[pl.Series] | Mapping[str, Any]) -> pl.DataFrame:
    """A frame of series (or name → series or array), in a third of the time of `pl.DataFrame`."""
    if isinstance(columns, Mapping):
        columns = map(pl.Series, columns, columns.values())
    first, *others = columns
    return first.to_frame().hstack(others)


def stacked(frames: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """The rows of frames of one schema, at least one, in a tenth of the time of `pl.concat`."""
    first, *others = frames
    whole = first.clone()
    for each in others:  # in place, or every frame would copy the list of all chunks before it
        whole.vstack(each, in_place=True)
    return whole


def with_series(frame: pl.DataFrame, *columns: pl.Series) -> pl.DataFrame:
    """The frame with these columns, which replace those of the same names."""
    changed = frame.clone()
    for each in columns:
        have = changed.columns
        if each.name in have:
            changed.replace_column(have.index(each.name), each)
        else:
            changed.insert_column(len(have), each)
    return changed
