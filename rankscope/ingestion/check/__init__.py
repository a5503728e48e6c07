"""Can these reports answer the question? What is missing, and how to capture it.

Reports go through the stages of ingest up to their rows, which are kept for it. `single_report`
examines each alone, `cross_report` compares them, `remedies` says how to capture better reports.
"""

from rankscope.ingestion.check.reports import check

__all__ = ["check"]
