"""Numbers that several packages share."""

NEVER = 2**63 - 1
"""A time (ns, int64) in place of one that does not come; negative: before all others."""

ROBUST = 1.4826
"""MAD → standard deviation of a normal distribution."""
