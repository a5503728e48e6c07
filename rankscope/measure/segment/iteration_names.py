"""Ranges that may be the iterations, though no convention names them so."""

import re

import polars as pl

from rankscope.measure.segment.iterations import IterationRanges
from rankscope.model.events import Events
from rankscope.util.sanitize import literal

MOSTLY = 0.5
"""Iterations fill at least this share of the time, which layers of one step do not."""

FEWEST = 3
"""Fewer ranges tell nothing about a name."""


def iteration_pattern(foreign: Events, iterations: IterationRanges) -> str | None:
    """The pattern of the names of ranges that may be the iterations.

    Their names differ in numbers alone, no two are equal, they follow each other, and fill most of
    the time.

    Args:
        foreign: thread, name, start and end of ranges without a known meaning.
        iterations: what was taken for want of names.

    Returns:
        A pattern whose first group is the number; None without such ranges.
    """
    numbered = pl.concat(
        part.filter(pl.col("thread") == iterations.thread)
        .with_columns(pl.col("name").cast(pl.String))
        .filter(pl.col("name").str.contains("[0-9]"))
        for part in foreign.parts()
    ).sort("start")
    frame = iterations.frame
    whole = frame.select(pl.col("window_end").max() - pl.col("window_start").min()).item() or 0
    start, end = pl.col("start"), pl.col("end")
    alike = (
        numbered.group_by(pl.col("name").str.replace_all("[0-9]+", "0").alias("stem"))
        .agg(
            "name",
            filled=(end - start).sum(),
            apart=(start >= end.shift(1)).all() & (pl.col("name").n_unique() == pl.len()),
        )
        .filter("apart", pl.col("name").list.len() >= FEWEST, pl.col("filled") >= MOSTLY * whole)
        .sort("filled", "stem")
    )
    return None if alike.is_empty() else _pattern(alike["name"][-1].to_list())


def _pattern(names: list[str]) -> str:
    """The pattern of names that differ in numbers; the last number that differs is its group."""
    parts = [re.split("([0-9]+)", name) for name in names]
    different = [place for place, texts in enumerate(zip(*parts, strict=True)) if len({*texts}) > 1]
    number = {place: r"\d+" for place in different} | {different[-1]: r"(\d+)"}
    spelled = (number.get(place) or literal(text) for place, text in enumerate(parts[0]))
    return f"^{''.join(spelled)}$"
