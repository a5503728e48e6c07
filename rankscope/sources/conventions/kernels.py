"""Kernel names → the collectives that they run."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.sources.conventions.name_cache import MOST_REMEMBERED
from rankscope.sources.conventions.vocabulary import conventions

UNSEEN = -1

Places = NDArray[np.int16]


def with_operation(device_work: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_WORK with the collective `operation` of each kernel; null for computation."""
    names = device_work["name"].cast(pl.Categorical).fill_null("")
    return device_work.with_columns(operation=_operations().gather(_memory.of(names)))


@cache
def _operations() -> pl.Series:
    """All operations, after null for computation."""
    every = dict.fromkeys(str(row["operation"]) for row in conventions()["kernel"])
    return pl.Series([None, *every], dtype=pl.Enum([*every]))


def _look_up(names: pl.Series) -> Places:
    """Indices into the operations."""
    places = {operation: place for place, operation in enumerate(_operations())}
    name = pl.col("name").cast(pl.String)
    found = names.to_frame("name").select(
        pl.coalesce(
            *(
                pl.when(pl.any_horizontal([name.str.contains(p) for p in row["patterns"]])).then(
                    pl.lit(places[row["operation"]], pl.Int16)
                )
                for row in conventions()["kernel"]
            ),
            pl.lit(0, pl.Int16),
        )
    )
    return found.to_series().to_numpy()


class _Memory:
    """Operations of names, looked up once, in an array indexed by the codes of their categories."""

    def __init__(self) -> None:
        self._places = np.empty(0, np.int16)
        self._keeper: pl.Series | None = None  # keeps the codes valid

    def of(self, names: pl.Series) -> Places:
        """Indices into the operations for some names."""
        codes = names.to_physical().to_numpy()
        more = int(codes.max(initial=0)) + 1 - self._places.size
        known = np.append(self._places, np.full(max(more, 0), UNSEEN, np.int16))
        found: Places = known[codes]
        if (unseen := found == UNSEEN).any():
            fresh = names.filter(unseen).unique()
            known[fresh.to_physical().to_numpy()] = _look_up(fresh)
            found = known[codes]
            small = known.size <= MOST_REMEMBERED
            self._places, self._keeper = (known, names.clear()) if small else (known[:0], None)
        return found


_memory = _Memory()
