"""States of the training thread in each phase: one at every instant. See METHOD.md#causes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.model.arrays import distinct, taken, with_leading_names
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.host_events import Calls, Names, Switches, ThreadEvents
from rankscope.model.intervals import Flags, Times, cells, count_before, in_order
from rankscope.model.kinds import HostState
from rankscope.model.schema import HOST_STATES, conform, empty

MOST_NAMES = 12
"""Names of calls or functions stored for each state: those with most time on the rank."""

MINOR_NS = 20_000
"""Less time of a name in a phase of an iteration is added to the row without a name (ns)."""

LONGEST_NAME = 120
"""Characters of a name that are stored."""

AT_ONCE = 200_000
"""Events that are processed together; bounds memory."""

OFF_CPU = "off_cpu"
"""Name of unknown time off the CPU: the reason is unknown where calls are not recorded."""

IN_KERNEL = "kernel"
"""Name of time on the CPU that samples of user code leave out, outside of recorded calls."""

UNSAMPLED = 2
"""Sampling periods without a sample, in a phase of an iteration; fewer may be chance."""

_STATES = [*HostState]
_ON, _BLOCKED, _OFF, _CUDA, _PROFILER, _UNKNOWN = map(
    _STATES.index,
    (HostState.ON_CPU, HostState.BLOCKED, HostState.OFF_CPU, HostState.CUDA_CALL,
     HostState.PROFILER, HostState.UNKNOWN),
)  # fmt: skip
_NAMES = pl.Series("state", [*map(str, _STATES)])
_KEY = ["window", "label", "state", "name"]
_SUMS = ["count", "total_ns"]
_PARTS = pl.Schema(
    {"window": pl.Int64, "label": pl.String, "state": pl.Int64, "name": pl.String,
     "count": pl.Int64, "total_ns": pl.Int64}
)  # fmt: skip


def host_states(
    iterations: pl.DataFrame,
    host: pl.DataFrame,
    events: ThreadEvents,
    *,
    most_names: int = MOST_NAMES,
    minor_ns: int = MINOR_NS,
    at_once: int = AT_ONCE,
) -> pl.DataFrame:
    """The time of each phase on the host clock by what the thread did in it.

    Of nested calls of one kind the outermost counts. At each instant the profiler's own time comes
    first, then a CUDA call, then what the scheduler recorded: off the CPU the thread is blocked in
    a call of the operating system or, without one, off_cpu. Time on the CPU outside of calls is
    divided among the functions of its samples.

    Args:
        iterations: ITERATIONS.
        host: SEGMENTS of the host timeline.
        events: the events of its thread, clipped to the timeline.
        most_names: names that are kept for each state.
        minor_ns: less time of a name in a phase of an iteration loses the name (ns).
        at_once: events that are processed together; bounds memory.

    Returns:
        HOST_STATES; `rank` is null; no rows where nothing is recorded. `total_ns` adds up to the
        length of the phase, to the nanosecond.
    """
    if not events.known or host.is_empty():
        return empty(HOST_STATES)
    swept = _Sweep.of(events)
    parts = [swept.account(host.slice(*block)) for block in _blocks(host, swept, at_once)]
    rows = stacked(parts)
    sums = np.stack([rows[name].to_numpy() for name in _SUMS])
    keys, sums = with_leading_names(rows[_KEY], sums, "state", most_names, minor_ns)
    rows = with_series(keys, *map(pl.Series, _SUMS, sums))
    phase, state = rows["label"].alias("phase"), taken(_NAMES, rows["state"].to_numpy())
    rows = with_series(rows, phase, state).sort("window", "phase", "state", "name")
    rows = with_series(rows, taken(iterations["iteration"], rows["window"].to_numpy()))
    return conform(rows, HOST_STATES, optional=("rank",), drop_others=True)


STATE_INTERVALS = pl.Schema(
    {"start": pl.Int64, "end": pl.Int64, "state": pl.String, "name": pl.String}
)
"""Stretches of one state and call: disjoint, and without gaps."""


def state_intervals(events: ThreadEvents, begin: int, until: int) -> pl.DataFrame:
    """STATE_INTERVALS of a thread from `begin` to `until`; no rows where nothing is recorded.

    Functions of samples are moments, not stretches: time on the CPU outside of calls has no name.
    """
    if not events.known or until <= begin:
        return pl.DataFrame(schema=STATE_INTERVALS)
    swept = _Sweep.of(events)
    at, _, state, name = swept.cells(np.array([begin]), np.array([until]))
    fresh = np.append(True, (state[1:] != state[:-1]) | (name[1:] != name[:-1]))
    start = at[fresh]
    place = np.where(name < 0, len(swept.names), name)[fresh]
    return pl.DataFrame(
        {
            "start": start,
            "end": np.append(start[1:], until),
            "state": taken(_NAMES, state[fresh]),
            "name": taken(swept.every_name, place),
        },
        STATE_INTERVALS,
    )


class _Outer(Struct, frozen=True):
    """Disjoint calls in time order: the outermost of nested ones. Shape: (n,) each."""

    start: Times
    end: Times
    name: Names  # index into the names of the calls
    before: int  # names of other calls that come first

    def at(self, moments: Times) -> Times:
        """The name of the call that covers each moment, in time order; -1 without one."""
        first = np.searchsorted(self.end, moments[0], side="right")
        last = np.searchsorted(self.start, moments[-1], side="right")
        start, end, name = self.start[first:last], self.end[first:last], self.name[first:last]
        if not len(start):
            return np.full(len(moments), -1, np.int64)
        place = count_before(moments, start) - 1
        inside = (place >= 0) & (moments < end[place])
        return np.where(inside, name[place] + self.before, -1)

    def edges(self, begin: int, end: int) -> Times:
        """The starts and ends in an interval."""
        first = np.searchsorted(self.end, begin, side="right")
        last = np.searchsorted(self.start, end)
        edges = np.concatenate((self.start[first:last], self.end[first:last]))
        return np.clip(edges, begin, end)


class _Sweep(Struct, frozen=True):
    """The events of a thread, ready to be looked up."""

    names: pl.Series  # String
    profiler: _Outer
    cuda: _Outer
    system: _Outer
    switches: Switches | None
    sampled_at: Times
    sampled: pl.Series  # String: the function
    period_ns: int | None  # of the samples; None where time without them tells nothing
    calls_known: bool

    @classmethod
    def of(cls, events: ThreadEvents) -> _Sweep:
        """The events of a thread."""
        groups = [
            each or Calls.none() for each in (events.profiler, events.cuda_calls, events.os_calls)
        ]
        first = np.cumsum([0, *(len(each.names) for each in groups)])
        profiler, cuda, system = (
            _outermost(each.start, each.end, each.name, int(before))
            for each, before in zip(groups, first[:-1], strict=True)
        )
        at, function, period = np.empty(0, np.int64), pl.Series(dtype=pl.String), None
        if events.samples is not None:
            order = np.argsort(events.samples.at, kind="stable")
            at, function = events.samples.at[order], events.samples.function[order]
            period = events.samples.period_ns
        return cls(
            names=pl.concat([each.names for each in groups]).str.slice(0, LONGEST_NAME),
            profiler=profiler,
            cuda=cuda,
            system=system,
            switches=events.switches,
            sampled_at=at,
            sampled=function.str.slice(0, LONGEST_NAME),
            period_ns=period if events.os_calls is not None else None,
            calls_known=events.os_calls is not None,
        )

    @property
    def events(self) -> int:
        """How many edges there are."""
        switches = 0 if self.switches is None else len(self.switches.at)
        groups = (self.profiler, self.cuda, self.system)
        return sum(2 * len(each.start) for each in groups) + switches

    @property
    def every_name(self) -> pl.Series:
        """The names, "" for no name, and OFF_CPU."""
        return pl.concat([self.names, pl.Series(["", OFF_CPU], dtype=pl.String)])

    def cells(self, begins: Times, ends: Times) -> tuple[Times, Times, Times, Times]:
        """Start, length, state and name (-1 without one) of the cells of adjacent segments."""
        begin, until = int(begins[0]), int(ends[-1])
        points = cells(
            begins,
            ends,
            self.system.edges(begin, until),
            self.cuda.edges(begin, until),
            self.profiler.edges(begin, until),
            self._switched(begin, until),
        )
        at = points[:-1]
        return at, np.diff(points), *self._states(at)

    def account(self, host: pl.DataFrame) -> pl.DataFrame:
        """_PARTS of adjacent segments of the host timeline."""
        begins, until = host["start"].to_numpy(), int(host["end"].item(-1))
        at, length, state, name = self.cells(begins, host["end"].to_numpy())
        segment = count_before(at, begins) - 1
        nameless = len(self.names)  # no name
        kinds = len(_STATES) * (nameless + 2)
        key = (segment * len(_STATES) + state) * (nameless + 2) + np.where(name < 0, nameless, name)
        fresh = np.append(True, key[1:] != key[:-1])
        different, place = distinct(key)
        spent = np.bincount(place, weights=length, minlength=len(different)).astype(np.int64)
        count = np.bincount(place, weights=fresh, minlength=len(different)).astype(np.int64)
        segments, state_and_name = np.divmod(different, kinds)
        rows = framed(
            {
                "segment": segments,
                "state": state_and_name // (nameless + 2),
                "name": taken(self.every_name, state_and_name % (nameless + 2)),
                "count": count,
                "total_ns": spent,
            }
        )
        rows = self._by_function(rows, at, segment, (state == _ON) & (name < 0), until)
        owner = taken(host[["window", "label"]], rows["segment"].to_numpy())
        rows = with_series(rows, owner["window"], owner["label"])
        return conform(rows, _PARTS, drop_others=True)

    def _switched(self, begin: int, until: int) -> Times:
        if self.switches is None:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(self.switches.at, (begin, until))
        return self.switches.at[first:last]

    def _states(self, at: Times) -> tuple[Times, Times]:
        """State and name of the cells that begin at some moments; -1 is no name."""
        call, cuda, overhead = self.system.at(at), self.cuda.at(at), self.profiler.at(at)
        inside = call >= 0
        known, on = _scheduled(self.switches, at)
        off_cpu = len(self.names) + 1  # OFF_CPU
        state = np.where(on, _ON, np.where(inside, _BLOCKED, _OFF))
        name = call.copy()
        if not self.calls_known:
            lost = known & ~on & ~inside
            state[lost], name[lost] = _UNKNOWN, off_cpu
        state[~known] = np.where(inside[~known], _BLOCKED, _UNKNOWN)
        for own, which in ((cuda, _CUDA), (overhead, _PROFILER)):
            state[own >= 0] = which
            name = np.where(own >= 0, own, name)
        return state, name

    def _by_function(
        self, rows: pl.DataFrame, at: Times, segment: Times, running: Flags, until: int
    ) -> pl.DataFrame:
        """The rows with the time on the CPU outside of calls divided among sampled functions."""
        first, last = np.searchsorted(self.sampled_at, (at[0], until))
        if first == last and self.period_ns is None:
            return rows
        cell = np.searchsorted(at, self.sampled_at[first:last], side="right") - 1
        function = self.sampled.slice(int(first), int(last - first))
        hits = pl.DataFrame({"segment": segment[cell], "function": function})
        hits = hits.filter(pl.Series(running[cell], dtype=pl.Boolean))
        hits = hits.group_by("segment", "function").agg(samples=pl.len().cast(pl.Int64))
        plain = (pl.col("state") == _ON) & (pl.col("name") == "")
        rows = self._without_kernel(rows, plain, hits)
        if hits.is_empty():
            return rows
        share = pl.col("total_ns") * pl.col("samples") // pl.col("samples").sum().over("segment")
        divided = (
            rows.filter(plain)
            .join(hits, on="segment")
            .sort("segment", "samples", "function", descending=[False, True, False])
            .with_columns(part=share)
            # What the division leaves over goes to the first, so that nothing is lost.
            .with_columns(
                left=pl.when(pl.int_range(pl.len()).over("segment") == 0)
                .then(pl.col("total_ns") - pl.col("part").sum().over("segment"))
                .otherwise(0)
            )
            .select(
                "segment",
                "state",
                name="function",
                count="samples",
                total_ns=pl.col("part") + pl.col("left"),
            )
        )
        whole = rows.filter(~plain | ~pl.col("segment").is_in(hits["segment"].implode()))
        return pl.concat([whole, divided])

    def _without_kernel(
        self, rows: pl.DataFrame, plain: pl.Expr, hits: pl.DataFrame
    ) -> pl.DataFrame:
        """The rows, with the time that samples of user code leave out named IN_KERNEL."""
        if self.period_ns is None:
            return rows
        sampled = hits.group_by("segment").agg(pl.col("samples").sum())
        covered = (pl.col("samples").fill_null(0) + 1) * self.period_ns
        kernel = pl.col("total_ns") - covered
        rows = rows.join(sampled, on="segment", how="left").with_columns(
            kernel=pl.when(plain & (kernel >= UNSAMPLED * self.period_ns)).then(kernel).otherwise(0)
        )
        beside = rows.filter(pl.col("kernel") > 0).with_columns(
            name=pl.lit(IN_KERNEL), count=pl.lit(1, pl.Int64), total_ns="kernel"
        )
        remaining = rows.with_columns(total_ns=pl.col("total_ns") - pl.col("kernel"))
        return pl.concat([remaining, beside]).drop("samples", "kernel")


def _scheduled(switches: Switches | None, at: Times) -> tuple[Flags, Flags]:
    """Whether the scheduler is known at some moments, and whether the thread is on a CPU."""
    nothing = np.zeros(len(at), np.bool_)
    if switches is None or not len(switches.at):
        return nothing, nothing
    first, last = np.searchsorted(switches.at, (at[0], at[-1]), side="right")
    # Before the first switch the thread was in the other state.
    before = switches.on[first - 1] if first else ~switches.on[0]
    states = np.append(before, switches.on[first:last])
    on = states[count_before(at, switches.at[first:last])]
    return ~nothing, on


def _outermost(start: Times, end: Times, name: Names, before: int) -> _Outer:
    """Disjoint intervals: of nested ones the outermost, of overlapping ones the earlier."""
    if not (start[1:] > start[:-1]).all():
        order = in_order(start)
        if (np.diff(start[order]) == 0).any():
            order = np.lexsort((-end, start))
        start, end, name = start[order], end[order], name[order]
    if (start[1:] < end[:-1]).any():
        reached = np.append(start[0], np.maximum.accumulate(end)[:-1])
        start = np.maximum(start, reached)
        real = end > start
        start, end, name = start[real], end[real], name[real]
    return _Outer(start, end, name, before)


def _blocks(host: pl.DataFrame, swept: _Sweep, at_once: int) -> Iterator[tuple[int, int]]:
    """First row and number of rows of blocks of segments with a bounded number of events each."""
    count = max(1, -(-(swept.events + 2 * host.height) // at_once))
    rows = -(-host.height // count)
    for first in range(0, host.height, rows):
        yield first, min(rows, host.height - first)
