"""Tables of one export, in any file format, and requests for their columns and rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from rankscope.model.limits import USUAL, Limits


def export_again(kind: str) -> str:
    """The hint for an export of a kind of nsys that cannot be read; nsys keeps existing files."""
    return f"is it complete? export it again: nsys export -f true -t {kind} REPORT.nsys-rep"


class ColumnRequest(Struct, frozen=True):
    """Columns of a table, and the rows to read."""

    integers: list[str]
    text: list[str] = []
    raw: list[str] = []
    only: tuple[str, list[int]] | None = None  # an integer column, and its values in rows to keep

    @property
    def types(self) -> dict[str, pl.DataType]:
        """Column → its type in a frame."""
        return {
            **dict.fromkeys(self.integers, pl.Int64()),
            **dict.fromkeys(self.text, pl.String()),
            **dict.fromkeys(self.raw, pl.Binary()),
        }


class Columns(ABC):
    """Tables of one export. Methods that read it raise `UnreadableReport`."""

    path: Path
    limits: Limits = USUAL

    @property
    @abstractmethod
    def bytes(self) -> int:
        """The size of the export."""

    @abstractmethod
    def has(self, table: str, *columns: str) -> bool:
        """Whether the export has `table` with all of `columns`."""

    def read(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table; one that is missing or of another type becomes nulls.

        Args:
            table: a table of the export.
            integers: columns to read as Int64; unsigned ids keep their bits.
            text: columns to read as String; broken UTF-8 gets replacement characters.
            only: an integer column, and the values of the rows to keep.
            raw: columns to read as Binary; empty ones are null.
        """
        return self.rows(table, ColumnRequest(integers, text or [], raw or [], only))

    def pieces(
        self,
        table: str,
        integers: list[str],
        text: list[str] | None = None,
        only: tuple[str, list[int]] | None = None,
        raw: list[str] | None = None,
        chosen: Sequence[int] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """The rows of `read` in chunks if the format has them; at least one, which may be empty.

        `chosen` selects chunks by their numbers, ascending from 0. A chunk holds the same rows in
        every call, for any columns.
        """
        return self.chunks(table, ColumnRequest(integers, text or [], raw or [], only), chosen)

    def rows(self, table: str, wanted: ColumnRequest) -> pl.DataFrame:
        """The requested columns and rows."""
        return pl.concat(self.chunks(table, wanted, None), rechunk=False)

    @abstractmethod
    def chunks(
        self, table: str, wanted: ColumnRequest, chosen: Sequence[int] | None
    ) -> Iterator[pl.DataFrame]:
        """The requested columns and rows in chunks."""
