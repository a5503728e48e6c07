"""Ranks as users write them."""

from __future__ import annotations

from rankscope.errors import UsageError

MOST_RANKS = 10**6
"""No job has as many ranks: a larger number or longer list is a mistake, and would take memory."""

LONGEST = 60
"""Of a wrong text this many characters are in its error."""


def parse_ranks(text: str, option: str = "--ranks") -> list[int]:
    """`0,7,100:120` as ranks, in that order; as in Python, a range does not contain its end.

    Raises:
        UsageError: not a list of numbers and ranges.
    """
    found: dict[int, None] = {}
    try:
        for item in text.split(","):
            begin, colon, end = item.partition(":")
            first = int(begin)
            last = int(end) if colon else first + 1
            if max(abs(first), abs(last)) > MOST_RANKS:
                raise UsageError(
                    f"{option} {text[:LONGEST]!r} names ranks above {MOST_RANKS}",
                    hint=f"for example {option} 0,7,100:120",
                )
            found |= dict.fromkeys(range(first, last))
        if not found:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text[:LONGEST]!r} is not a list of ranks",
            hint=f"for example {option} 0,7,100:120",
        ) from error
    return [*found]
