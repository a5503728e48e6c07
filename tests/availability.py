"""Which source offers which metric, as a table of the documentation.

`python -m tests.readme` writes the table into FORMATS.md.
"""

from rankscope.model.metrics import METRICS, Need

Offer = tuple[str, str, str, str, str, str, str]

SOURCES: dict[str, Offer] = {
    "nsys: NVTX ranges, CUDA and NCCL kernels": (
        "yes", "yes", "gpu clock", "yes", "yes", "yes", "yes",
    ),
    "… with CUDA graphs traced node by node": (
        "yes", "yes", "where a graph stays in one phase", "yes", "yes", "yes", "yes",
    ),
    "… with CUDA graphs traced as a whole": (
        "yes", "host clock", "host clock, as launched", "no: waits are hidden in the graph", "no",
        "no", "a graph counts as compute",
    ),
    "nsys: NVTX ranges, blocking collectives (gloo annotated)": (
        "yes", "yes", "host clock", "yes", "yes", "yes", "no",
    ),
    "nsys: NVTX ranges, MPI traced (tables, or domain `MPI`)": (
        "yes", "yes", "host clock", "yes", "yes", "yes", "no",
    ),
    "nsys: NVTX ranges of an NCCL job without CUDA tables": (
        "yes", "yes", "only as host time",
        "no: waits are hidden in the next synchronisation; the verdict judges loading", "no", "no",
        "no",
    ),
    "PyTorch profiler with CUDA": (
        "yes", "yes", "gpu clock, where ranges or autograd's operators name them", "yes", "yes",
        "yes", "yes",
    ),
    "PyTorch profiler, gloo on the CPU": (
        "yes", "yes", "host clock, where ranges or autograd's operators name them", "yes", "yes",
        "yes", "no",
    ),
    "NCCL Inspector: verbose dump": (
        "steps that repeat", "no", "no", "no: computation is not recorded",
        "`collective_wait`, `collective_transfer`", "no", "no",
    ),
    "nsys: torch `emit_nvtx` operators and no other ranges": (
        "`--iteration auto`", "the pause before forward",
        "forward and backward, by autograd's operators", "as with ranges", "as with ranges",
        "as with ranges", "as with ranges",
    ),
    "nsys: CUDA and NCCL kernels, no ranges": (
        "`--iteration auto`", "no", "only `other`, which is all work", "gpu clock", "yes", "no",
        "yes",
    ),
}  # fmt: skip
"""What a report holds → what it offers for each `Need`, in the order of the enum."""


def availability_table() -> str:
    """A Markdown table: a row per source, a column per group of metrics with the same need."""
    needs = {
        need: [f"`{each.name}`" for each in METRICS.values() if each.needs is need] for need in Need
    }
    shown = [need for need, names in needs.items() if names]
    head = ["the report has", *(", ".join(needs[need]) for need in shown)]
    rows = [
        [source, *(dict(zip(Need, offers, strict=True))[need] for need in shown)]
        for source, offers in SOURCES.items()
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
