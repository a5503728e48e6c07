"""The ranges of a report with what their names mean."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope.events import Events, Few, Held
from rankscope.vocabulary import Vocabulary

OPERATORS = ("operator", "backward operator")
"""What names of the framework's operators mean; there may be too many to hold."""


@dataclass(frozen=True, slots=True)
class Named:
    """RANGES with the columns of MEANINGS joined on."""

    every: Events
    telling: pl.DataFrame  # those that mean something, but for operators; outer ones before inner
    foreign: Events  # those that mean nothing known, of the user's (validation, logging)


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

    def foreign(part: pl.DataFrame) -> pl.DataFrame:
        nothing = pl.col("means").is_null() & ~pl.col("domain").is_in(["MPI", "NCCL"])
        columns = ("start", "end", "process", "thread", "name")
        return part.filter(nothing, pl.col("end") > pl.col("start")).select(columns)

    every = ranges.map(named)
    telling: list[pl.DataFrame] = []
    few = Few()
    for part in every.parts():
        telling.append(part.filter(~pl.col("means").is_in(OPERATORS)))
        few.add(foreign(part))
    return Named(
        every,
        pl.concat(telling).sort("start", "end", descending=[False, True], maintain_order=True),
        every.map(foreign) if few.parts is None else Held(pl.concat(few.parts)),
    )
