"""Host ranges of a report: the moments of each, and its signature, which many ranges share."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.model.events import Events, InMemoryEvents
from rankscope.model.frames import with_series
from rankscope.model.schema import RANGES, SIGNATURES, conform


class Ranges(Struct, frozen=True):
    """RANGES as two frames, because there are far fewer signatures than ranges."""

    moments: Events  # MOMENTS
    signatures: pl.DataFrame  # SIGNATURES: that with the number n in row n
    of_note: InMemoryEvents | None  # MOMENTS but those of operators; None where they are too many

    @classmethod
    def of(cls, ranges: pl.DataFrame) -> Ranges:
        """RANGES in memory."""
        number = pl.Series("signature", np.arange(ranges.height, dtype=np.uint32))
        held = InMemoryEvents(with_series(ranges[["start", "end", "payload"]], number))
        return cls(held, ranges[SIGNATURES.names()], held)

    @property
    def whole(self) -> pl.DataFrame:
        """All ranges, as RANGES."""
        return conform(with_signatures(self.moments.whole, self.signatures), RANGES)


def with_signatures(moments: pl.DataFrame, signatures: pl.DataFrame) -> pl.DataFrame:
    """MOMENTS with the columns of `signatures` (a row per signature) in place of its number."""
    others = moments[[name for name in moments.columns if name != "signature"]]
    return with_series(others, *signatures[moments["signature"]])
