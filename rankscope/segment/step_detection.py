"""Steps without markers: what repeats, and where one step ends and the next begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.model.intervals import Times
from rankscope.model.schema import ITERATIONS, PHASES, conform
from rankscope.segment.iterations import AUTO, IterationRanges
from rankscope.segment.periodicity import find_period
from rankscope.sources.conventions import with_operation

SURE = 0.8
"""Steps are believed where at least this share of what a step does recurs in the next."""

LEAST_STEPS = 3

REGULAR = 0.8
"""Where steps begin is believed if it is the same event in this share of them."""

LEAST_GAP = 0.02
"""A pause that ends a step lasts at least this share of it."""

LONG_PAUSE = 3
"""Pauses are of two kinds where the long ones last this many times as long as the short ones."""

CLEARS = r"\bzero_grad\b"
"""Names of ranges that clear gradients: the optimizer's, but at any place in a step."""

READS = r"^aten::(item|_local_scalar_dense)$"
"""Names of operators that wait for a result, which belongs to the step that ends."""

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class DetectedSteps:
    """Steps that were found, and how sure they are."""

    found: IterationRanges | None  # None where nothing repeats
    confidence: float  # share of a step that recurs in the next
    source: str  # collectives | kernels | ranges


@dataclass(frozen=True, slots=True)
class _Process:
    """One process, as far as steps are concerned."""

    thread: int  # the training thread
    ranges: pl.DataFrame  # of that thread: start, end, name, means, blocking
    work: pl.DataFrame  # of the training threads: start, end, host (launch), name, collective


def find_steps(
    named: pl.DataFrame, device_work: pl.DataFrame, duration_ns: int | None = None
) -> DetectedSteps:
    """The steps of one process, from what its collectives, kernels or ranges repeat.

    A step ends where its last own event does, on the host: after the optimizer and what trails
    it, where ranges say so; else before the longest pause; else with the collective after which
    none comes for longest. All of these mean the same on every rank. Where in the pause before the
    next event a range around the step would have ended, no event tells.

    Args:
        named: RANGES of the process with the columns of MEANINGS joined on.
        device_work: DEVICE_WORK of the process.
        duration_ns: where the capture ends; a step that ends exactly there was cut.
    """
    process = _process(named, device_work)
    best = DetectedSteps(None, 0.0, "ranges")
    for source, events in _sequences(process):
        names = events["kind"].rank("dense").to_numpy().astype(np.int64) - 1
        period = find_period(names)
        if period is None or period.match <= best.confidence:
            continue
        hosts = events["host"].to_numpy()
        begins = _begins(process, np.sort(hosts[period.anchors]))
        order = np.argsort(hosts, kind="stable")
        ends = _step_ends(process, begins, hosts[order], names[order], period.length)
        if len(ends) <= LEAST_STEPS:
            continue
        best = DetectedSteps(_found(process.thread, ends, duration_ns), period.match, source)
        if best.confidence >= SURE:
            break
    return best


def _process(named: pl.DataFrame, device_work: pl.DataFrame) -> _Process:
    work = with_operation(device_work).with_columns(
        pl.col("name").cast(pl.String),
        collective=pl.col("operation").is_not_null(),
        host=pl.coalesce("launch", "start"),
    )
    computing = work.filter(~pl.col("collective"), pl.col("kind") != "copy")
    streams = computing.group_by("device", "stream").len().sort("len", descending=True)
    busiest = computing.join(streams.head(1), on=["device", "stream"], how="semi")
    threads = busiest["launch_thread"].unique()
    work = work.filter(
        pl.col("launch_thread").is_in(threads.implode(), nulls_equal=True) | pl.col("collective")
    ).with_columns(main=pl.struct("device", "stream").is_in(_streams(busiest)))
    thread = _training_thread(named, threads.drop_nulls())
    ranges = named.filter(pl.col("thread") == thread, pl.col("end") > pl.col("start"))
    return _Process(thread, ranges.sort("start"), work.sort("host", "start"))


