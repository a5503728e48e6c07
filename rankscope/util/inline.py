"""Small pieces of HTML for notebooks. All text is escaped: names come from reports."""

from collections.abc import Iterable, Sequence
from html import escape

from rankscope.util.sanitize import sanitized

LONGEST = 2000
"""Most characters of a text."""


def safe(value: object) -> str:
    """A value as text that is safe inside HTML."""
    return escape(sanitized(str(value), LONGEST))


def paragraphs(heading: str, *lines: str) -> str:
    """A bold line, and lines below it."""
    below = "".join(f"<div>{safe(line)}</div>" for line in lines if line)
    return f"<div><div><b>{safe(heading)}</b></div>{below}</div>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; None is shown as a dash."""

    def line(tag: str, cells: Sequence[object]) -> str:
        texts = ("–" if cell is None else safe(cell) for cell in cells)
        return "<tr>" + "".join(f"<{tag}>{text}</{tag}>" for text in texts) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"
