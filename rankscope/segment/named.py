"""The ranges of a report with what their names mean."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.events import Events
from rankscope.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Named:
    """RANGES with the columns of MEANINGS joined on."""

    every: Events
    telling: pl.DataFrame  # those that mean something, outer ones first where they start together


def with_meanings(ranges: Events, words: Vocabulary) -> Named:
    """RANGES named by a vocabulary."""

    def named(part: pl.DataFrame) -> pl.DataFrame:
        return part.join(
            words.meanings(part),
            on=["domain", "name"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )

    every = ranges.map(named)
    telling = pl.concat(part.filter(pl.col("means").is_not_null()) for part in every.parts())
    return Named(every, telling.sort("start", "end", descending=[False, True], maintain_order=True))
