"""Numbers that several packages share."""

from collections.abc import Sequence

NEVER = 2**63 - 1
"""A time (ns, int64) in place of one that does not come; negative: before all others."""

ROBUST = 1.4826
"""MAD → standard deviation of a normal distribution."""

ENOUGH = 50
"""Iterations that are looked into."""


def sampled(iterations: Sequence[int]) -> list[int]:
    """The iterations in order; of many, an even sample of ENOUGH to 2 ENOUGH."""
    return [*iterations[:: max(1, len(iterations) // ENOUGH)]]
