"""Text tables, and their layout in a given width: columns or names are cut, numbers never."""

from __future__ import annotations

import re
from textwrap import wrap

from msgspec import Struct
from msgspec.structs import replace

GAP = 3
"""Number of blanks between two columns."""

MOST_ROWS, LAST_ROWS = 20, 5
"""Most rows of a shortened table, and how many of them are its last rows."""

LEAST_ROWS = 3
"""Fewest rows of a table on a small screen."""

LEAST_NAME, LEAST_TEXT = 24, 14
"""Least width of columns of names, and of columns of folded text, in characters. Words of up to
LEAST_NAME are not broken."""

UNIT = re.compile(r"(?<=\d) (?=(?:%|[mµ]?s|[kMG]B)(?!\w))")
"""The blank between a number and its unit, at which lines are not broken."""


class Table(Struct, frozen=True):
    """Rows of text.

    If a table is wider than the terminal, it loses the columns of `drop_first`; then names in the
    columns of `shorten` lose their middle, and other text is folded. Numbers are never cut.

    Attributes:
        title: the headline.
        columns: the headings.
        rows: the cells, as wide as `columns`.
        numeric: columns that are aligned right.
        drop_first: columns that may be dropped, in this order.
        shorten: columns of names, whose middle may be replaced by an ellipsis.
        notes: columns and their meanings; a meaning is shown if its column is.
        remarks: notes on the rows, below them.
        most: most rows of the shortened table.
        least: fewest rows on a small screen; 0: the table may be left out there.
        most_relevant: indices of the rows to show if there are too many, the most relevant row
            first; without it the first and the last rows are shown.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    drop_first: tuple[str, ...] = ()
    shorten: frozenset[str] = frozenset()
    notes: tuple[tuple[str, str], ...] = ()
    remarks: tuple[str, ...] = ()
    most: int = MOST_ROWS
    least: int = LEAST_ROWS
    most_relevant: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """The meanings of the columns of this table, and remarks, on one line; may be empty."""
        meanings = (f"{name}: {text}" for name, text in self.notes if name in self.columns)
        return " · ".join([*self.remarks, *meanings])

    def without(self, columns: frozenset[str]) -> Table:
        """The table without some columns."""
        kept = [index for index, name in enumerate(self.columns) if name not in columns]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )

    def shortened(self) -> tuple[Table, int]:
        """The table with at most `most` rows, and the number of rows before the gap.

        The number is 0 if no row is left out.
        """
        if len(self.rows) <= self.most:
            return self, 0
        if self.most_relevant:
            selected, gap = sorted(self.most_relevant[: self.most]), self.most
        else:
            last = min(LAST_ROWS, self.most // 2)
            gap = self.most - last
            selected = [*range(gap), *range(len(self.rows) - last, len(self.rows))]
        return replace(self, rows=tuple(self.rows[index] for index in selected)), gap

    def fitted(self, width: int) -> tuple[Table, tuple[str, ...]]:
        """The table without the columns that do not fit into `width`, and those columns."""
        dropped: list[str] = []
        for name in self.drop_first:
            if self.without(frozenset(dropped))._least_width() <= width:
                break
            if name in self.columns and name not in dropped:
                dropped.append(name)
        for name in reversed(dropped[:-1]):  # columns dropped before a wide one may fit again
            fewer = [each for each in dropped if each != name]
            if self.without(frozenset(fewer))._least_width() <= width:
                dropped = fewer
        return self.without(frozenset(dropped)), tuple(dropped)

    def lines(self, width: int, gap: int = 0, more: str = "") -> list[str]:
        """The headings, a rule and the rows as lines.

        Args:
            gap: the number of rows before the line `more`; 0: there is no such line.
            more: text in place of the rows left out.
        """
        widths = self._widths(width)
        rows = [self._laid(row, widths) for row in self.rows]
        if gap:
            rows.insert(gap, [more])
        rule = "─" * (sum(widths) + GAP * (len(widths) - 1))
        return [*self._laid(self.columns, widths), rule, *(line for row in rows for line in row)]

    def _natural(self) -> list[int]:
        """The full width of each column."""
        return [
            max(map(display_width, (name, *(row[index] for row in self.rows))))
            for index, name in enumerate(self.columns)
        ]

    def _least(self) -> list[int]:
        """The least width of each column; of folded text, that of its longest word."""
        return [
            most
            if name in self.numeric
            else min(most, max(self._least_text(index), display_width(name)))
            for index, (name, most) in enumerate(zip(self.columns, self._natural(), strict=True))
        ]

    def _least_text(self, index: int) -> int:
        if self.columns[index] in self.shorten:
            return LEAST_NAME
        words = (word for row in self.rows for word in row[index].split())
        return max(LEAST_TEXT, min(LEAST_NAME, max(map(display_width, words), default=0)))

    def _least_width(self) -> int:
        return sum(self._least()) + GAP * (len(self.columns) - 1)

    def _widths(self, width: int) -> list[int]:
        """The width of each column in a table of `width`; the widest text is narrowed first."""
        widths, least = self._natural(), self._least()
        room = width - GAP * (len(widths) - 1)
        while sum(widths) > room:
            wider = [index for index, each in enumerate(widths) if each > least[index]]
            if not wider:
                break
            widths[max(wider, key=lambda index: widths[index])] -= 1
        return widths

    def _laid(self, row: tuple[str, ...], widths: list[int]) -> list[str]:
        """A row as lines; it has several lines if text is folded."""
        folded = [
            [cell]
            if display_width(cell) <= width
            else [middle_out(cell, width)]
            if name in self.shorten
            else fold(cell, width)
            for name, cell, width in zip(self.columns, row, widths, strict=True)
        ]
        return [
            (" " * GAP)
            .join(
                _padded(parts[line] if line < len(parts) else "", width, name in self.numeric)
                for name, parts, width in zip(self.columns, folded, widths, strict=True)
            )
            .rstrip()
            for line in range(max(map(len, folded), default=1))
        ]


def display_width(text: str) -> int:
    """The number of terminal columns that a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def middle_out(name: str, width: int) -> str:
    """A name without its middle: `gpu-a1…-node7`. Similar names differ at their ends."""
    if display_width(name) <= width:
        return name
    first, last = name[: (width - 1) // 2], name[-(width // 2) :]
    while display_width(first) + 1 + display_width(last) > width and first:
        first, last = first[:-1], last[1:]
    return f"{first}…{last}"


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """A text as lines; a word is broken only if it is longer than a line.

    Args:
        indent: put in front of all lines but the first.
    """
    if display_width(text) != len(text):  # wide characters take two columns
        width = max(width // 2, 1)
    bound = UNIT.sub("\N{NO-BREAK SPACE}", text)
    lines = wrap(bound, max(width, 2), subsequent_indent=indent, break_on_hyphens=False) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - display_width(text))
    return blanks + text if right else text + blanks
