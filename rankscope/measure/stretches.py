"""A device's time in stretches: who owns each instant of one, and what that adds up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.intervals import Flags, Times, cells, covered, length_before, owners, union
from rankscope.measure.host import merged
from rankscope.schema import PARTS, SEGMENTS

KIND_ORDER = {"kernel": 0, "graph": 0, "set": 1, "copy": 2}
"""Of operations that run at once a kernel owns the instant before a copy does."""

LABELS = pl.Series(PARTS, dtype=SEGMENTS["label"])
OTHER, EXPOSED = PARTS.index("other"), PARTS.index("exposed_communication")

UNKNOWN = len(PARTS)
"""In place of the phase of an operation that has none."""

LENGTHS = ("compute", "communication", "busy", "training", "unphased")
"""What is added up: unions of all computation, of collectives, of both; of the computation of the
training threads, and the part of that whose phase is unknown."""

NEVER = np.iinfo(np.int64).max

Codes = NDArray[np.uint8]

COMPUTES = pl.col("training") & ~pl.col("talks") & (pl.col("end") > pl.col("start"))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a device's time, borders on the report's own axis."""

    begin: int
    end: int
    work: pl.DataFrame  # by start: what runs or starts in it, and what starts next

    def clipped(self, times: Times) -> Times:
        """The nearest moments inside."""
        return np.clip(times, self.begin, self.end)


@dataclass(frozen=True, slots=True)
class Account:
    """What a stretch adds to the device's timeline."""

    segments: pl.DataFrame  # SEGMENTS
    idle: pl.DataFrame  # SEGMENTS, those in which the device idles
    lengths: Times  # a row each of LENGTHS, a column a known window


class Stretches:
    """The time of the known windows cut into stretches, one for each part of the work.

    Each but the first begins where training work does, so that no idling is cut. What runs across
    a border is looked at on both sides of it.
    """

    def __init__(self, known: pl.DataFrame) -> None:
        """None yet; `known`: window, window_start, window_end."""
        edges = (NEVER, -NEVER)
        if not known.is_empty():
            edges = known["window_start"].item(0), known["window_end"].item(-1)
        self._low, self._high = edges
        self._begin = -NEVER
        self._waiting: pl.DataFrame | None = None

    def add(self, part: pl.DataFrame) -> Stretch | None:
        """Take in the next part of what `attribute` told; the stretch that ends where it begins."""
        told = _told(part)
        before, self._waiting = self._waiting, told
        if before is None:
            return None
        waiting = self._waiting = pl.concat([before, told])
        begins = told.filter(COMPUTES)["start"]
        if begins.is_empty():
            return None
        border = int(begins[0])
        self._waiting = waiting.filter((pl.col("start") >= border) | (pl.col("end") > border))
        return self._until(border, waiting.filter(pl.col("start") <= border))

    def last(self) -> Stretch | None:
        """What is left once all parts have been added."""
        return None if self._waiting is None else self._until(NEVER, self._waiting)

    def _until(self, border: int, work: pl.DataFrame) -> Stretch | None:
        begin, self._begin = self._begin, border
        begin, end = max(begin, self._low), min(border, self._high)
        return Stretch(begin, end, work) if begin < end else None


def _told(work: pl.DataFrame) -> pl.DataFrame:
    """What is asked of operations."""
    return work.select(
        *("start", "end", "launch", "phase", "kind", "training"),
        talks=pl.col("operation").is_not_null(),
    )


