"""Limits of the memory for a report; importing this module is cheap."""

from msgspec import Struct


class Limits(Struct, frozen=True, kw_only=True):
    """Sizes of what is held, and of the pieces in which the rest is read."""

    part_rows: int = 100_000
    """Events in a part: what is computed of them stays small."""

    held: int = 1_000_000
    """Events that are held; of more no more than a part at once."""

    kept: int = 4_000_000
    """Events that are kept in narrow rows, of 20 to 45 bytes, instead of being read again."""

    launches: int = 5_000_000
    """API calls whose numbers, starts and threads are held, in some 24 bytes each."""

    signatures: int = 100_000
    """Above this many, names of ranges without a meaning that differ only in digits are merged;
    above twice as many, all names without a meaning are."""

    piece_bytes: int = 2**23
    """Pages of SQLite that are read at once."""

    piece_rows: int = 100_000
    """Rows of a file of Parquet or Arrow that are read at once."""


USUAL = Limits()
"""The limits of every report; tests use smaller ones."""
