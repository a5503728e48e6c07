"""The ranges of a report with the meanings of their names."""

import polars as pl
from msgspec import Struct

from rankscope.model.arrays import holds, is_null, rows_of
from rankscope.model.events import BoundedBuffer, Events, InMemoryEvents
from rankscope.model.frames import stacked, with_series
from rankscope.model.limits import USUAL
from rankscope.model.ranges import Ranges, with_signatures
from rankscope.sources.conventions import OPERATORS, Vocabulary


class LabelledRanges(Struct, frozen=True):
    """RANGES with the columns of MEANINGS joined on.

    All of them are read only where iterations or phases have no names.
    """

    moments: Events  # MOMENTS
    signatures: pl.DataFrame  # SIGNATURES and MEANINGS
    meaningful: pl.DataFrame  # with a meaning; of operators, those that communicate; outer first
    foreign: Events  # ranges of the user without a known meaning (validation, logging)

    def rows(self, *columns: str, of: pl.Expr | None = None) -> pl.DataFrame:
        """Start and end of all ranges, in their order, with some columns of their signatures.

        Texts are categories.

        Args:
            columns: of `signatures`.
            of: which signatures; None: all of them.
        """
        looked_up = _with_categories(self.signatures[[*columns]])
        parts = (part[["start", "end", "signature"]] for part in self.moments.parts())
        if of is not None:
            own = self.signatures.select(of.fill_null(False)).to_series()
            parts = (rows_of(part, own[part["signature"]].to_numpy()) for part in parts)
        return stacked(with_signatures(part, looked_up) for part in parts)


def _with_categories(signatures: pl.DataFrame) -> pl.DataFrame:
    """The same with texts as categories, which take a quarter of the memory in many ranges."""
    return signatures.cast({pl.String: pl.Categorical(pl.Categories.random())})


def with_meanings(ranges: Ranges, words: Vocabulary, most_held: int = USUAL.held) -> LabelledRanges:
    """RANGES with the meanings that a vocabulary gives their names.

    Args:
        most_held: ranges without a meaning that are held; more are read again.
    """
    named = with_series(ranges.signatures, *words.meanings(ranges.signatures))
    is_known, is_operator = ~is_null(named["means"]), holds(named["means"].is_in(OPERATORS))
    has_meaning = (is_known & ~is_operator) | ~is_null(named["operation"])
    unknown = ~is_known & ~holds(named["domain"].is_in(["MPI", "NCCL"]))

    def foreign(part: pl.DataFrame) -> pl.DataFrame:
        lasting = (part["end"] > part["start"]).to_numpy() & unknown[part["signature"].to_numpy()]
        rows = rows_of(part[["start", "end", "signature"]], lasting)
        return with_signatures(rows, owners)

    owners = _with_categories(named[["process", "thread", "name"]])
    meaningful: list[pl.DataFrame] = []
    few = BoundedBuffer(most=most_held)
    for part in (ranges.of_note or ranges.moments).parts():
        meant = has_meaning[part["signature"].to_numpy()]
        meaningful.append(with_signatures(rows_of(part, meant), named))
        few.add(foreign(part))
    return LabelledRanges(
        ranges.moments,
        named,
        stacked(meaningful).sort("start", "end", descending=[False, True], maintain_order=True),
        ranges.moments.map(foreign) if few.parts is None else InMemoryEvents(stacked(few.parts)),
    )
