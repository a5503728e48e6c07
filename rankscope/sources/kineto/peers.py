"""Who a kernel sends to and receives from: calls of PyTorch in a Kineto trace → kernels."""

import polars as pl

SENT = "point_to_point"
"""Operation of kernels that send and receive."""


def with_peers(work: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Device work in which `communicator` of kernels that send and receive names their peers.

    A kernel does what its thread called since it launched the kernel before: `batch_isend_irecv`
    launches one for several calls.

    Args:
        work: DEVICE_WORK.
        ranges: frame of SCHEMAS[RANGE].
    """
    calls = ranges.drop_nulls("peer").sort("start")
    if calls.is_empty():
        return work
    numbered = work.with_row_index("row")
    kernels = numbered.filter(pl.col("operation") == SENT).drop_nulls(["launch", "launch_thread"])
    peers = (
        calls.select("process", "start", "peer", launch_thread="thread")
        .join_asof(
            kernels.select("row", "process", "launch", "launch_thread").sort("launch"),
            left_on="start",
            right_on="launch",
            by=["process", "launch_thread"],
            strategy="forward",
            check_sortedness=False,
        )
        .drop_nulls("row")
        .group_by("row", maintain_order=True)
        .agg(peers=pl.col("peer").str.join(", "))
    )
    named = numbered.join(peers, on="row", how="left", maintain_order="left")
    return named.with_columns(communicator=pl.coalesce("peers", "communicator")).drop(
        "row", "peers"
    )
