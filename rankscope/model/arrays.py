"""Short columns without expressions: planning one costs more than the work on a thousand rows."""

from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.frames import framed, with_series
from rankscope.model.intervals import Flags, Times


def rows_of(frame: pl.DataFrame, flags: Flags) -> pl.DataFrame:
    """The rows whose flag is set, one for each row."""
    if flags.all():
        return frame
    kept = pl.Series(flags)
    return framed(each.filter(kept) for each in frame.iter_columns())


def of_process(frame: pl.DataFrame, process: int) -> pl.DataFrame:
    """The rows of a process."""
    return rows_of(frame, (frame["process"] == process).to_numpy())


SPARSE = 8
"""Numbers are looked up in a table if its size is at most this multiple of their number."""

Rows = TypeVar("Rows", pl.DataFrame, pl.Series)


def taken(rows: Rows, places: NDArray[np.integer]) -> Rows:
    """The rows at some places, in their order."""
    index = pl.Series(places.astype(np.uint32))
    if isinstance(rows, pl.Series):
        return rows[index]
    return framed(each[index] for each in rows.iter_columns())


def is_null(values: pl.Series) -> Flags:
    """Whether each value is null."""
    nulls = values.null_count()
    if nulls in (0, len(values)):
        return np.full(len(values), nulls > 0)
    return pl.Series([False]).zip_with(values.eq(values), pl.Series([True])).to_numpy()


def holds(flags: pl.Series) -> Flags:
    """Whether each flag is set; of an unknown one that is not known."""
    return known_or(flags, False).to_numpy()


def filled(values: pl.Series, replacement: int | pl.Series) -> Times:
    """Integers, each null replaced."""
    return known_or(values, replacement).to_numpy()


def known_or(values: pl.Series, others: int | str | pl.Series) -> pl.Series:
    """The values, each null replaced."""
    if not values.has_nulls():
        return values
    if not isinstance(others, pl.Series):
        others = pl.Series([others], dtype=values.dtype)
    return values.zip_with(values.eq(values), others)  # null = null is null


def known_if(values: pl.Series, flags: Flags) -> pl.Series:
    """The values whose flag is set; the others become null."""
    if flags.all():
        return values
    return values.zip_with(pl.Series(flags), pl.Series([None], dtype=values.dtype))


def codes(columns: pl.DataFrame) -> Times:
    """A number above 0 for each row; equal rows have equal numbers."""
    code, most = np.ones(columns.height, dtype=np.int64), 1
    for part in _physical(columns):
        low, high = int(part.min() or 0), int(part.max() or 0)  # type: ignore[arg-type]
        if low == high and part.null_count() in (0, len(part)):
            continue
        numbers, span = filled(part.cast(pl.Int64), low), high - low + 2
        if span > SPARSE * columns.height:  # NumPy takes twenty times as long where few differ
            different = pl.Series(numbers).unique().sort().to_numpy()
            low, span, numbers = 0, len(different) + 1, np.searchsorted(different, numbers)
        elif (most + 1) * span > SPARSE * columns.height:  # else a table has room for all codes
            different, numbers = distinct(numbers - low)
            low, span = 0, len(different) + 1
        if most > np.iinfo(np.int64).max // span - 1:
            different, code = np.unique(code, return_inverse=True)
            code, most = code + 1, len(different)
        most = (most + 1) * span
        code *= span
        code += numbers - low
        code[is_null(part)] += span - 1
    return code


def _physical(columns: pl.DataFrame) -> pl.DataFrame:
    """Numbers as they are; categories and texts by their codes."""
    if all(each.is_numeric() for each in columns.dtypes):
        return columns
    names = pl.Categorical(pl.Categories.random())
    texts = (each.cast(names) for each in columns if each.dtype == pl.String())
    return with_series(columns, *texts).select_seq(pl.all().to_physical())


def distinct(codes: NDArray[np.integer]) -> tuple[Times, Times]:
    """The distinct numbers, none below 0, ascending; and the place of each number among them."""
    size = int(codes.max(initial=0)) + 1
    if size > SPARSE * len(codes):
        return np.unique(codes, return_inverse=True)
    present = np.zeros(size, np.bool_)
    present[codes] = True
    different = np.flatnonzero(present)
    table = np.empty(size, np.int64)
    table[different] = np.arange(len(different))
    return different, table[codes]


