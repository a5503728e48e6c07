"""Matching across ranks: iterations, collectives, clocks and roles, and who waits for whom.

See METHOD.md#clocks and METHOD.md#waits.
"""
