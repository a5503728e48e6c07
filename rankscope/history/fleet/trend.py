"""Whether guilt grows, when it began, and whether it moved with a card. See METHOD.md#fleet."""

from math import erfc, sqrt

import numpy as np
import polars as pl

LEAST_RUNS = 5
"""Fewest runs for a trend."""

LARGEST_CHANCE = 0.01
"""Largest probability with which chance causes a trend."""

LEAST_BEFORE = 3
"""Fewest innocent runs before the first guilty one for guilt to have a beginning."""


def trend(appearances: pl.DataFrame) -> str | None:
    """`worse`, `better` or `steady`: Kendall's rank correlation of time and cost per iteration.

    Args:
        appearances: APPEARANCES of one piece, in the order of time.

    Returns:
        None for fewer than `LEAST_RUNS` runs.
    """
    cost = appearances["saved_ns"].to_numpy()
    n = len(cost)
    if n < LEAST_RUNS:
        return None
    score = sum(np.sign(cost[place + 1 :] - cost[place]).sum() for place in range(n - 1))
    _, ties = np.unique(cost, return_counts=True)
    variance = (
        n * (n - 1) * (2 * n + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()
    ) / 18  # of the score if order means nothing
    if variance <= 0:
        return "steady"
    deviations = max(abs(score) - 1, 0) / sqrt(variance)
    if erfc(deviations / sqrt(2)) > LARGEST_CHANCE:
        return "steady"
    return "worse" if score > 0 else "better"


def since(appearances: pl.DataFrame, starts: dict[str, int | None]) -> int | None:
    """The start of the first guilty run; None for a piece that was guilty nearly from the start.

    Args:
        appearances: APPEARANCES of one piece, in the order of time.
        starts: run → its start, ns of UTC.
    """
    guilty = appearances["guilty"].to_list()
    first = guilty.index(True) if True in guilty else 0
    return starts[appearances["run"][first]] if first >= LEAST_BEFORE else None


def follows(appearances: pl.DataFrame, rows: pl.DataFrame) -> str | None:
    """`card` if guilt moved with a card, `slot` if it stayed in the slot; None if nothing moved.

    Args:
        appearances: APPEARANCES of a suspect.
        rows: those of all hardware.
    """
    if appearances["kind"][0] == "host":
        return None
    places = appearances.group_by("host", "slot").agg(pl.col("guilty").any())
    if places.height < 2:
        return None
    if places["guilty"].sum() > 1:
        return "card"
    [left] = places.filter("guilty").select("host", "slot").iter_rows() or [(None, None)]
    heirs = rows.filter(
        pl.col("kind") == appearances["kind"][0],
        pl.col("host") == left[0],
        pl.col("slot").eq_missing(left[1]),
        pl.col("id") != appearances["id"][0],
        "guilty",
    )
    return "slot" if heirs.height else None