def places(codes: Times) -> tuple[Times, Times]:
    """The place of each number among the distinct ones, and the first row of each of these."""
    different, place = distinct(codes)
    first = np.empty(len(different), np.int64)
    first[place[::-1]] = np.arange(len(codes))[::-1]
    return place, first


def numbered(codes: Times) -> tuple[Times, Times]:
    """Numbers by first appearance: the number of each row, and the first row of each number."""
    place, first = places(codes)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return number[place], first[order]


def summed(keys: pl.DataFrame, sums: Times) -> tuple[pl.DataFrame, Times, Times]:
    """Sums by key: the distinct keys, their sums, and the place of each row among them."""
    place, first_rows = places(codes(keys))
    return taken(keys, first_rows), added_up(sums, place, len(first_rows)), place


def added_up(sums: Times, place: Times, rows: int) -> Times:
    """The sums of the columns by their places; shape: (len(sums), rows)."""
    totals = np.zeros((len(sums), rows), dtype=np.int64)
    for total, each in zip(totals, sums, strict=True):
        np.add.at(total, place, each)
    return totals


def with_latest(keys: pl.DataFrame, ends: Times) -> pl.DataFrame:
    """The distinct keys, each with its latest `end`."""
    place, first = places(codes(keys))
    end = np.full(len(first), np.iinfo(np.int64).min)
    np.maximum.at(end, place, ends)
    return with_series(taken(keys, first), pl.Series("end", end))


def leading(names: pl.DataFrame, totals: Times, most: int) -> Flags:
    """Whether each name is one of the `most` with the largest totals of its group.

    Args:
        names: the group and `name`, each pair once.
        totals: of each.
        most: of each group.
    """
    leads = np.full(names.height, fill_value=names.height <= most)
    if leads.all():
        return leads
    group = next(each for each in names.columns if each != "name")
    texts, row = names["name"].cast(pl.String), pl.Series("row", np.arange(names.height))
    by_total = with_series(names, texts, row, pl.Series("total", totals)).sort(
        "total", "name", descending=[True, False]
    )
    for each in by_total[group].unique():
        leads[by_total["row"].filter(by_total[group] == each).head(most)] = True
    return leads


def with_leading_names(
    keys: pl.DataFrame, sums: Times, group: str, most: int, least: int = 0
) -> tuple[pl.DataFrame, Times]:
    """Distinct keys and their sums; minor names are added up under an empty one.

    Args:
        keys: with the columns `group` and `name`; more than one may be equal.
        sums: amounts, a row each; the second one decides.
        group: of its names, the leading ones are kept.
        most: names that are kept of each.
        least: an amount below this loses its name in any case.
    """
    keys, sums, _ = summed(keys, sums)
    names, totals, place = summed(keys[[group, "name"]], sums)
    minor = ~leading(names, totals[1], most)[place] | (sums[1] < least)
    if not minor.any():
        return keys, sums
    unnamed = pl.Series([""], dtype=keys["name"].dtype)
    keys = with_series(keys, keys["name"].zip_with(pl.Series(~minor), unnamed))
    return summed(keys, sums)[:2]


ITERATIONS = 2**32
"""Larger than any number of an iteration in a key."""

NOWHERE = np.iinfo(np.int64).min
"""Placeholder for the key of a rank and an iteration that are missing."""


def looked_up(frame: pl.DataFrame, more: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the columns of `more` of the same rank and iteration, null where it has none.

    It is a join that copies little. The new columns are one chunk each: polars would otherwise
    join the chunks of all columns for each `group_by`.

    Args:
        frame: rank, iteration and other columns.
        more: the same; each rank and iteration at most once.
    """
    number = pl.col("rank").cast(pl.Int64) * ITERATIONS + pl.col("iteration")
    keys, more_keys = (each.select(number).to_series().to_numpy() for each in (frame, more))
    columns = more.drop("rank", "iteration")
    if not np.array_equal(keys, more_keys):
        order = np.argsort(more_keys, kind="stable")
        at = np.searchsorted(more_keys, keys, sorter=order)
        at = np.append(order, -1)[at]
        known = np.append(more_keys, NOWHERE)[at] == keys
        columns = columns.select(pl.all().gather(pl.Series(at).set(pl.Series(~known), None)))
    return frame.hstack(columns.rechunk())
