"""Stored columns and tables: their types, their meanings, and their possible values.

`store/contents.py` checks the tables of a file by this before it gives rows of them, and
`out_of_bounds` the rows of a report before they are stored: what one writes the other reads.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, cast

import msgspec
import polars as pl
from msgspec import Struct

from rankscope.util.rank_list import MOST_RANKS
from rankscope.util.wording import counted

INTEGER, TEXT, FLAG = pl.Int64(), pl.String(), pl.Boolean()

Limits = tuple[int, int]
"""Smallest and largest value."""

OF_RANKS: Limits = (0, MOST_RANKS)
OF_SIZES: Limits = (1, MOST_RANKS)
"""Ranks, and how many there can be."""

OF_NUMBERS: Limits = (-(2**61), 2**61)
"""Numbers that something has by its name: iterations, processes. A step may be numbered by the time
of day, ns (until the year 2043); what is added to it must not overflow."""

OF_AXIS: Limits = (-(2**60), 2**60)
"""Times on the axis of a report, ns: 36 years."""

OF_UTC: Limits = (0, 2**62)
"""Times since the epoch, ns: until the year 2116."""

OF_LENGTHS: Limits = (0, 2**53)
"""Lengths of time, ns: 104 days. 1,000 of them can be added up."""

OF_SUMS: Limits = (0, 2**62)
"""Sums of lengths over ranks, ns."""

OF_AMOUNTS: Limits = (0, 2**53)
"""Bytes, and numbers of things."""

OF_ORDINALS: Limits = (0, 2**31 - 1)

OF_OFFSETS: Limits = (-(2**62), 2**62)
"""Times of files since the epoch, and differences between clocks, ns."""

OF_COUNTERS: Limits = (0, 2**62)
"""Values of counters."""

OF_SHARES: Limits = (0, 1)

OF_DRIFTS: Limits = (-(10**6), 10**6)
"""How far clocks run apart, microseconds per second: not a whole second."""

WINDOWS = dict[str, Annotated[int, msgspec.Meta(ge=OF_AXIS[0], le=OF_AXIS[1])]]
"""Of a report: path of a further file → its start on the report's axis, ns."""

LONGEST_TEXT = 2**24
"""Characters of a text; no name of a kernel is as long."""


class Column(Struct, frozen=True):
    """A stored column: of numbers between `limits` (of lists: their items), or of texts that are
    one of `names` where there are such.

    Of a list: `most_items`, and whether its items may be null. Of a text: whether it `is_path`, or
    the type of the `json` that it is.
    """

    dtype: pl.DataType
    meaning: str
    limits: Limits | None = None
    is_nullable: bool = False
    names: tuple[str, ...] = ()
    most_items: int | None = None
    items_nullable: bool = False
    is_path: bool = False
    json: Any = None


nullable = partial(Column, is_nullable=True)
"""A column whose values may be unknown."""


class Table(Struct, frozen=True):
    """A stored table.

    `key`: the columns that identify a row. `ordered`: pairs of columns; the first is at most the
    second. `joint`: pairs of columns; one is null where the other is. `refers`: table → columns
    whose values that table has under the same names. `complete`: table → column that has no value
    which this table lacks. `is_later`: databases of the same schema version may lack it: it is
    empty then.
    """

    meaning: str
    columns: dict[str, Column]
    key: tuple[str, ...] = ()
    ordered: tuple[tuple[str, str], ...] = ()
    joint: tuple[tuple[str, str], ...] = ()
    refers: Mapping[str, tuple[str, ...]] = {}
    complete: Mapping[str, str] = {}
    is_later: bool = False

    @property
    def schema(self) -> pl.Schema:
        """Columns and dtypes of the frames that go into it."""
        return pl.Schema((name, each.dtype) for name, each in self.columns.items())


def _all_within(values: pl.Series, limits: Limits | None) -> bool:
    """Whether no value is out of bounds, as far as a quick check can tell."""
    if values.dtype == TEXT:
        return values.estimated_size() <= LONGEST_TEXT  # of all texts together
    if limits is None or not values.dtype.is_integer():
        return False  # NaN is neither the least nor the greatest
    least, greatest = cast("int | None", values.min()), cast("int | None", values.max())
    return least is None or greatest is None or limits[0] <= least <= greatest <= limits[1]


def out_of_bounds(name: str, frame: pl.DataFrame, table: Table) -> str | None:
    """The first impossible value, as `collectives.bytes is -1`; None if there is none."""
    for column, described in table.columns.items():
        if described.dtype.is_nested() or not (described.limits or described.dtype == TEXT):
            continue
        values = frame[column]
        if _all_within(values, described.limits):
            continue
        if described.limits and described.dtype.is_numeric():
            wrong = values.filter(~values.is_between(*described.limits))
        else:
            wrong = values.filter(values.str.len_bytes() > LONGEST_TEXT)
        if len(wrong):
            value = wrong[0]
            long = isinstance(value, str)
            shown = f"has {counted(len(value), 'character')}" if long else f"is {value}"
            return f"{name}.{column} {shown}"
    for low, high in table.ordered:
        if (frame[low] > frame[high]).any():
            return f"{name}.{low} is larger than its {high}"
    return None
