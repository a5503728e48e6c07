"""What each phase of each iteration was spent on: kernels, copies, idling, ranges inside it."""

from __future__ import annotations

import polars as pl

from rankscope.intervals import length_before, union
from rankscope.measure.device import DeviceTimeline
from rankscope.schema import ACTIVITIES, conform, empty
from rankscope.segment import Marks

MOST_NAMES = 24
"""Kernels, and ranges, that are kept by name, those with most time on the rank; the rest of each
kind in a phase is one row without a name."""


def activities(
    iterations: pl.DataFrame, host: pl.DataFrame, device: DeviceTimeline, marks: Marks
) -> pl.DataFrame:
    """A row per iteration, phase, kind and name.

    Kinds: `kernel` (size: blocks), `copy`, `set` (size: bytes), `idle` (the device idles and the
    phase owns it), `range` (a host range of the training thread inside the phase that means
    nothing to the conventions; nested ones count each).

    Args:
        iterations: ITERATIONS.
        host: SEGMENTS of the host timeline.
        device: the device's timeline.
        marks: the training thread's marks.

    Returns:
        ACTIVITIES without `rank`; `clear_ns` and `clear_size` are of the operations that no
        collective ran beside.
    """
    number = iterations.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), "iteration")
    kinds = [_operations(device.work), _ranges(host, marks), device.idle]
    frame = pl.concat([conform(each, _KEYED) for each in kinds]).join(number, on="window")
    return conform(frame.sort("window", "phase", "kind", "name"), ACTIVITIES).drop("rank")


_KEYED = pl.Schema(
    [
        ("window", pl.Int64),
        *((name, dtype) for name, dtype in ACTIVITIES.items() if name not in ("rank", "iteration")),
    ]
)
_KEY = ["window", "phase", "kind", "name"]


def _operations(work: pl.DataFrame) -> pl.DataFrame:
    own = work.filter(pl.col("training") & pl.col("operation").is_null()).drop_nulls("window")
    talking = work.filter(pl.col("operation").is_not_null())
    low, high = union(talking["start"].to_numpy(), talking["end"].to_numpy())
    start, end = own["start"].to_numpy(), own["end"].to_numpy()
    beside = length_before(low, high, end) - length_before(low, high, start)
    return _summed(
        own.with_columns(
            phase=pl.col("phase").fill_null("other"),
            length=pl.col("end") - pl.col("start"),
            clear=pl.Series(beside == 0),
            size=pl.coalesce("grid", "bytes"),
        )
    )


def _ranges(host: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    inside = (
        marks.foreign.sort("start")
        .join_asof(
            host.select("start", until="end", phase="label", window="window"),
            on="start",
            strategy="backward",
        )
        .filter(pl.col("start") < pl.col("until"))
    )
    return _summed(
        inside.with_columns(
            kind=pl.lit("range"),
            length=pl.col("end") - pl.col("start"),
            clear=pl.lit(None, pl.Boolean),
            size=pl.lit(None, pl.Int64),
        )
    )


def _summed(each: pl.DataFrame) -> pl.DataFrame:
    """A row per window, phase, kind and name; names that matter little lumped as ``."""
    if each.is_empty():
        return empty(_KEYED)
    rows = each.lazy()
    leading = (
        rows.group_by("kind", "name")
        .agg(pl.col("length").sum())
        .sort("length", "name", descending=[True, False])
        .group_by("kind", maintain_order=True)
        .head(MOST_NAMES)
        .select("kind", "name", leads=pl.lit(True))
    )
    known = pl.col("clear").is_not_null().any()
    return (
        rows.join(leading, on=["kind", "name"], how="left")
        .with_columns(name=pl.when("leads").then("name").otherwise(pl.lit("")))
        .group_by(_KEY)
        .agg(
            count=pl.len().cast(pl.Int64),
            total_ns=pl.col("length").sum(),
            size=pl.col("size").sum(),
            clear_ns=pl.when(known).then(pl.col("length").filter("clear").sum()),
            clear_size=pl.when(known).then(pl.col("size").filter("clear").sum()),
        )
        .collect()
    )
