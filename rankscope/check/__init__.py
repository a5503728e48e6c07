"""Can these reports answer the question? What is missing, and how to capture it.

Reports go through the stages of ingest up to their rows, and nothing is stored: `examine` looks
at each alone, `together` at all of them, `remedies` knows how to do better.
"""

from rankscope.check.reports import check

__all__ = ["check"]
