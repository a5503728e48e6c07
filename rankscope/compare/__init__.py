"""Across ranks: which iterations count, who waits, who is slow, what it costs."""
