"""Properties that all forms of an Nsight Systems report share."""

from __future__ import annotations

from rankscope.sources.report_format import IterationHints

FAMILY = "nsys"

HINTS = IterationHints(
    ranges="NVTX",
    no_ranges="annotate the training loop (NVTX ranges 'step 12') and profile "
    "with --trace=cuda,nvtx",
)
