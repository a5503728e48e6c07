"""Tables below each other, shortened to the size of a screen."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rankscope.output.table_layout import Table, fold

Line = tuple[str, bool]
"""A line, and whether it is a heading."""


def fitting(tables: Sequence[Table], width: int, height: int) -> list[Line]:
    """The tables in at most `height` lines, if possible.

    Left out are, in this order: meanings of columns; blank lines, rules and the names of columns
    that do not fit; rows, those of the longest table first, down to the `least` of each.
    """
    lines: list[Line] = []
    for shown, notes, airy in _smaller(tables):
        lines = [line for table in shown for line in lines_of(table, width, notes, airy)]
        if len(lines) <= height:
            break
    return lines


def _smaller(tables: Sequence[Table]) -> Iterator[tuple[list[Table], bool, bool]]:
    """The tables, whether with notes, and whether with blank lines and rules; ever smaller."""
    yield [*tables], True, True
    yield [*tables], False, True
    remaining = [*tables]
    while True:
        yield remaining, False, False
        spare = [min(len(each.rows), each.most) - each.least for each in remaining]
        longest = max(range(len(remaining)), key=lambda place: spare[place], default=None)
        if longest is None or spare[longest] <= 0:
            return
        rows = min(len(remaining[longest].rows), remaining[longest].most) - 1
        shorter = [replace(remaining[longest], most=rows)] if rows else []
        remaining = [*remaining[:longest], *shorter, *remaining[longest + 1 :]]


def lines_of(
    table: Table,
    width: int,
    notes: bool = True,
    airy: bool = True,
    show_all: bool = False,
    sentences: int | None = None,
) -> list[Line]:
    """A table as lines that fit a width.

    Args:
        airy: with a blank line above it, a rule below the headings, and a line that names the
            columns that do not fit.
        sentences: width of title and notes; None: that of the table.
    """
    fold_at = sentences or width
    shortened, gap = (table, 0) if show_all else table.shortened()
    fitted, dropped = shortened.fitted(width)
    lines: list[Line] = [("", False)] if airy else []
    lines += [(line, True) for line in fold(fitted.title, fold_at) if fitted.title]
    if fitted.rows:
        more = f"… {len(table.rows) - len(shortened.rows)} more: --all" if gap else ""
        head, rule, *rows = fitted.lines(width, gap, more)
        lines += [(head, True), *([(rule, False)] if airy else []), *((row, False) for row in rows)]
    texts = [fitted.note] if notes and fitted.rows and fitted.note else []
    if dropped and airy:
        texts.append(f"(columns that do not fit: {', '.join(dropped)})")
    return [*lines, *((line, False) for text in texts for line in fold(text, fold_at))]
