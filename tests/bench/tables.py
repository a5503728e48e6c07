"""Tables of benchmarks, in Markdown and inside a page."""

from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = Path(__file__).with_name("MEASUREMENTS.md")


def rows(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text, and whose others are numbers."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def put(text: str, mark: str, to: Path = PAGE) -> None:
    """Replace what stands between `<!-- mark -->` and `<!-- /mark -->` of a page."""
    page = to.read_text("utf-8")
    begin, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    head, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"{to.name} has no place for {mark}")
    tail = rest.partition(end)[2]
    to.write_text(f"{head}{begin}\n{text}\n{end}{tail}", "utf-8")
