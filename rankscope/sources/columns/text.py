"""Text columns of any export version as valid strings."""

import polars as pl


def decoded(column: pl.Series) -> pl.Series:
    """Text or bytes as String: "" as null, replacement characters for what is not UTF-8."""
    if column.is_empty():  # engines that infer types had nothing to infer from
        return pl.Series(column.name, [], dtype=pl.String)
    text = strings(column)
    is_empty = text == ""
    return text.set(is_empty, None) if is_empty.any() else text


def strings(column: pl.Series) -> pl.Series:
    """Text or bytes as String: replacement characters for what is not UTF-8."""
    try:
        return column.cast(pl.String)
    except pl.exceptions.ComputeError:  # broken UTF-8 somewhere: repair the few distinct values
        distinct = column.drop_nulls().unique()
        repaired = [bytes(value).decode("utf-8", "replace") for value in distinct]
        return column.replace_strict(distinct, repaired, default=None, return_dtype=pl.String)


def undecoded(column: pl.Series) -> pl.Series:
    """Bytes as Binary; empty values become null."""
    if column.is_empty():  # engines that infer types had nothing to infer from
        return pl.Series(column.name, [], dtype=pl.Binary)
    return column.set(column.bin.size() == 0, None)
