"""What each phase of each iteration was spent on: kernels, copies, idling, ranges inside it."""

from __future__ import annotations

import polars as pl

from rankscope.intervals import Times, length_before, union
from rankscope.schema import ACTIVITIES, conform, empty
from rankscope.segment import Marks

MOST_NAMES = 24
"""Kernels, and ranges, that are kept by name, those with most time on the rank; the rest of each
kind in a phase is one row without a name."""

_KEYED = pl.Schema(
    [
        ("window", pl.Int64),
        *((name, dtype) for name, dtype in ACTIVITIES.items() if name not in ("rank", "iteration")),
    ]
)
_KEY = ["window", "phase", "kind", "name"]


class Sums:
    """What a device computed and copied, added up by iteration, phase, kind and name."""

    def __init__(self, calls: pl.DataFrame) -> None:
        """Nothing yet; `calls` are the collectives that operations may run beside."""
        self._low, self._high = union(calls["start"].to_numpy(), calls["end"].to_numpy())
        self._parts: list[pl.DataFrame] = []

    def add(self, part: pl.DataFrame) -> None:
        """Take in a part of what `attribute` returned."""
        summed = _summed(_own(part, self._low, self._high))
        self._parts.append(conform(summed, _KEYED))

    @property
    def frame(self) -> pl.DataFrame:
        """A row per window, phase, kind and name."""
        return _lumped(pl.concat([empty(_KEYED), *self._parts]))


def activities(
    iterations: pl.DataFrame, host: pl.DataFrame, sums: Sums, idle: pl.DataFrame, marks: Marks
) -> pl.DataFrame:
    """A row per iteration, phase, kind and name.

    Kinds: `kernel` (size: blocks), `copy`, `set` (size: bytes), `idle` (the device idles and the
    phase owns it), `range` (a host range of the training thread inside the phase that means
    nothing to the conventions; nested ones count each).

    Args:
        iterations: ITERATIONS.
        host: SEGMENTS of the host timeline.
        sums: what has taken in all device work.
        idle: what the device's timeline tells of it.
        marks: the training thread's marks.

    Returns:
        ACTIVITIES without `rank`; `clear_ns` and `clear_size` are of the operations that no
        collective ran beside.
    """
    number = iterations.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), "iteration")
    kinds = [sums.frame, _ranges(host, marks), idle]
    frame = pl.concat([conform(each, _KEYED) for each in kinds]).join(number, on="window")
    return conform(frame.sort("window", "phase", "kind", "name"), ACTIVITIES).drop("rank")


def _own(work: pl.DataFrame, low: Times, high: Times) -> pl.DataFrame:
    """The training threads' computation, `clear` where it does not meet the intervals."""
    own = (
        work.lazy()
        .filter(pl.col("training") & pl.col("operation").is_null() & pl.col("window").is_not_null())
        .select(
            *("window", "kind", "name", "start", "end"),
            phase=pl.col("phase").fill_null("other"),
            length=pl.col("end") - pl.col("start"),
            size=pl.coalesce("grid", "bytes"),
        )
        .collect()
    )
    start, end = own["start"].to_numpy(), own["end"].to_numpy()
    beside = length_before(low, high, end) - length_before(low, high, start)
    return own.with_columns(clear=pl.Series(beside == 0))


def _ranges(host: pl.DataFrame, marks: Marks) -> pl.DataFrame:
    opened = host.select("start", until="end", phase="label", window="window")
    parts = (
        part.sort("start")
        .join_asof(opened, on="start", strategy="backward")
        .filter(pl.col("start") < pl.col("until"))
        .with_columns(
            kind=pl.lit("range"), length=pl.col("end") - pl.col("start"), size=0, clear=False
        )
        for part in marks.foreign.parts()
    )
    sums = pl.concat(conform(_summed(part), _KEYED) for part in parts)
    return _lumped(sums).with_columns(clear_ns=None, clear_size=None)


def _summed(each: pl.DataFrame) -> pl.DataFrame:
    """A row per window, phase, kind and name."""
    return each.group_by(_KEY).agg(
        count=pl.len().cast(pl.Int64),
        total_ns=pl.col("length").sum(),
        size=pl.col("size").sum(),
        clear_ns=pl.col("length").filter("clear").sum(),
        clear_size=pl.col("size").filter("clear").sum(),
    )


def _lumped(sums: pl.DataFrame) -> pl.DataFrame:
    """A row per window, phase, kind and name; names that matter little lumped as ``."""
    rows = sums.lazy()
    leading = (
        rows.group_by("kind", "name")
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", "name", descending=[True, False])
        .group_by("kind", maintain_order=True)
        .head(MOST_NAMES)
        .select("kind", "name", leads=pl.lit(True))
    )
    return (
        rows.join(leading, on=["kind", "name"], how="left")
        .with_columns(name=pl.when("leads").then("name").otherwise(pl.lit("")))
        .drop("leads")
        .group_by(_KEY)
        .sum()
        .collect()
    )
