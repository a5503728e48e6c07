"""Names → meanings: iteration, phase, collective. The conventions are data.

`conventions.toml` holds a row per framework and meaning; a user's own patterns beat them all.
Patterns are evaluated on the distinct names only, by polars (Rust syntax: no look-around, and so
no pattern that a hostile name can make slow).
"""

from rankscope.sources.conventions.api_calls import synchronises, waits_from
from rankscope.sources.conventions.kernels import known, short_name, stated_operations
from rankscope.sources.conventions.vocabulary import OPERATORS, Vocabulary, vocabulary

__all__ = [
    "OPERATORS",
    "Vocabulary",
    "known",
    "short_name",
    "stated_operations",
    "synchronises",
    "vocabulary",
    "waits_from",
]
