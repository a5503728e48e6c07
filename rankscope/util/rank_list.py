"""Numbers of ranks and iterations as users write them."""

import re
from collections.abc import Iterable
from itertools import islice

from rankscope.errors import UsageError

MOST_RANKS = 10**6
"""Most ranks of a job; a larger number or a longer list is a mistake, and would take memory."""

LONGEST = 60
"""Most characters of a wrong text in its error."""

AS_PRINTED = re.compile(r"\s*(\d+)-(\d+)\s*")
"""A range of ranks as `wording.span` writes it, with its end."""

LARGEST = 2**61
"""Largest number of an iteration or count, so that a sum of two is an int64."""


def parse_ranks(text: str, option: str = "--ranks") -> list[int]:
    """`0,7,100:120` as ranks, in that order; as in Python, a range does not contain its end.

    `100-119`, as ranks are printed, contains it.

    Raises:
        UsageError: not a list of numbers and ranges.
    """
    ranks: dict[int, None] = {}
    try:
        for item in text.split(","):
            printed = AS_PRINTED.fullmatch(item)
            begin, colon, end = printed.group(1, 0, 2) if printed else item.partition(":")
            first = int(begin)
            last = int(end) + bool(printed) if colon else first + 1
            if max(abs(first), abs(last)) > MOST_RANKS:
                raise UsageError(
                    f"{option} {text[:LONGEST]!r} names ranks above {MOST_RANKS}",
                    hint=f"for example {option} 0,7,100:120, or 0,7,100-119",
                )
            ranks |= dict.fromkeys(range(first, last))
        if not ranks:
            raise ValueError(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text[:LONGEST]!r} is not a list of ranks",
            hint=f"for example {option} 0,7,100:120, or 0,7,100-119",
        ) from error
    return [*ranks]


def few(numbers: Iterable[int], what: str) -> list[int]:
    """Numbers that a caller gives, as a list.

    Raises:
        UsageError: there are more than `MOST_RANKS`, or one is larger than `LARGEST`.
    """
    first_numbers = [*islice(numbers, MOST_RANKS + 1)]
    if len(first_numbers) > MOST_RANKS:
        raise UsageError(
            f"more than {MOST_RANKS} {what}s are named", hint=f"no run has as many {what}s"
        )
    if wrong := [each for each in first_numbers if not abs(each) <= LARGEST]:
        raise UsageError(
            f"{what} {str(wrong[0])[:LONGEST]} is too large", hint=f"name {what}s of the run"
        )
    return first_numbers
