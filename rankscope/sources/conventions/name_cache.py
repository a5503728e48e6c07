"""Meanings of names, looked up once: ranks use the same names, and patterns are expensive."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

MOST_REMEMBERED = 50_000
"""Number of names that stay cached between reports."""


class NameCache:
    """A table of names and their meanings that grows with every lookup."""

    def __init__(
        self,
        key: list[str],
        look_up: Callable[[pl.DataFrame], pl.DataFrame],
        most: int = MOST_REMEMBERED,
    ) -> None:
        """Cache the result of `look_up` for each distinct `key`, a frame with these columns.

        Args:
            key: names of the columns.
            look_up: adds the meanings to a frame of keys.
            most: number of names that stay cached.
        """
        self._most = most
        self._key = key
        self._look_up = look_up
        self._known: pl.DataFrame | None = None

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The distinct keys of a frame, in its order, with their meanings."""
        names = frame.select(self._key).unique(maintain_order=True)
        known = self._known
        if known is None:
            known = self._look_up(names)
        else:
            fresh = names.join(known, on=self._key, how="anti", nulls_equal=True)
            if not fresh.is_empty():
                known = pl.concat([known, self._look_up(fresh)])
        self._known = known if known.height <= self._most else None
        return names.join(known, on=self._key, how="left", nulls_equal=True, maintain_order="left")
