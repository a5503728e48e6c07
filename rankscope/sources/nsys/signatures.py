"""Signatures of NVTX ranges: thread, domain and text, numbered in order of first appearance.

Millions of ranges have some hundred signatures, once the suffix that torch's emit_nvtx adds to
each call is removed. Everything else is therefore looked up by signature.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.model.arrays import codes, filled, numbered, rows_of, taken

DETAILS = ("seq", "op_id", "sizes", "input_op_ids")
"""Fields that emit_nvtx appends to a name: `, seq = 1`, and so on."""

MARKS = [f", {detail} = " for detail in DETAILS]
"""Each begins a suffix of details."""

WHO = ["globalTid", "domainId", "textId"]

KEYS = pl.Schema([*((name, pl.Int64()) for name in WHO), ("text", pl.String())])

NO_TEXT = -1
"""The `textId` of events that have none."""

FIRST_ROWS = 10_000
"""The signatures of this many events are known before those of the others are looked up."""


class Signatures:
    """Numbers of signatures; two may have one meaning, one by `text` and one by `textId`."""

    def __init__(self) -> None:
        """Start without signatures."""
        self._known = KEYS.to_frame()  # by number, without nulls: "" and NO_TEXT instead

    def of(self, events: pl.DataFrame) -> pl.Series:
        """UInt32: the number of each event, by its columns of KEYS; the smallest unused if new."""
        text, number = pl.col("text").fill_null(""), pl.col("textId").fill_null(NO_TEXT)
        keys = events.select("globalTid", "domainId", number, text)
        first = keys.head(FIRST_ROWS)
        if _have_details(first):
            keys = first = _cut_early(keys)
        if self._known.is_empty():  # the first events have most of the signatures
            numbers = self._learn(first)
            if first.height == keys.height:
                return numbers
        numbers = self._numbers(keys)
        if numbers.has_nulls():
            new = numbers.is_null().arg_true()
            numbers = numbers.scatter(new, self._learn(keys[new]))
        return numbers

    def known(self, first: int = 0) -> pl.DataFrame:
        """KEYS by number from `first` on; texts without DETAILS, null if empty."""
        text, number = pl.col("text"), pl.col("textId")
        return self._known.slice(first).with_columns(
            text=pl.when(text != "").then(text), textId=pl.when(number != NO_TEXT).then(number)
        )

    def _learn(self, keys: pl.DataFrame) -> pl.Series:
        """The number of each row of KEYS, whose text may have DETAILS."""
        if _have_details(keys):
            keys = keys.with_columns(without_suffix(pl.col("text")))
        place, rows = numbered(codes(keys))
        distinct, number = taken(keys, rows), np.arange(len(rows))
        if known := self._known.height:
            number = filled(self._numbers(distinct), known).astype(np.int64)
            number[number == known] += np.arange((number == known).sum())
        self._known = pl.concat([self._known, rows_of(distinct, number >= known)])
        return pl.Series(number[place].astype(np.uint32))

    def _numbers(self, keys: pl.DataFrame) -> pl.Series:
        """The number of each row of KEYS, null for a new signature."""
        # A join by all columns, one of them text, costs several times as much.
        differing = [each.name for each in keys if not _is_constant(each)] or WHO[:1]
        same = [each for each in keys if each.name not in differing]
        known = self._known.with_row_index("signature").filter(
            pl.lit(True), *(pl.col(each.name).eq_missing(each.first()) for each in same)
        )
        return keys.join(known, differing, "left", maintain_order="left")["signature"]


def _is_constant(values: pl.Series) -> bool:
    """Whether all values are equal, or all are null."""
    nulls = values.null_count()
    return nulls == len(values) or (not nulls and values.min() == values.max())


def _have_details(keys: pl.DataFrame) -> bool:
    """Whether a text of KEYS has DETAILS."""
    return bool(keys["text"].str.contains_any(MARKS).any())


def _cut_early(keys: pl.DataFrame) -> pl.DataFrame:
    """KEYS without the most frequent of DETAILS, in half the time of `without_suffix`."""
    text = pl.col("text")
    if keys.select(text.str.contains("\n", literal=True).any()).item():
        return keys  # a suffix ends with its line
    in_bytes = text.str.find(MARKS[0], literal=True)
    return keys.with_columns(text.cast(pl.Binary).bin.slice(0, in_bytes).cast(pl.String))


def without_suffix(text: pl.Expr) -> pl.Expr:
    """Texts without DETAILS."""
    return text.str.replace(rf", ({'|'.join(DETAILS)}) = .*$", "")