def account(
    stretch: Stretch, known: pl.DataFrame, host: pl.DataFrame, blocking: pl.DataFrame
) -> Account:
    """The stretch cut into pieces with one owner each.

    Args:
        stretch: one of `Stretches`.
        known: window, window_start, window_end of the windows that it may meet; the first begins
            no later than it.
        host: SEGMENTS of the host timeline.
        blocking: start, end of host calls that communicate and block (MPI).
    """
    training = stretch.work.filter("training")
    computing = _by_importance(training.filter(~pl.col("talks")))
    here = blocking.filter(pl.col("end") > stretch.begin, pl.col("start") < stretch.end)
    talking = pl.concat([stretch.work.filter("talks").select("start", "end"), here])
    start, end = map(stretch.clipped, _spans(computing))
    talk_start, talk_end = map(stretch.clipped, _spans(talking))
    begins, ends = (known[name].to_numpy() for name in ("window_start", "window_end"))

    borders = cells(
        stretch.clipped(begins), stretch.clipped(ends), start, end, talk_start, talk_end
    )
    owner, talks = owners(borders, start, end), covered(borders, talk_start, talk_end)
    points = _cut_idle(borders, (owner == len(start)) & ~talks, training, host)
    cell = np.searchsorted(borders, points[:-1], side="right") - 1
    owner, talks = owner[cell], talks[cell]
    runs = owner < len(start)
    idles = ~runs & ~talks

    phase = np.append(_codes(computing["phase"]), UNKNOWN)[owner]
    label = np.where(phase == UNKNOWN, OTHER, phase)
    label[~runs & talks] = EXPOSED
    label[idles] = _idle_owner(points[:-1][idles], training, host)

    window = np.searchsorted(begins, points[:-1], side="right") - 1
    inside = points[1:] <= ends[window]  # between known windows lies what nobody asks for
    pieces = pl.DataFrame(
        {
            "start": points[:-1],
            "end": points[1:],
            "window": known["window"].gather(window),
            "label": LABELS.gather(label),
            "idles": idles,
        }
    ).filter(pl.Series(inside))
    starving = pieces.with_columns(label=pl.when("idles").then("label"))
    lengths = np.zeros((len(LENGTHS), known.height), dtype=np.int64)
    lengths[:3] = _unions(stretch, begins, ends)
    for row, chosen in ((3, runs & inside), (4, runs & inside & (phase == UNKNOWN))):
        np.add.at(lengths[row], window[chosen], np.diff(points)[chosen])
    return Account(merged(pieces), merged(starving).drop_nulls("label"), lengths)


def _by_importance(computing: pl.DataFrame) -> pl.DataFrame:
    """start, end and phase, who owns an instant before others first."""
    kind = computing["kind"].replace_strict(KIND_ORDER, return_dtype=pl.Int64).to_numpy()
    launch = computing["launch"].fill_null(NEVER).to_numpy()
    order = np.lexsort((computing["start"].to_numpy(), launch, kind))
    return computing.select(pl.col("start", "end", "phase").gather(order))


def _cut_idle(borders: Times, idles: Flags, training: pl.DataFrame, host: pl.DataFrame) -> Times:
    """The borders, and in cells that idle also the moments at which their owner may change."""
    launches, starts = training["launch"].drop_nulls().to_numpy(), host["start"].to_numpy()
    moments = np.concatenate((launches, starts))
    moments = moments[(moments > borders[0]) & (moments < borders[-1])]
    cell = np.searchsorted(borders, moments, side="right") - 1
    return cells(borders, moments[idles[cell]])


def _idle_owner(moment: Times, training: pl.DataFrame, host: pl.DataFrame) -> Codes:
    """Who owns each of the moments, the device idling then."""
    start = training["start"].to_numpy()
    index = np.searchsorted(start, moment, side="left")
    following = np.minimum(index, len(start) - 1)
    launch = training["launch"].fill_null(training["start"]).to_numpy()[following]
    phase = _codes(training["phase"])[following]
    on_host = np.searchsorted(host["start"].to_numpy(), moment, side="right") - 1
    return np.where(
        (index < len(start)) & (launch <= moment),
        np.where(phase == UNKNOWN, OTHER, phase),
        _codes(host["label"])[np.maximum(on_host, 0)],
    )


def _unions(stretch: Stretch, begins: Times, ends: Times) -> Times:
    """How long there is computation, communication, any of them in each window of the stretch."""
    low, high = stretch.clipped(begins), stretch.clipped(ends)

    def inside(part: pl.DataFrame) -> Times:
        start, end = union(*_spans(part))
        return length_before(start, end, high) - length_before(start, end, low)

    parts = (stretch.work.filter(~pl.col("talks")), stretch.work.filter("talks"), stretch.work)
    return np.stack([inside(part) for part in parts])


def _spans(frame: pl.DataFrame) -> tuple[Times, Times]:
    return frame["start"].to_numpy(), frame["end"].to_numpy()


def _codes(parts: pl.Series) -> Codes:
    """Places in PARTS, `UNKNOWN` for null."""
    return parts.to_physical().fill_null(UNKNOWN).to_numpy()
