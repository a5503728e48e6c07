"""The time of each phase by activity: kernels, copies, device idling, ranges inside the phase."""

import numpy as np
import polars as pl

from rankscope.measure.attribution import Attributed
from rankscope.measure.launches import LaunchSample, signed
from rankscope.measure.segment import PhaseRanges
from rankscope.model.arrays import (
    added_up,
    filled,
    holds,
    is_null,
    leading,
    places,
    rows_of,
    summed,
    taken,
    with_leading_names,
)
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.intervals import Flags, Times, count_before, union
from rankscope.model.kinds import PARTS
from rankscope.model.schema import ACTIVITIES, WORK, conform, constant, empty
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

    def __init__(self, work: Attributed) -> None:
        """Start empty; `work` has the times of names and the collectives that may overlap."""
        self._low, self._high = union(work.calls["start"].to_numpy(), work.calls["end"].to_numpy())
        names = work.by_name
        leads = leading(names[["kind", "name"]], names["total_ns"].to_numpy(), MOST_NAMES)
        leads &= holds(names["name"] != "")
        leaders = rows_of(names, leads).sort("kind", "name")
        # A row stands for a window, a phase and a lead: first each kind, for its other names, then
        # the leading names.
        kinds = pl.Series("kind", WORK.categories, WORK)
        kind, name = (leaders[each].to_physical().to_numpy() for each in ("kind", "name"))
        # by the codes of kinds and names; the last column is of names that do not lead
        self._leads = np.tile(np.arange(len(kinds))[:, None], name.max(initial=0) + 2)
        self._leads[kind, name] = np.arange(len(leaders)) + len(kinds)
        self._kinds = pl.concat([kinds, leaders["kind"]])
        self._names = pl.concat([constant("name", "", len(kinds)), leaders["name"].cast(pl.String)])
        self._sampled = (self._kinds == "kernel").to_numpy() & (self._names != "").to_numpy()
        self._parts: list[tuple[Times, Times]] = []  # rows in order, and _SUMS of each
        self._sample = LaunchSample()
        self._rows = 0  # of the parts

    def add(self, part: pl.DataFrame) -> None:
        """Add a chunk of what `attribute` returned."""
        own = part["training"].to_numpy() & is_null(part["operation"]) & ~is_null(part["window"])
        work = rows_of(part[[*_KEY, "start", "end", "grid", "bytes"]], own)
        if work.is_empty():
            return
        row = self._row(work)
        place, first = places(row - row.min())
        rows = row[first]
        start, end = work["start"].to_numpy(), work["end"].to_numpy()
        clear, within = self._overlap(start, end)
        size = np.where(is_null(work["grid"]), filled(work["bytes"], 0), filled(work["grid"], 0))
        sums = np.zeros((3, 2 * len(rows)), dtype=np.int64)
        for total, each in zip(sums, (1, end - start, size), strict=True):
            np.add.at(total, 2 * place + clear, each)
        sampled = np.flatnonzero(self._sampled[row % len(self._kinds)])
        lengths = signed(end - start, clear, within)[sampled]
        self._sample.add(place[sampled], self._counted(rows), self._rows, lengths)
        self._rows += len(rows)
        totals = sums[:, ::2] + sums[:, 1::2]
        self._parts.append((rows, np.concatenate((totals, sums[1:, 1::2]))))

    def _row(self, work: pl.DataFrame) -> Times:
        """The row that counts each operation."""
        kind, others = work["kind"].to_physical().to_numpy(), self._leads.shape[1] - 1
        name = np.minimum(filled(work["name"].to_physical(), others), others)
        lead = self._leads[kind, name]
        phase = filled(work["phase"].to_physical(), PARTS.index("other"))
        cell = work["window"].to_numpy() * len(PARTS) + phase
        return np.asarray(cell * len(self._kinds) + lead)

    def _counted(self, rows: Times) -> Times:
        """How many operations of each row the earlier parts have; `rows` is sorted."""
        counts = np.zeros_like(rows)
        for earlier, sums in self._parts:
            if earlier[-1] >= rows[0]:  # a few windows go on in this chunk
                _, place, earlier_place = np.intersect1d(rows, earlier, True, return_indices=True)
                counts[place] += sums[0, earlier_place]
        return counts

    def _overlap(self, start: Times, end: Times) -> tuple[Flags, Flags]:
        """Whether no collective overlaps each interval, and whether collectives fill it.

        Intervals are in order of their starts.
        """
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
        parts, sums = zip(*self._parts, strict=True)
        rows = np.concatenate(parts)
        group, first = places(rows - rows.min())
        row = rows[first]
        totals = added_up(np.concatenate(sums, axis=1), group, len(row))
        cell, lead = np.divmod(row, len(self._kinds))
        window, phase = np.divmod(cell, len(PARTS))
        launches = self._sample.lists(group, np.where(self._sampled[lead], totals[0], 0))
        keys = {
            "window": pl.Series(window),
            "phase": taken(pl.Series(PARTS), phase),
            "kind": taken(self._kinds, lead),
            "name": taken(self._names, lead),
        }
        amounts = dict(zip(_SUMS, map(pl.Series, totals), strict=True))
        return conform(framed({**keys, **amounts, "launches": launches}), _KEYED)


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
    frame = stacked([conform(each, _KEYED, optional=of_work) for each in kinds])
    return with_series(frame, taken(iterations["iteration"], frame["window"].to_numpy()))


def _ranges(host: pl.DataFrame, marks: PhaseRanges) -> pl.DataFrame:
    begins, untils = host["start"].to_numpy(), host["end"].to_numpy()
    parts = []
    for part in marks.foreign.parts():
        start, end = part["start"].to_numpy(), part["end"].to_numpy()
        at = np.searchsorted(begins, start, side="right") - 1
        inside = (at >= 0) & (start < untils[at])
        segments = taken(host[["window", "label"]], at[inside])
        keys = with_series(segments, part["name"].filter(pl.Series(inside)))
        length = (end - start)[inside]
        parts.append(summed(keys, np.stack((np.ones_like(length), length, 0 * length)))[:2])
    key_parts, totals = zip(*parts, strict=True)
    keys = stacked(key_parts)
    keys = with_series(keys, keys["label"].alias("phase"), constant("kind", "range", keys.height))
    keys, sums = with_leading_names(keys[_KEY], np.concatenate(totals, axis=1), "kind", MOST_NAMES)
    ranges = with_series(keys, *map(pl.Series, _SUMS, sums)).sort(_KEY)
    return conform(ranges, _KEYED, optional=("clear_ns", "clear_size", "launches"))
