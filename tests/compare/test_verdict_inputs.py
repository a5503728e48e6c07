"""How long communication holds up each rank, in the input of a verdict."""

import polars as pl

from rankscope.compare import verdict_inputs


def test_transfers_behind_work_hide_no_call_without_a_match() -> None:
    """Rank 2 spends 12 ms in its own calls; of 8 ms of all-reduces, 6 are behind work on all."""
    rows = pl.DataFrame(
        {
            "rank": [0, 1, 2],
            "exposed_communication_ns": [14, 14, 14],
            "wait_ns": [12, 12, 0],
            "collective_transfer_ns": [8, 8, 8],
        }
    )
    held = verdict_inputs._held_up(rows)
    assert held["unmatched_ns"].to_list() == [-6, -6, 6]
