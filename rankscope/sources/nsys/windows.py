"""Windows of one session: `--capture-range-end=repeat` writes `NAME.1`, `NAME.2` and so on.

They become one report, whose steps continue and whose times are on the axis of the first window.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UnreadableReport
from rankscope.model.device_work import InMemoryWork
from rankscope.model.host_events import (
    WINDOWED_COUNTERS,
    Calls,
    Samples,
    Spans,
    Switches,
    ThreadEvents,
)
from rankscope.model.intervals import Times
from rankscope.model.ranges import Ranges
from rankscope.model.reports import CaptureFacts, Trace
from rankscope.util.grouping import grouped

NUMBERED = re.compile(r"^(.+)\.([1-9]\d{0,6})$")
"""Names of windows, without the ending."""

Session = Callable[[Path], str | None]
"""Text that windows of one session have in common, and no others; None where it is unknown."""


def joined(
    paths: Iterable[Path], stem: Callable[[str], str], session: Session
) -> list[tuple[Path, ...]]:
    """The windows of each session that wrote several, in their order.

    Args:
        paths: the files.
        stem: the name of a file without its ending.
        session: the session of a file.
    """
    by_name = grouped(
        ((path.parent, match[1]), (int(match[2]), path))
        for path in paths
        if (match := NUMBERED.match(stem(path.name)))
    )
    sessions: dict[tuple[Path, str, str], list[Path]] = {}
    for (folder, name), numbered in by_name.items():
        for _, path in sorted(numbered) if len(numbered) > 1 else ():
            try:
                own = session(path)
            except UnreadableReport:
                continue
            if own is not None:
                sessions.setdefault((folder, name, own), []).append(path)
    return [tuple(each) for each in sessions.values() if len(each) > 1]


class _Window(Struct, frozen=True):
    trace: Trace
    later_ns: int  # its time 0 on the axis of the first

    @property
    def end_ns(self) -> int:
        """Its end on that axis."""
        return self.later_ns + (self.trace.facts.duration_ns or 0)


def in_one(path: Path, traces: Sequence[Trace]) -> Trace:
    """The windows of one session as one trace, in memory.

    Args:
        path: the first report.
        traces: of the windows, in the order of time.

    Raises:
        UnreadableReport: a window does not say when it began, or begins before the end of another.
    """
    starts = [each.facts.utc_start_ns for each in traces]
    windows = [
        _Window(each, start - starts[0])
        for each, start in zip(traces, starts, strict=True)
        if start is not None and starts[0] is not None
    ]
    overlap = any(later.later_ns < one.end_ns for one, later in pairwise(windows))
    if overlap or len(windows) < len(traces):
        raise UnreadableReport(
            f"{path}: its windows do not follow each other by their times",
            hint="read one of them: name it alone",
        )
    first = traces[0]
    ranges = pl.concat(_moved(each.trace.ranges.whole, each, "start", "end") for each in windows)
    busiest = [each for each in traces if each.busiest]
    return replace(
        first,
        facts=_facts(windows),
        ranges=Ranges.of(ranges.sort("start", "end", descending=[False, True])),
        device_work=_device_work(windows),
        process_ranks={k: v for each in traces for k, v in each.process_ranks.items()},
        jax_processes={k: v for each in traces for k, v in each.jax_processes.items()},
        pauses=tuple((one.end_ns, later.later_ns) for one, later in pairwise(windows)),
        host_events=sum(each.host_events for each in traces),
        broken_ranges=sum(each.broken_ranges for each in traces),
        busiest=busiest[0].busiest if busiest else {},
        host_of=lambda spans: _host_of(windows, spans),
        counters_of=lambda edges: _counters_of(windows, edges),
    )


def _facts(windows: Sequence[_Window]) -> CaptureFacts:
    losses = dict.fromkeys(loss for each in windows for loss in each.trace.facts.losses)
    facts = windows[0].trace.facts
    return replace(facts, duration_ns=windows[-1].end_ns, losses=tuple(losses))


def _moved(frame: pl.DataFrame, window: _Window, *times: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(times) + window.later_ns)


def _device_work(windows: Sequence[_Window]) -> InMemoryWork:
    works = [(each, each.trace.device_work) for each in windows]
    whole = pl.concat(_moved(work.whole, each, "start", "end", "launch") for each, work in works)
    return InMemoryWork(
        whole.sort("start"),
        rows=sum(work.rows for _, work in works),
        broken=sum(work.broken for _, work in works),
        unread=tuple(dict.fromkeys(text for _, work in works for text in work.unread)),
        sync_calls=pl.concat(_moved(work.sync_calls, each, "start", "end") for each, work in works),
        unrecorded=pl.concat(_moved(work.unrecorded, each, "launch") for each, work in works),
        moved={process: ns for _, work in works for process, ns in work.moved.items()},
    )


def _host_of(windows: Sequence[_Window], spans: Spans) -> dict[int, ThreadEvents]:
    """Events of the threads in all windows; a table that only some have was empty in the others."""
    by_thread: dict[int, list[tuple[int, ThreadEvents]]] = {}
    for each in windows:
        if each.trace.host_of is None:
            continue
        own = {thread: (a - each.later_ns, b - each.later_ns) for thread, (a, b) in spans.items()}
        for thread, events in each.trace.host_of(own).items():
            by_thread.setdefault(thread, []).append((each.later_ns, events))
    return {thread: _events(parts) for thread, parts in by_thread.items()}


def _events(parts: list[tuple[int, ThreadEvents]]) -> ThreadEvents:
    switches = [(ns, each.switches) for ns, each in parts if each.switches is not None]
    samples = [(ns, each.samples) for ns, each in parts if each.samples is not None]
    files = [
        each.files.with_columns(pl.col("start", "end") + ns)
        for ns, each in parts
        if each.files is not None
    ]
    return ThreadEvents(
        switches=Switches(
            np.concatenate([each.at + ns for ns, each in switches]),
            np.concatenate([each.on for _, each in switches]),
        )
        if switches
        else None,
        os_calls=_calls([(ns, each.os_calls) for ns, each in parts]),
        cuda_calls=_calls([(ns, each.cuda_calls) for ns, each in parts]),
        samples=Samples(
            np.concatenate([each.at + ns for ns, each in samples]),
            pl.concat(each.function for _, each in samples),
            samples[0][1].period_ns,
        )
        if samples
        else None,
        profiler=_calls([(ns, each.profiler) for ns, each in parts]),
        files=pl.concat(files) if files else None,
    )


def _calls(parts: list[tuple[int, Calls | None]]) -> Calls | None:
    present = [(ns, each) for ns, each in parts if each is not None]
    return Calls.joined(present) if present else None


def _counters_of(windows: Sequence[_Window], edges: dict[int, Times]) -> dict[int, pl.DataFrame]:
    by_process: dict[int, list[pl.DataFrame]] = {}
    for each in windows:
        if each.trace.counters_of is None:
            continue
        own = {process: moments - each.later_ns for process, moments in edges.items()}
        for process, frame in each.trace.counters_of(own).items():
            by_process.setdefault(process, []).append(frame)
    keys = [name for name in WINDOWED_COUNTERS if name not in ("count", "value")]
    mean = (pl.col("value") * pl.col("count")).sum() / pl.col("count").sum()
    return {
        process: pl.concat(parts)
        .group_by(keys, maintain_order=True)
        .agg(pl.col("count").sum(), value=mean)
        .select(*WINDOWED_COUNTERS)
        .cast(dict(WINDOWED_COUNTERS))  # type: ignore[arg-type]
        for process, parts in by_process.items()
    }
