"""Events of a report: in memory, or read again in parts if there are too many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import polars as pl
from msgspec import Struct

from rankscope.model.limits import USUAL


class Events(Protocol):
    """Rows of one schema that can be gone through as often as needed."""

    @property
    def whole(self) -> pl.DataFrame:
        """All of them at once."""

    def parts(self) -> Iterator[pl.DataFrame]:
        """All of them in frames of about `Limits.part_rows`; at least one, which may be empty."""

    def map(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> Events:
        """The rows changed, added to or left out, each for itself."""


class InMemoryEvents(Struct, frozen=True):
    """Events in memory."""

    whole: pl.DataFrame
    part_rows: int = USUAL.part_rows

    def parts(self) -> Iterator[pl.DataFrame]:
        """Slices of the frame."""
        for first in range(0, max(self.whole.height, 1), self.part_rows):
            yield self.whole.slice(first, self.part_rows)

    def map(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> InMemoryEvents:
        """The rows, changed once."""
        return InMemoryEvents(change(self.whole), part_rows=self.part_rows)


class StreamedEvents(Struct, frozen=True):
    """Events that stay in their report."""

    read: Callable[[], Iterator[pl.DataFrame]]

    @property
    def whole(self) -> pl.DataFrame:
        """All of them, read into memory."""
        return pl.concat(self.parts())

    def parts(self) -> Iterator[pl.DataFrame]:
        """Read from the report each time."""
        return self.read()

    def map(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> StreamedEvents:
        """The rows, changed whenever they are read."""
        return StreamedEvents(lambda: map(change, self.read()))


class BoundedBuffer:
    """A buffer of events: of all while they are few, else of those of note while these are few."""

    def __init__(
        self,
        of_note: Callable[[pl.DataFrame], pl.DataFrame] = pl.DataFrame.clone,
        *,
        most: float = USUAL.held,
    ) -> None:
        """Start empty.

        Args:
            of_note: leaves what must be kept if not all can be.
        """
        self.parts: list[pl.DataFrame] | None = []  # None: they were too many
        self.sifted = False
        self._of_note = of_note
        self._most = most

    def add(self, part: pl.DataFrame) -> None:
        """Add events."""
        if self.parts is None:
            return
        self.parts.append(self._of_note(part) if self.sifted else part)
        if _rows(self.parts) > self._most and not self.sifted:
            self.sifted = True
            self.parts = [self._of_note(each) for each in self.parts]
        if _rows(self.parts) > self._most:
            self.parts = None


def _rows(parts: list[pl.DataFrame]) -> int:
    return sum(part.height for part in parts)
