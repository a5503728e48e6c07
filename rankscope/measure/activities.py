"""The time of each phase by activity: kernels, copies, device idling, ranges inside the phase."""

from __future__ import annotations

import numpy as np
import polars as pl

from rankscope.measure.launches import LaunchSample, signed
from rankscope.measure.segment import PhaseRanges
from rankscope.model.arrays import codes, filled, is_null, places, taken, with_series
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
        keys = part[_KEY]
        if keys["phase"].has_nulls():
            keys = with_series(keys, keys["phase"].fill_null("other"))
        own = part["training"].to_numpy() & is_null(part["operation"]) & ~is_null(part["window"])
        place, some = places(codes(keys) * own)
        others = 0 if own.all() else 1  # everything else has place 0
        keys = taken(keys, some[others:])
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        alone, within = self._overlap(start, end)
        lengths = signed(end - start, alone, within)
        self._sampled(place - others, keys, lengths)
        place = 2 * place + alone
        sums = np.zeros((3, 2 * len(some)), dtype=np.int64)
        sums[0] = np.bincount(place, minlength=2 * len(some))
        np.add.at(sums[1], place, end - start)
        size = np.where(is_null(part["grid"]), filled(part["bytes"], 0), filled(part["grid"], 0))
        np.add.at(sums[2], place, size)
        beside, clear = sums[:, 2 * others :: 2], sums[:, 2 * others + 1 :: 2]
        self._parts.append((keys, np.concatenate((beside + clear, clear[1:]))))

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
        count = np.bincount(place[place >= 0], minlength=keys.height)
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
        self._counts.append((last, with_series(keys, pl.Series("count", count))))
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
        frame, group = _lumped(pl.concat(keys), np.concatenate(sums, axis=1))
        single = (frame["kind"] == "kernel").to_numpy() & (frame["name"] != "").to_numpy()
        lists = self._sample.lists(np.where(single[group], group, -1), frame["count"].to_numpy())
        return conform(with_series(frame, lists.alias("launches")), _KEYED)


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
        ACTIVITIES with `window` instead of `rank`; `clear_ns` and `clear_size` count the operations
        that overlap no collective; `launches` samples the kernels with a name (LaunchSample).
    """
    kinds = [sums.frame, _ranges(host, marks), idle]
    of_work = ("size", "clear_ns", "clear_size", "launches")  # idling has none of them
    frame = pl.concat([conform(each, _KEYED, optional=of_work) for each in kinds]).sort(_KEY)
    return with_series(frame, taken(iterations["iteration"], frame["window"].to_numpy()))


def _ranges(host: pl.DataFrame, marks: PhaseRanges) -> pl.DataFrame:
    begins, untils = host["start"].to_numpy(), host["end"].to_numpy()
    parts = [(empty(_KEYED)[_KEY], np.zeros((3, 0), dtype=np.int64))]
    for part in marks.foreign.parts():
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        at = np.searchsorted(begins, start, side="right") - 1
        inside = (at >= 0) & (start < untils[at])
        segments = taken(host, at[inside])
        keys = pl.DataFrame(
            {
                "window": segments["window"],
                "phase": segments["label"].cast(pl.String),
                "kind": pl.Series(["range"]).new_from_index(0, segments.height),
                "name": part["name"].filter(pl.Series(inside)),
            }
        )
        length = (end - start)[inside]
        parts.append(_summed(keys, np.stack((np.ones_like(length), length, 0 * length)))[:2])
    every, totals = zip(*parts, strict=True)
    ranges, _ = _lumped(pl.concat(every), np.concatenate(totals, axis=1))
    return conform(ranges, _KEYED, optional=("clear_ns", "clear_size", "launches"))


def _summed(keys: pl.DataFrame, sums: Times) -> tuple[pl.DataFrame, Times, Times]:
    """Equal keys become one: the keys and their sums, and the place of each former one there."""
    if keys.is_empty():
        return keys, sums, np.zeros(0, dtype=np.int64)
    place, some = places(codes(keys))
    totals = np.zeros((len(sums), len(some)), dtype=np.int64)
    for total, each in zip(totals, sums, strict=True):
        np.add.at(total, place, each)
    return taken(keys, some), totals, place


def _lumped(keys: pl.DataFrame, sums: Times) -> tuple[pl.DataFrame, Times]:
    """A row per window, phase, kind and name; minor names merged under an empty name.

    Args:
        keys: of amounts to add up; more than one may be equal.
        sums: the amounts, a row for each of _SUMS or of the first of them.

    Returns:
        The rows, and the place of each of `keys` among them.
    """
    names, totals, place = _summed(keys[["kind", "name"]], sums)
    if names.height > MOST_NAMES:
        texts, row = names["name"].cast(pl.String), pl.Series("row", np.arange(names.height))
        by_total = with_series(names, texts, row, pl.Series("total", totals[1])).sort(
            "total", "name", descending=[True, False]
        )
        leads = np.zeros(names.height, dtype=np.bool_)
        for kind in by_total["kind"].unique():
            leads[by_total["row"].filter(by_total["kind"] == kind).head(MOST_NAMES)] = True
        without = pl.Series([""], dtype=keys["name"].dtype)
        keys = with_series(keys, keys["name"].zip_with(pl.Series(leads[place]), without))
    keys, sums, place = _summed(keys, sums)
    return with_series(keys, *map(pl.Series, _SUMS, sums)), place
