"""Ranks as users write them."""

from __future__ import annotations

from rankscope.errors import UsageError


def parse_ranks(text: str, option: str = "--ranks") -> list[int]:
    """`0,7,100:120` as ranks, in that order; as in Python, a range does not contain its end.

    Raises:
        UsageError: not a list of numbers and ranges.
    """
    found: dict[int, None] = {}
    try:
        for item in text.split(","):
            begin, colon, end = item.partition(":")
            found |= dict.fromkeys(range(int(begin), int(end)) if colon else [int(begin)])
        if not found:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r} is not a list of ranks", hint=f"for example {option} 0,7,100:120"
        ) from error
    return [*found]
