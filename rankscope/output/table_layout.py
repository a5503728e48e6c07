"""Tables of text, and how they are laid out in a width: numbers whole, columns or names cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import wrap

GAP = 3
"""Blanks between two columns."""

MOST_ROWS, LAST_ROWS = 20, 5
"""Rows of a table before its middle is left out, and how many of them are its last."""

LEAST_NAME, LEAST_TEXT = 24, 14
"""Columns of names, and of text that is folded, are not made narrower than this."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; `numeric` columns are set right.

    Where a table is wider than the terminal, columns go in the order of `spare`; then names in
    the columns of `cut` lose their middle, and other text is folded; numbers are never cut.
    `drawn` columns (bars) are for terminals alone. `notes` say what columns mean, and go with
    them. Of many rows those of `telling` are shown (indices, what tells most first), or else the
    first and the last.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[str] = frozenset()
    spare: tuple[str, ...] = ()
    cut: frozenset[str] = frozenset()
    drawn: frozenset[str] = frozenset()
    notes: tuple[tuple[str, str], ...] = ()
    telling: tuple[int, ...] = ()

    @property
    def note(self) -> str:
        """What the columns that are here mean; empty: nothing to say."""
        return " · ".join(f"{name}: {text}" for name, text in self.notes if name in self.columns)

    def without(self, columns: frozenset[str]) -> Table:
        """The table without some columns."""
        kept = [index for index, name in enumerate(self.columns) if name not in columns]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )

    def shortened(self) -> tuple[Table, int]:
        """The table with at most MOST_ROWS rows, and after which of them some are left out."""
        if len(self.rows) <= MOST_ROWS:
            return self, 0
        if self.telling:
            chosen, gap = sorted(self.telling[:MOST_ROWS]), MOST_ROWS
        else:
            gap = MOST_ROWS - LAST_ROWS
            chosen = [*range(gap), *range(len(self.rows) - LAST_ROWS, len(self.rows))]
        return replace(self, rows=tuple(self.rows[index] for index in chosen)), gap

    def fitted(self, width: int) -> tuple[Table, tuple[str, ...]]:
        """The table without the columns that do not fit into `width`, and which those are."""
        dropped: list[str] = []
        for name in self.spare:
            if self.without(frozenset(dropped))._least_width() <= width:
                break
            if name in self.columns and name not in dropped:
                dropped.append(name)
        for name in reversed(dropped[:-1]):  # what went before a wide column may fit now
            rest = [each for each in dropped if each != name]
            if self.without(frozenset(rest))._least_width() <= width:
                dropped = rest
        return self.without(frozenset(dropped)), tuple(dropped)

    def lines(self, width: int, gap: int = 0, more: str = "") -> list[str]:
        """The heading, a rule and the rows, at most `width` wide unless numbers need more.

        Behind `gap` rows (0: nowhere) stands the line `more`.
        """
        widths = self._widths(width)
        rows = [self._laid(row, widths) for row in self.rows]
        if gap:
            rows.insert(gap, [more])
        rule = "─" * (sum(widths) + GAP * (len(widths) - 1))
        return [*self._laid(self.columns, widths), rule, *(line for row in rows for line in row)]

    def _natural(self) -> list[int]:
        """How wide each column is in full."""
        return [
            max(map(cells, (name, *(row[index] for row in self.rows))))
            for index, name in enumerate(self.columns)
        ]

    def _least(self) -> list[int]:
        """How narrow each column may become."""
        return [
            most
            if name in self.numeric or name in self.drawn
            else min(most, max(LEAST_NAME if name in self.cut else LEAST_TEXT, cells(name)))
            for name, most in zip(self.columns, self._natural(), strict=True)
        ]

    def _least_width(self) -> int:
        return sum(self._least()) + GAP * (len(self.columns) - 1)

    def _widths(self, width: int) -> list[int]:
        """What columns take: the widest text gives first."""
        widths, least = self._natural(), self._least()
        room = width - GAP * (len(widths) - 1)
        while sum(widths) > room:
            spare = [index for index, each in enumerate(widths) if each > least[index]]
            if not spare:
                break
            widths[max(spare, key=lambda index: widths[index])] -= 1
        return widths

    def _laid(self, row: tuple[str, ...], widths: list[int]) -> list[str]:
        """A row as lines: several where text is folded."""
        folded = [
            [cell]
            if cells(cell) <= width
            else [middle_out(cell, width)]
            if name in self.cut
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


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def middle_out(name: str, width: int) -> str:
    """`gpu-a1…-node7`: a name cut to `width`; names of a kind differ at their ends."""
    if cells(name) <= width:
        return name
    first, last = name[: (width - 1) // 2], name[-(width // 2) :]
    while cells(first) + 1 + cells(last) > width and first:
        first, last = first[:-1], last[1:]
    return f"{first}…{last}"


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """`text` in lines of at most `width`, later ones indented; words are broken only if longer."""
    if cells(text) != len(text):  # wide characters: half as many fit
        width = max(width // 2, 1)
    return wrap(text, max(width, 2), subsequent_indent=indent, break_on_hyphens=False) or [""]


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks
