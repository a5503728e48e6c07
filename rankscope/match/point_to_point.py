"""Sends and receives of pipeline neighbours, paired where `--roles` gives the neighbours."""

import numpy as np
import polars as pl

from rankscope.match.clocks import LEAST_INSTANCES
from rankscope.model.intervals import Times

OPERATION = "point_to_point"

TOGETHER_NS = 100_000
"""Largest spread, ns, of the difference between the ends of the two sides of a transfer."""


def pair_peers(collectives: pl.DataFrame, links: list[tuple[int, int]]) -> pl.DataFrame:
    """Kernels that are the two sides of one transfer.

    Each side runs until the other has arrived, so both end together. Two streams of neighbours
    belong together if the difference of their ends stays constant.

    Args:
        collectives: COLLECTIVES.
        links: pairs of ranks that send to each other.

    Returns:
        The paired rows of `collectives`, with `label`, `group` (counted from
        0) and `members` (2); `ordinal` counts the pairs of an iteration.
    """
    if not links:
        collectives = collectives.clear()
    kernels = (
        collectives.filter(pl.col("operation") == OPERATION)
        .with_columns(pl.col("rank", "iteration", "ordinal").cast(pl.Int64))
        .sort("start_ns")
    )
    streams = {
        (int(rank), str(stream)): part.with_columns(
            ordinal=pl.int_range(pl.len()).over("iteration")
        )
        for (rank, stream), part in kernels.partition_by(
            "rank", "communicator", as_dict=True
        ).items()
    }
    paired = [kernels.clear().with_columns(label=pl.lit(""), group=pl.lit(0, pl.Int64))]
    for number, (one, other) in enumerate(links):
        pairs = [
            (distance, own_key, other_key)
            for own_key in (key for key in streams if key[0] == one)
            for other_key in (key for key in streams if key[0] == other)
            if (distance := _apart(streams[own_key], streams[other_key])) is not None
        ]
        if not pairs:
            continue
        distance, *both = min(pairs)
        if distance <= TOGETHER_NS:
            paired += [
                streams[key].with_columns(
                    label=pl.lit(f"ranks {one} and {other}"), group=pl.lit(number, pl.Int64)
                )
                for key in both
            ]
    return pl.concat(paired).with_columns(members=pl.lit(2, pl.Int64))


def _apart(one: pl.DataFrame, other: pl.DataFrame) -> float | None:
    """Spread of the difference between two streams' ends; None where they cannot be paired."""
    key = ["iteration", "ordinal"]
    if one.height != other.height or one.height < LEAST_INSTANCES:
        return None
    both = one.select(*key, "end_ns").join(other.select(*key, end="end_ns"), on=key)
    if both.height < one.height:
        return None
    both = both.sort("end_ns")
    steps: list[Times] = [np.diff(both[name].to_numpy()) for name in ("end_ns", "end")]
    return float(np.median(np.abs(steps[0] - steps[1])))
