"""States of the training thread in cells of the map, beside the median rank."""

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.compare.thread_states import median_peers, thread_states, work_excess
from rankscope.model.kinds import Phase
from rankscope.output.documents.common import Document

MOST_CELLS = 300
"""Most cells with states in a page; a served page requests those of the others."""


def cell_states(comparison: Comparison, cells: pl.DataFrame) -> Document:
    """States of the training threads outside of communication.

    Args:
        cells: rank, iteration.

    Returns:
        `rank/iteration` → `peer` (the median rank of the others of the role) and `parts`: lists of
        state, name, time of the rank and time of the peer in ns. Cells without a peer are left
        out, and those for which the report of the rank or of the peer has no states.
    """
    own = median_peers(work_excess(comparison), cells)
    if own.is_empty():
        return {}
    ranks, iterations = sorted({*own["rank"], *own["peer"]}), own["iteration"].unique().to_list()
    states = thread_states(comparison, ranks, iterations, [*Phase])
    part = ["rank", "iteration", "peer", "state", "name"]
    own_states = own.join(states, on=["rank", "iteration"]).rename({"total_ns": "own_ns"})
    peer_states = own.join(
        states.rename({"rank": "peer", "total_ns": "peer_ns"}), on=["peer", "iteration"]
    )
    both = (
        own_states.join(
            peer_states, on=part, how="full", coalesce=True, maintain_order="left_right"
        )
        .with_columns(pl.col("own_ns", "peer_ns").fill_null(0))
        .join(own_states, on=["rank", "iteration"], how="semi")
        .join(peer_states, on=["rank", "iteration"], how="semi")
    )
    return {
        f"{rank}/{iteration}": {
            "peer": peer,
            "parts": list(rows.select("state", "name", "own_ns", "peer_ns").rows()),
        }
        for (rank, iteration, peer), rows in both.group_by(part[:3], maintain_order=True)
    }
