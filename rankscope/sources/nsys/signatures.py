"""Signatures of NVTX ranges: thread, domain and text, numbered in order of first appearance.

Millions of ranges have some hundred signatures, once the suffix that torch's emit_nvtx adds to
each call is removed. Everything else is therefore looked up by signature.
"""

from itertools import islice

import polars as pl

from rankscope.model.arrays import codes, holds, known_if, numbered, taken
from rankscope.model.frames import with_series

DETAILS = ("seq", "op_id", "sizes", "input_op_ids")
"""Fields that emit_nvtx appends to a name: `, seq = 1`, and so on."""

MARK = rf", (?:{'|'.join(DETAILS)}) = "
"""What begins a suffix of details, which ends with its line."""

KEYS = pl.Schema(
    [*((name, pl.Int64()) for name in ("globalTid", "domainId", "textId")), ("text", pl.String())]
)

FIRST_ROWS = 1_000
"""If none of this many events has details, those of others are removed later, one by one."""


class Signatures:
    """Numbers of signatures; two may have one meaning, one by `text` and one by `textId`."""

    def __init__(self) -> None:
        """Start without signatures."""
        self._numbers: dict[tuple[object, ...], int] = {}  # signature → its number

    def of(self, events: pl.DataFrame) -> pl.Series:
        """UInt32: the number of each event, by its columns of KEYS; the smallest unused if new."""
        keys = events[KEYS.names()]
        if keys["text"].head(FIRST_ROWS).str.contains(MARK).any():
            keys = _cut_early(keys)
        place, rows = numbered(codes(keys))
        distinct = taken(keys, rows)
        text = without_suffix(distinct["text"])
        distinct = with_series(distinct, known_if(text, holds(text != "")))
        numbers = self._numbers
        number = [numbers.setdefault(each, len(numbers)) for each in distinct.iter_rows()]
        return taken(pl.Series(number, dtype=pl.UInt32), place)

    def known(self, first: int = 0) -> pl.DataFrame:
        """KEYS by number from `first` on; texts without DETAILS, null if empty."""
        return pl.DataFrame([*islice(self._numbers, first, None)], KEYS, orient="row")


def _cut_early(keys: pl.DataFrame) -> pl.DataFrame:
    """KEYS, texts of one line without DETAILS, in half the time of `without_suffix`."""
    text = pl.col("text")
    mark = pl.when(~text.str.contains("\n", literal=True)).then(text.str.find(MARK))
    return keys.with_columns(text.cast(pl.Binary).bin.slice(0, mark).cast(pl.String))


def without_suffix(text: pl.Series) -> pl.Series:
    """Texts without DETAILS."""
    return text.str.replace(f"{MARK}.*$", "")
