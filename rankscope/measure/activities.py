"""The time of each phase by activity: kernels, copies, device idling, ranges inside the phase."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.measure.launches import LaunchSample, signed
from rankscope.measure.segment import PhaseRanges
from rankscope.model.intervals import Flags, Times, count_before, union
from rankscope.model.schema import ACTIVITIES, conform, empty
from rankscope.util.numbers import NEVER

MOST_NAMES = 24
"""Kernels, and ranges, stored by name: those with most time on the rank. The others of a kind
become one row per phase without a name."""

_KEYED = pl.Schema(
    [
        ("window", pl.Int64),
        *((name, dtype) for name, dtype in ACTIVITIES.items() if name not in ("rank", "iteration")),
    ]
)
_KEY = ["window", "phase", "kind", "name"]
_SUMS = ["count", "total_ns", "size", "clear_ns", "clear_size"]


class ActivityTotals:
    """Device work summed by iteration, phase, kind and name."""

    def __init__(self, calls: pl.DataFrame) -> None:
        """Start empty; `calls` are the collectives that operations may overlap."""
        self._low, self._high = union(calls["start"].to_numpy(), calls["end"].to_numpy())
        self._parts: list[tuple[pl.DataFrame, Times]] = []
        self._sample = LaunchSample()
        self._rows = 0  # of the parts
        self._counts: list[tuple[int, pl.DataFrame]] = []  # last window; _KEY and count of a part

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        if part.is_empty():
            return
        keys = part.select(_KEY).with_columns(pl.col("phase").fill_null("other"))
        own = part["training"] & part["operation"].is_null() & part["window"].is_not_null()
        place, some = _places(_codes(keys) * own.to_numpy())
        others = 0 if own.all() else 1  # everything else has place 0
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        alone, within = self._overlap(start, end)
        lengths = signed(end - start, alone, within)
        self._sampled(place - others, keys[some[others:]], lengths)
        place = 2 * place + alone
        sums = np.zeros((3, 2 * len(some)), dtype=np.int64)
        sums[0] = np.bincount(place, minlength=2 * len(some))
        np.add.at(sums[1], place, end - start)
        size = part.select(pl.coalesce("grid", "bytes", 0)).to_series()
        np.add.at(sums[2], place, size.to_numpy())
        beside, clear = sums[:, 2 * others :: 2], sums[:, 2 * others + 1 :: 2]
        self._parts.append((keys[some[others:]], np.concatenate((beside + clear, clear[1:]))))

    def _sampled(self, place: Times, keys: pl.DataFrame, length: Times) -> None:
        """Add kernels to the sample of launches; those of place -1 are none.

        Args:
            place: of each operation, its row of `keys`.
            keys: window, phase, kind, name.
            length: of each operation, signed.
        """
        if keys.is_empty():
            return
        of_kernels = np.append((keys["kind"] == "kernel").to_numpy(), False)
        own = np.flatnonzero(of_kernels[place])
        counts = keys.with_columns(count=np.bincount(place[place >= 0], minlength=keys.height))
        before = np.zeros(keys.height, dtype=np.int64)
        window = keys["window"].to_numpy()
        first, last = int(window.min()), int(window.max())
        again = pl.col("window") >= first  # the few windows that go on in this chunk
        overlapping = [each.filter(again) for until, each in self._counts if until >= first]
        if overlapping:
            earlier = pl.concat(overlapping).group_by(_KEY).agg(pl.col("count").sum())
            known = keys.join(earlier, _KEY, "left", nulls_equal=True, maintain_order="left")
            before = known["count"].fill_null(0).to_numpy()
        self._sample.add(place[own], before, self._rows, length[own])
        self._counts.append((last, counts))
        self._rows += keys.height

    def _overlap(self, start: Times, end: Times) -> tuple[Flags, Flags]:
        """Of intervals sorted by start: whether no collective overlaps it; whether some fill it."""
        first, last = np.searchsorted(self._high, start[[0, -1]], side="right")
        following = first + count_before(start, self._high[first:last])  # ends next
        low, high = np.append(self._low, NEVER), np.append(self._high, NEVER)
        clear: Flags = (end <= start) | (end <= low[following])
        within: Flags = (low[following] <= start) & (end <= high[following])
        return clear, within

    @property
    def frame(self) -> pl.DataFrame:
        """A row per window, phase, kind and name."""
        if not self._parts:
            return empty(_KEYED)
        keys, sums = zip(*self._parts, strict=True)
        totals = pl.DataFrame(dict(zip(_SUMS, np.concatenate(sums, axis=1), strict=True)))
        rows = pl.concat([pl.concat(keys), totals], how="horizontal").with_row_index("row")
        frame = _lumped(rows, pl.col("row"))
        group = np.empty(rows.height, np.int64)
        group[frame["row"].explode().to_numpy()] = np.repeat(
            np.arange(frame.height), frame["row"].list.len()
        )
        single = ((frame["kind"] == "kernel") & (frame["name"] != "")).fill_null(False).to_numpy()
        lists = self._sample.lists(np.where(single[group], group, -1), frame["count"].to_numpy())
        return conform(frame.drop("row").with_columns(launches=lists), _KEYED)


def activities(
    iterations: pl.DataFrame,
    host: pl.DataFrame,
    sums: ActivityTotals,
    idle: pl.DataFrame,
    marks: PhaseRanges,
) -> pl.DataFrame:
    """A row per iteration, phase, kind and name.

    Kinds: `kernel` (size: blocks), `copy`, `set` (size: bytes), `idle` (the device idles and the
    phase owns it), `range` (a host range of the training thread inside the phase that fits no
    convention; nested ones are all counted).

    Args:
        iterations: ITERATIONS.
        host: SEGMENTS of the host timeline.
        sums: the totals of all device work.
        idle: the idle time in the device's timeline.
        marks: the training thread's phase ranges.

    Returns:
        ACTIVITIES without `rank`; `clear_ns` and `clear_size` count the operations that
        overlap no collective; `launches` is a sample of the kernels with a name (LaunchSample).
    """
    number = iterations.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), "iteration")
    kinds = [sums.frame, _ranges(host, marks), idle]
    of_work = ("size", "clear_ns", "clear_size", "launches")  # idling has none of them
    frame = pl.concat([conform(each, _KEYED, optional=of_work) for each in kinds])
    frame = frame.join(number, on="window").sort("window", "phase", "kind", "name")
    return conform(frame, ACTIVITIES, optional=("rank",), drop_others=True).drop("rank")


def _codes(columns: pl.DataFrame) -> Times:
    """A number above 0 for each row; equal rows have equal numbers."""
    code = np.ones(columns.height, dtype=np.int64)
    named = columns.with_columns(pl.col(pl.String).cast(pl.Categorical))
    for part in named.select(pl.all().to_physical()):
        low, high = int(part.min() or 0), int(part.max() or 0)  # type: ignore[arg-type]
        filled = part.fill_null(high + 1) if part.null_count() else part
        code *= high - low + 2
        code += filled.to_numpy() - low
    return code


def _places(codes: Times) -> tuple[Times, Times]:
    """The place of each number among the distinct ones, and an example row for each of those."""
    if codes.max() > 8 * len(codes):
        _, having, place = np.unique(codes, return_index=True, return_inverse=True)
        return place, having
    table = np.full(codes.max() + 1, -1)
    table[codes] = np.arange(len(codes))
    different = np.flatnonzero(table >= 0)
    having = table[different]
    table[different] = np.arange(len(different))
    return table[codes], having


def _ranges(host: pl.DataFrame, marks: PhaseRanges) -> pl.DataFrame:
    opened = host.select("start", until="end", phase="label", window="window")
    parts = (
        part.sort("start")
        .join_asof(opened, on="start", strategy="backward")
        .filter(pl.col("start") < pl.col("until"))
        .with_columns(kind=pl.lit("range"), length=pl.col("end") - pl.col("start"))
        for part in marks.foreign.parts()
    )
    sums = pl.concat(_summed(part) for part in parts)
    return conform(_lumped(sums), _KEYED, optional=("clear_ns", "clear_size", "launches"))


def _summed(each: pl.DataFrame) -> pl.DataFrame:
    """A row per window, phase, kind and name."""
    return each.group_by(_KEY).agg(
        count=pl.len().cast(pl.Int64),
        total_ns=pl.col("length").sum(),
        size=pl.lit(0),
    )


def _lumped(sums: pl.DataFrame, *more: pl.Expr) -> pl.DataFrame:
    """A row per window, phase, kind and name; minor names merged under an empty name.

    Args:
        sums: rows of the same, and amounts to add up. They are many where kernels have many
            names: categories are grouped and joined in half the time of texts.
        more: what else to gather of the rows that become one.
    """
    rows = sums.lazy()
    leading = (
        rows.group_by("kind", "name")
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", pl.col("name").cast(pl.String), descending=[True, False])
        .group_by("kind", maintain_order=True)
        .head(MOST_NAMES)
        .select("kind", "name", leads=pl.lit(True))
    )
    return (
        rows.join(leading, on=["kind", "name"], how="left")
        .with_columns(name=pl.when("leads").then("name").otherwise(pl.lit("", sums["name"].dtype)))
        .drop("leads")
        .group_by(_KEY)
        .agg(pl.exclude("row").sum(), *more)
        .collect()
    )
