"""Signatures of NVTX ranges: thread, domain and text, numbered in order of first appearance.

Millions of ranges have some hundred signatures, once the suffix that torch's emit_nvtx adds to
each call is removed. Everything else is therefore looked up by signature.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import polars as pl

from rankscope.sources.columns.sqlite_pages.loader import compiled

DETAILS = ("seq", "op_id", "sizes", "input_op_ids")
"""Fields that emit_nvtx appends to a name: `, seq = 1`, and so on."""

WHO = ["globalTid", "domainId", "textId"]

KEYS = pl.Schema([*((name, pl.Int64()) for name in WHO), ("text", pl.String())])

VIEWS = pl.CompatLevel.newest()
"""Texts go to Arrow as they are."""

NO_TEXT = -1
"""The `textId` of events that have none."""


class Signatures:
    """Numbers of signatures; two may have one meaning, one by `text` and one by `textId`."""

    def __init__(self) -> None:
        """No signature has a number yet."""
        self._numbering: _Compiled | _Plain | None = None

    def of(self, events: pl.DataFrame) -> pl.Series:
        """UInt32: the number of each event, by its columns of KEYS; the smallest unused if new."""
        if self._numbering is None:
            module = compiled("row_hashing")
            self._numbering = _Plain() if module is None else _Compiled(module)
        keys = events.select(KEYS.names()).with_columns(pl.col("textId").fill_null(NO_TEXT))
        return self._numbering.of(keys)

    def known(self, first: int = 0) -> pl.DataFrame:
        """KEYS by number from `first` on; texts without DETAILS, null if empty."""
        known = KEYS.to_frame() if self._numbering is None else self._numbering.known(first)
        text, number = pl.col("text"), pl.col("textId")
        return known.with_columns(
            text=pl.when(text != "").then(text), textId=pl.when(number != NO_TEXT).then(number)
        )


def without_suffix(text: pl.Expr) -> pl.Expr:
    """Texts without DETAILS."""
    return text.str.replace(rf", ({'|'.join(DETAILS)}) = .*$", "")


class _Plain:
    """Numbered by polars."""

    def __init__(self) -> None:
        self._known = KEYS.to_frame()

    def of(self, keys: pl.DataFrame) -> pl.Series:
        """The numbers of KEYS."""
        keys = keys.with_columns(without_suffix(pl.col("text").fill_null("")))
        on = KEYS.names()
        fresh = keys.unique(maintain_order=True).join(
            self._known, on, "anti", maintain_order="left"
        )
        self._known = pl.concat([self._known, fresh])
        numbers = self._known.with_row_index("signature")
        return keys.join(numbers, on, "left", maintain_order="left")["signature"]

    def known(self, first: int) -> pl.DataFrame:
        """KEYS by number."""
        return self._known.slice(first)


class _Compiled:
    """Numbered by a hash table."""

    def __init__(self, module: ModuleType) -> None:
        marks = [f", {detail} = ".encode() for detail in DETAILS]
        ends = np.cumsum([len(mark) for mark in marks])
        self._marks = np.array([*b"".join(marks)], np.uint8), ends
        self._module = module
        self._numbers = module.Numbers.of(len(WHO))

    def of(self, keys: pl.DataFrame) -> pl.Series:
        """The numbers of KEYS."""
        rows, text = keys.height, keys["text"]
        numbers = np.empty(rows, np.uint32)
        views, contents, size = 0, [], 0
        if text.null_count() < rows:
            arrow: Any = text.fill_null("").rechunk().to_arrow(compat_level=VIEWS)
            _, first, *others = arrow.buffers()
            views, contents = first.address + 16 * arrow.offset, [each.address for each in others]
            size = int(text.str.len_bytes().sum())
        self._numbers = self._numbers.grown(rows, size)
        self._module.number(
            np.stack([keys[name].to_numpy() for name in WHO]),
            views,
            np.array(contents, np.int64),
            *self._marks,
            self._numbers,
            numbers,
        )
        return pl.Series("signature", numbers)

    def known(self, first: int) -> pl.DataFrame:
        """KEYS by number."""
        import pyarrow as pa

        numbers = self._numbers
        count, _, used = numbers.counts
        first = min(first, count)
        offsets = np.append(numbers.begins[first:count], used)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(numbers.texts[:used].copy())]
        texts = pa.Array.from_buffers(pa.large_string(), count - first, buffers)
        keys = dict(zip(WHO, numbers.keys[first:count].T, strict=True))
        return pl.DataFrame({**keys, "text": pl.Series(texts, dtype=pl.String)}, KEYS)
