"""The borders between steps: several ways to find where a step begins, in order of preference."""

from collections.abc import Callable

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.measure.segment.iterations import READS
from rankscope.model.intervals import Times, cells
from rankscope.model.kinds import NAMED_PHASES
from rankscope.util.numbers import NEVER

LEAST_STEPS = 3

REGULAR = 0.8
"""A border is accepted if the same event follows it in this share of the steps."""

LEAST_GAP = 0.02
"""A pause that ends a step lasts at least this share of the step."""

CLEARS = r"\bzero_grad\b"
"""Names of ranges that clear gradients: they belong to the optimizer, but occur anywhere."""


class StepEvents(Struct, frozen=True):
    """The events of one process that steps are detected from."""

    thread: int  # the training thread
    ranges: pl.DataFrame  # of that thread: start, end, name, means
    work: pl.DataFrame  # by `host` (launch), of the training threads: start, end, name, collective,
    # `main`: whether it is on the busiest stream, `computing`: whether it computes
    collectives: pl.DataFrame  # of the work, by `host`: start, end, kind (name, stream, size)


def step_begins(events: StepEvents, anchors: Times) -> Times:
    """Host times at which steps begin, one per repeat: the first of BORDERS that gives them."""
    candidates = (find(events, anchors) for find in BORDERS)
    return next(begins for begins in candidates if _one_each(begins, anchors))


def _one_each(begins: Times, anchors: Times) -> bool:
    """Whether there is one begin per repeat, apart from the capture's edges and a few others."""
    return len(begins) > 1 and abs(len(begins) - len(anchors)) <= 1 + 0.05 * len(anchors)


def _after_the_optimizer(events: StepEvents, anchors: Times) -> Times:
    """The first event after each optimizer (else backward) and the ranges that trail it.

    Loading or forward ranges begin the next step. If operators precede them (an unnamed fetch), or
    no range names them, the step begins with the first range after the optimizer, the
    collectives and the operators that read results. If a long pause and a launch precede that
    range (an unnamed fetch and its copy), the step begins with the launch.
    """
    means = pl.col("means")
    phases = events.ranges.filter(means.is_in(NAMED_PHASES))
    phases = phases.filter(~fitting(phases["name"], CLEARS))
    present = {*phases["means"].unique()}
    last = "optimizer" if "optimizer" in present else "backward"
    closers = phases.filter(means == last)
    if closers.is_empty():
        return np.zeros(0, dtype=np.int64)
    following = phases.with_columns(
        closed=(means == last).cum_sum(),
        # validation has a forward, but no backward
        backward=(means == ("backward" if "backward" in present else last)).cum_sum(),
        until=pl.when(means == last).then("end").forward_fill(),
    ).filter(pl.col("closed") > 0, pl.col("backward") > 0)
    if present & {"load", "forward"}:
        following = following.filter(means.is_in(["load", "forward"]))
        following = following.unique("closed", keep="first", maintain_order=True)
        following = following.unique("backward", keep="first", maintain_order=True)
        begins, closed = following["start"].to_numpy(), following["until"].to_numpy()
    else:
        begins, closed = closers["start"].to_numpy()[1:], closers["end"].to_numpy()[:-1]
    if not _one_each(begins, anchors):
        return begins
    ranges = events.ranges.filter(~fitting(events.ranges["name"], CLEARS))
    begins = _after_what_trails(ranges, closed, begins)
    if events.work.is_empty():
        final = int(closers["end"].to_numpy().max())
        if final > begins[-1]:
            begins = np.append(begins, _after_as_much(ranges, np.append(closed, final), begins))
        return begins
    hosts = cells(events.work["host"].to_numpy())
    step = float(np.median(np.diff(begins)))
    gap = LEAST_GAP * step
    paused = hosts[np.append(True, np.diff(hosts) >= gap)]  # since the launch before
    paused = paused[paused - last_before(events, paused) >= gap]
    earlier = np.searchsorted(paused, closed)
    return np.asarray(np.minimum(begins, np.append(paused, NEVER)[earlier]))


def fitting(names: pl.Series, pattern: str) -> pl.Series:
    """Whether each name fits a pattern, which is tried on distinct names."""
    distinct = names.unique().cast(pl.String)
    return names.is_in(distinct.filter(distinct.str.contains(pattern)).implode())


def _after_what_trails(ranges: pl.DataFrame, closed: Times, begins: Times) -> Times:
    """Start of the first range of the next step, each in [closed, begins]."""
    trails = (pl.col("means") == "collective") | fitting(ranges["name"], READS)
    ends = np.sort(ranges.filter(trails)["end"].to_numpy())
    until = np.maximum(closed, _latest(ends, begins))
    starts = np.append(ranges["start"].to_numpy(), NEVER)
    return np.asarray(np.minimum(begins, starts[np.searchsorted(starts, until)]))


def _after_as_much(ranges: pl.DataFrame, closed: Times, begins: Times) -> int:
    """The end of the last step: after as many ranges as usually follow a time in `closed`."""
    outer = _outermost(ranges)
    starts, ends = outer["start"].to_numpy(), outer["end"].to_numpy()
    after = np.searchsorted(starts, closed)
    usual = int(np.median(np.searchsorted(starts, begins) - after[:-1]))
    return int(max([closed[-1], *ends[after[-1] : after[-1] + usual]]))


