"""Numbers that several packages share."""

from collections.abc import Sequence

NEVER = 2**63 - 1
"""Placeholder (ns, int64) for a time that never comes; its negative is before all times."""

ROBUST = 1.4826
"""MAD → standard deviation of a normal distribution."""

ENOUGH = 50
"""Least number of iterations in a sample of many."""


def sampled(iterations: Sequence[int]) -> list[int]:
    """The iterations in order; of many, an even sample of ENOUGH to 2 ENOUGH."""
    return [*iterations[:: max(1, len(iterations) // ENOUGH)]]
