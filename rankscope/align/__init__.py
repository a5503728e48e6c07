"""The same collective on several ranks, and the clocks that this ties together."""