def _after_the_last_collective(events: StepEvents, anchors: Times) -> Times:
    """The launch that follows the collective with the longest gap behind it."""
    launched = events.work.with_columns(then=pl.col("host").shift(-1)).filter("collective")
    behind = pl.col("host").shift(-1) - pl.col("host")
    found = _longest(launched.select("name", "host", border="then", gap=behind), anchors)
    return np.zeros(0, np.int64) if found.is_empty() else found["border"].to_numpy()


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges that lie inside no other range, as events."""
    before = pl.col("end").cum_max().shift(1, fill_value=-1)
    return ranges.filter(pl.col("start") >= before).select("start", "end", "name", host="start")


def _of_the_host(events: StepEvents) -> pl.DataFrame:
    """The ranges; without those of collectives where launches are known, which tell more."""
    if events.work.is_empty():
        return events.ranges
    return events.ranges.filter(pl.col("means").ne_missing("collective"))


def _after_the_pause(events: pl.DataFrame, anchors: Times) -> Times:
    """Host time of the event after each repeat's longest pause, if it is the same event."""
    before = pl.col("start") - pl.col("end").cum_max().shift(1)
    paused = events.sort("start").select("name", "host", border="host", gap=before)
    found = _longest(paused, anchors)
    least = LEAST_GAP * float(np.median(np.diff(anchors))) if len(anchors) > 1 else NEVER
    if found.is_empty() or found["usual"][0] < least or not found["stands_out"][0]:
        return np.zeros(0, dtype=np.int64)
    # The first and the last repeat are incomplete and may have no border.
    return found.filter(pl.col("whole") | (pl.col("gap") >= least))["border"].to_numpy()


def _longest(events: pl.DataFrame, anchors: Times) -> pl.DataFrame:
    """The event of each repeat whose gap is the longest in nearly all repeats.

    It is the same event, the n-th of its name, in each repeat. A host that stalls, or waits for a
    place in its queue, makes longer gaps elsewhere now and then.

    Args:
        events: name, host, border, gap.
        anchors: host times of one event of each repeat.

    Returns:
        The rows, by border, with `whole`: whether the repeat is complete; `usual`: the length that
        `REGULAR` of these gaps have; `stands_out`: whether half of the gaps at any other place are
        shorter than that.
    """
    cycle = np.searchsorted(anchors, events["host"].to_numpy(), side="right") - 1
    counted = (
        events.with_columns(
            cycle=pl.Series(cycle, dtype=pl.Int64),
            whole=pl.Series((cycle >= 0) & (cycle < len(anchors) - 1)),
        )
        .with_columns(
            nth=pl.int_range(pl.len()).over("cycle", "name"),
            many=pl.len().cast(pl.Int64).over("cycle", "name"),
        )
        .with_columns(most=pl.col("many").filter("whole").median().over("name").cast(pl.Int64))
        .drop_nulls()
    )
    cut = pl.when(pl.col("cycle") < 0).then(pl.col("most") - pl.col("many")).otherwise(0)
    counted = counted.with_columns(nth=pl.col("nth") + cut)  # the first repeat lacks its begin
    whole = counted.filter("whole")
    least = max(LEAST_STEPS, REGULAR * whole["cycle"].n_unique())
    gap = pl.col("gap")
    places = (
        whole.group_by("name", "nth")
        .agg(pl.len(), usual=gap.quantile(1 - REGULAR, "lower"), half=gap.median())
        .filter(pl.col("len") >= least)
        .sort("usual", "name", "nth", descending=[True, False, False])
    )
    if places.is_empty():
        return places
    name, nth, _, usual, _ = places.row(0)
    same = counted.filter(pl.col("name") == name)
    alike = ~pl.col("whole") | (pl.col("many") == pl.col("most"))
    others = same.filter(~alike).sort("cycle", "gap").unique("cycle", keep="last")
    return (
        pl.concat([same.filter(alike, pl.col("nth") == nth), others])
        .select(
            *("border", "gap", "whole"),
            usual=pl.lit(usual),
            stands_out=pl.lit(usual > (places["half"][1:].max() or 0)),
        )
        .sort("border")
    )


def last_before(events: StepEvents, moments: Times, waiting: bool = True) -> Times:
    """The time at which the host had finished everything that it began before each moment.

    This is the end of its last range or launch; or, if it then waited for the device (which
    finished before the moment), the end of the device's last work.
    """
    ends = np.sort(events.ranges["end"].to_numpy(), kind="stable")  # as most are
    launches = events.work["host"].to_numpy()
    host = np.maximum(_latest(ends, moments), _latest(launches, moments, strictly=True))
    if not len(launches) or not waiting:
        return np.where(host < 0, moments, host)
    done = np.maximum.accumulate(events.work["end"].to_numpy())
    launched = np.searchsorted(launches, moments, side="left") - 1
    device = np.where(launched >= 0, done[launched], host)
    waited = (device > host) & (device <= moments)
    return np.where(waited, device, np.where(host < 0, moments, host))


def _latest(moments: Times, before: Times, strictly: bool = False) -> Times:
    """The latest of the sorted `moments` before (or at) each; -1 where no such moment exists."""
    index = np.searchsorted(moments, before, side="left" if strictly else "right") - 1
    return np.append(moments, -1)[index]


BORDERS: tuple[Callable[[StepEvents, Times], Times], ...] = (
    _after_the_optimizer,  # ranges name the optimizer or backward
    # the device pauses between steps
    lambda events, anchors: _after_the_pause(events.work, anchors),
    # the host pauses between steps
    lambda events, anchors: _after_the_pause(_outermost(_of_the_host(events)), anchors),
    # launches pause, while the device is still busy
    lambda events, anchors: _after_the_pause(
        events.work.with_columns(start="host", end="host"), anchors
    ),
    _after_the_last_collective,  # no pause stands out: the longest time without a collective
    lambda _, anchors: anchors,  # always: correct up to a shift that is the same on every rank
)
"""Ways to find where steps begin, in order of preference, each with the case that it covers."""