def _streams(busiest: pl.DataFrame) -> pl.Series:
    return busiest.select(pl.struct("device", "stream").unique().implode()).to_series()


def _training_thread(named: pl.DataFrame, launching: pl.Series) -> int:
    """The thread with most phases, else collectives; a process's first thread where equal.

    Autograd's thread may have most collectives: it launches the reductions of gradients.
    """
    ranked = (
        named.group_by("thread")
        .agg(
            phases=pl.col("means").is_in(PHASES).sum(),
            collectives=(pl.col("means") == "collective").sum(),
            first=(pl.col("thread") % 2**24 == pl.col("process") % 2**24).any(),
            launches=pl.col("thread").is_in(launching.implode()).any(),
            rows=pl.len(),
        )
        .filter(  # a helper's ranges, where the training threads have none, are no training
            (pl.col("phases") + pl.col("collectives") > 0)
            | pl.any_horizontal("first", "launches", pl.lit(launching.is_empty()))
        )
        .sort("phases", "collectives", "first", "launches", "rows", "thread", descending=True)
    )
    threads = [*ranked["thread"], *launching.sort()]
    return int(threads[0]) if threads else 0


def _sequences(process: _Process) -> list[tuple[str, pl.DataFrame]]:
    """What may repeat, most telling first: frames of `kind` and `host` in order."""
    work, ranges = process.work, process.ranges
    collectives = work.filter("collective")
    stream = pl.format("{} {}", "device", "stream")
    kind = pl.format(
        "{} {} {}",
        "name",
        pl.coalesce("communicator", stream),
        pl.coalesce("bytes", "grid").fill_null(0),
    )
    calls = collectives.select("start", "end", "host", kind=kind)
    kernels = work.filter("main", ~pl.col("collective")).sort("start")
    kernels = kernels.select("start", "end", "host", kind="name")
    kind = pl.col("name").str.replace_all(r"\d+", "")
    spans = ranges.select("start", "end", host="start", kind=kind)
    found = [("collectives", calls), ("kernels", kernels), ("ranges", spans)]
    telling = [each for each in found if each[1]["kind"].n_unique() > 1]
    alike = [(source, _with_pauses(events)) for source, events in found if events.height]
    return telling + alike


def _with_pauses(events: pl.DataFrame) -> pl.DataFrame:
    """Events that may all look alike, those after a long pause told from the others."""
    if events.height < 2 * LEAST_STEPS:
        return events
    pauses = (events["start"] - events["end"].shift(1)).clip(lower_bound=1)
    pause = pauses.fill_null(int(pauses[1:].to_numpy().max()))  # before the first one, unknown
    ordered = np.sort(np.log(pause.to_numpy()))
    short = np.arange(1, len(ordered))
    total, below = ordered.sum(), np.cumsum(ordered)[:-1]
    apart = (total - below) / (len(ordered) - short) - below / short  # of the two kinds' means
    split = int(np.argmax(short * (len(ordered) - short) * apart**2))  # Otsu's threshold
    if apart[split] < np.log(LONG_PAUSE) or len(ordered) - split - 1 < LEAST_STEPS:
        return events
    long = (pause > np.exp(ordered[split]) + 0.5).alias("long")
    return events.with_columns(kind=pl.format("{} {}", "kind", long))


def _begins(process: _Process, anchors: Times) -> Times:
    """Moments on the host at which steps begin doing something, one a repeat."""
    work = process.work
    launches = work.with_columns(start="host", end="host")
    candidates = [
        _after_the_optimizer(process, anchors),
        *(_after_the_pause(each, anchors) for each in (work, _outermost(process.ranges), launches)),
        _after_the_last_collective(work, anchors),
        anchors,
    ]
    return next(each for each in candidates if _one_each(each, anchors))


def _one_each(begins: Times, anchors: Times) -> bool:
    """Whether there is one a repeat, but for some at the capture's edges and a few more."""
    return len(begins) > 1 and abs(len(begins) - len(anchors)) <= 1 + 0.05 * len(anchors)


