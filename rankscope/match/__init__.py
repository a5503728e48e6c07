"""Collectives matched across ranks, and the clocks that they align. See METHOD.md#clocks."""