def _after_the_last_collective(work: pl.DataFrame, anchors: Times) -> Times:
    """What is launched next after the collective that none follows for longest."""
    launched = work.with_columns(then=pl.col("host").shift(-1)).filter("collective")
    cycle = np.searchsorted(anchors, launched["host"].to_numpy(), side="right") - 1
    quiet = launched.with_columns(
        cycle=pl.Series(cycle, dtype=pl.Int64), gap=pl.col("host").shift(-1) - pl.col("host")
    ).drop_nulls(["gap", "then"])
    return _longest(quiet)["then"].sort().to_numpy()


def _after_the_optimizer(process: _Process, anchors: Times) -> Times:
    """What comes first after each optimizer's ranges (else backward's) and what trails them.

    Next come loading or forward, by name; where operators precede these (an unnamed fetch), or
    nothing names them, it is the first range after the optimizer, the collectives and the reading
    of results. Where that was preceded by a long pause and a launch (an unnamed fetch, and the
    copy of what it fetched), the launch.
    """
    ranges = process.ranges.filter(~pl.col("name").str.contains(CLEARS))
    means = pl.col("means")
    phases = ranges.filter(means.is_in(["load", "forward", "backward", "optimizer"]))
    present = {*phases["means"]}
    last = "optimizer" if "optimizer" in present else "backward"
    closers = phases.filter(means == last)
    if closers.is_empty():
        return np.zeros(0, dtype=np.int64)
    following = phases.with_columns(
        closed=(means == last).cum_sum(),
        # validation has a forward of its own, and no backward
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
    begins = _after_what_trails(ranges, closed, begins)
    if process.work.is_empty():
        final = int(closers["end"].to_numpy().max())
        if final > begins[-1]:
            begins = np.append(begins, _after_as_much(ranges, np.append(closed, final), begins))
        return begins
    hosts: Times = np.unique(process.work["host"].to_numpy())
    step = float(np.median(np.diff(begins)))
    paused = hosts[hosts - _last_before(process, hosts) >= LEAST_GAP * step]
    earlier = np.searchsorted(paused, closed)
    return np.asarray(np.minimum(begins, np.append(paused, NEVER)[earlier]))


def _after_what_trails(ranges: pl.DataFrame, closed: Times, begins: Times) -> Times:
    """Starts of the first ranges that belong to the next step, each in [closed, begins]."""
    trails = (pl.col("means") == "collective") | pl.col("name").str.contains(READS)
    ends = np.sort(ranges.filter(trails)["end"].to_numpy())
    until = np.maximum(closed, _latest(ends, begins))
    starts = np.append(ranges["start"].to_numpy(), NEVER)
    return np.asarray(np.minimum(begins, starts[np.searchsorted(starts, until)]))


def _after_as_much(ranges: pl.DataFrame, closed: Times, begins: Times) -> int:
    """When as many ranges have followed the last one of `closed` as follow it in other steps."""
    outer = _outermost(ranges)
    starts, ends = outer["start"].to_numpy(), outer["end"].to_numpy()
    after = np.searchsorted(starts, closed)
    usual = int(np.median(np.searchsorted(starts, begins) - after[:-1]))
    return int(max([closed[-1], *ends[after[-1] : after[-1] + usual]]))


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Ranges that lie in no other, as events."""
    before = pl.col("end").cum_max().shift(1, fill_value=-1)
    return ranges.filter(pl.col("start") >= before).select("start", "end", "name", host="start")


def _after_the_pause(events: pl.DataFrame, anchors: Times) -> Times:
    """Host moments of the events that follow each repeat's longest pause, if always the same."""
    nothing = np.zeros(0, dtype=np.int64)
    cycle = np.searchsorted(anchors, events["host"].to_numpy(), side="right") - 1
    paused = (
        events.with_columns(cycle=pl.Series(cycle, dtype=pl.Int64))
        .sort("start")
        .with_columns(gap=pl.col("start") - pl.col("end").cum_max().shift(1))
        .drop_nulls("gap")
    )
    whole = pl.col("cycle").is_between(0, len(anchors) - 2)
    longest = _longest(paused.filter(whole))
    if longest.height < LEAST_STEPS:
        return nothing
    name, same = longest["name"].value_counts().sort("count", "name").row(-1)
    least = LEAST_GAP * float(np.median(np.diff(anchors)))
    if same < REGULAR * longest.height or (longest["gap"].quantile(0.5) or 0) < least:
        return nothing
    # Before the first and after the last anchor lie parts of steps, which may hold no border.
    borders = _longest(paused.filter(pl.col("name") == name))
    return borders.filter(whole | (pl.col("gap") >= least))["host"].sort().to_numpy()


def _longest(events: pl.DataFrame) -> pl.DataFrame:
    """Of the events of each repeat the one with the longest gap."""
    return events.sort("cycle", "gap").unique("cycle", keep="last", maintain_order=True)


def _step_ends(process: _Process, begins: Times, hosts: Times, names: Times, length: int) -> Times:
    """Where steps end on the host, the edges of the first and last one included.

    Args:
        process: the process.
        begins: first host moments of all steps but, perhaps, the first.
        hosts: host moments of the repeating events, sorted.
        names: what they are.
        length: events in a step.
    """
    ends = _last_before(process, begins)
    first, last = np.searchsorted(hosts, begins[[0, -1]])

    def alike(at: int) -> bool:
        """Whether a whole step begins at an event, made of what others are made of."""
        if at < 0 or at + length > len(names):
            return False
        kinds = int(names.max()) + 1
        step, usual = (np.bincount(names[i : i + length], minlength=kinds) for i in (at, first))
        return bool(np.minimum(step, usual).sum() >= SURE * length)

    if alike(first - length):  # the capture saw a whole step before the first border
        ends = np.append(min(hosts[first - length], ends[0] - 1), ends)
    if alike(last):  # and after the last one
        waited = ends[-len(begins) :] > _last_before(process, begins, waiting=False)
        after = np.append(hosts, NEVER)[[last + length]]
        final = _last_before(process, after, waiting=bool(np.mean(waited) > 0.5))
        ends = np.append(ends, final)
    return np.unique(ends)


def _last_before(process: _Process, moments: Times, waiting: bool = True) -> Times:
    """When the host was done with what it began before each moment.

    That is when its last range or launch ended; or, where it then waited for the device (which
    was done before the moment), when the device's last work ended.
    """
    ends = np.sort(process.ranges["end"].to_numpy())
    launches = np.sort(process.work["host"].to_numpy())
    host = np.maximum(_latest(ends, moments), _latest(launches, moments, strictly=True))
    if not len(launches) or not waiting:
        return np.where(host < 0, moments, host)
    done = np.maximum.accumulate(process.work["end"].to_numpy())
    launched = np.searchsorted(launches, moments, side="left") - 1
    device = np.where(launched >= 0, done[launched], host)
    waited = (device > host) & (device <= moments)
    return np.where(waited, device, np.where(host < 0, moments, host))


def _latest(moments: Times, before: Times, strictly: bool = False) -> Times:
    """The latest of sorted `moments` before (or at) each; -1 where there is none."""
    index = np.searchsorted(moments, before, side="left" if strictly else "right") - 1
    if not len(moments):
        return np.full(len(before), -1, dtype=np.int64)
    return np.where(index >= 0, moments[np.maximum(index, 0)], -1)


def _found(thread: int, ends: Times, duration_ns: int | None) -> IterationRanges:
    frame = pl.DataFrame({"start": ends[:-1], "end": ends[1:]}).with_columns(
        iteration=pl.int_range(pl.len()),
        number=pl.int_range(pl.len()),
        epoch=0,
        window_start="start",
        window_end="end",
        complete=pl.lit(True) if duration_ns is None else pl.col("end") != duration_ns,
    )
    return IterationRanges(conform(frame, ITERATIONS), thread, numbered=False, row=AUTO)
