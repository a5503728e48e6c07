"""Windows of one schedule: files that one process wrote one after the other.

`torch.profiler.schedule` writes a file for each of its windows. The files of a process are one
report: its steps are numbered on, and its times are on one axis.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from rankscope.errors import UnreadableReport
from rankscope.model.reports import Claim
from rankscope.sources.kineto.columns import LAUNCH, RANGE, frames
from rankscope.sources.kineto.json_stream import HEAD_BYTES, EventFile
from rankscope.sources.kineto.reader import WORKER_NAME, facts_of
from rankscope.sources.kineto.windows import base_time
from rankscope.util.grouping import grouped

STEP = re.compile(rb"ProfilerStep#(\d{1,18})")
"""The name of a step, which is numbered from the start of the process."""


class _Head(Struct, frozen=True, order=True):
    """What the beginning of a file says.

    Attributes:
        start_ns: the start of its first events.
        path: the file.
        process: rank, size of the job, host and id of the process; equal for windows of one.
    """

    start_ns: int
    path: Path
    process: tuple[int, int, str, int]


def joined(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """The windows of each process that wrote several, in the order of their steps.

    They are windows of one process if rank, size of the job, host and process id are the same, and
    no step is in two of them. Ids alone are not enough: a container has the same ids in every job,
    but a job that starts again counts its steps from 0. All ranks of a job have the same schedule,
    so only the steps of one rank are compared.
    """
    by_claim = grouped((_claim(path), path) for path in paths)
    candidates = (path for same in by_claim.values() if len(same) > 1 for path in same)
    by_process = grouped((head.process, head) for head in map(_head, candidates) if head)
    windows_of_processes: list[tuple[Path, ...]] = []
    one_after_the_other: dict[int, bool] = {}
    for _, heads in sorted(by_process.items()):
        windows = [each.path for each in sorted(heads)]
        count = len(windows)
        if count < 2:
            continue
        if count not in one_after_the_other:
            one_after_the_other[count] = _numbered_on(windows)
        if one_after_the_other[count]:
            windows_of_processes.append(tuple(windows))
    return windows_of_processes


def _claim(path: Path) -> Claim | None:
    """The rank that a file states; None where it does not."""
    try:
        return next(iter(facts_of(EventFile(path).head(HEAD_BYTES)).environment), None)
    except UnreadableReport:
        return None


def _head(path: Path) -> _Head | None:
    """What the beginning of a file says; None where that is not enough."""
    file = EventFile(path)
    try:
        host_events = frames(file.beginning(), file)
    except UnreadableReport:
        return None
    begun = [host_events[nature] for nature in (RANGE, LAUNCH) if nature in host_events]
    starts = [start for each in begun if isinstance(start := each["start"].min(), int)]
    processes = {process for each in begun for process in each["process"].drop_nulls()}
    facts = facts_of(file.about)
    named = WORKER_NAME.match(path.name)
    claim = next(iter(facts.environment), None)
    if len(processes) != 1 or not starts:
        return None
    [process] = processes
    host = facts.host or (named[1] if named and int(named[2]) == process else "")
    rank, world = (-1, -1) if claim is None else (claim.rank, claim.world_size or -1)
    return _Head(min(starts) + (base_time(file.about) or 0), path, (rank, world, host, process))


def _numbered_on(windows: Sequence[Path]) -> bool:
    """Whether each window has steps, all of them after those of the window before it."""
    try:
        spans = [_steps(path) for path in windows]
    except UnreadableReport:
        return False
    known = [each for each in spans if each is not None]
    return len(known) == len(windows) and all(one[1] < next_[0] for one, next_ in pairwise(known))


def _steps(path: Path) -> tuple[int, int] | None:
    """The first and the last step of a file; None without any."""
    numbers = {int(number) for text in EventFile(path).texts() for number in STEP.findall(text)}
    return (min(numbers), max(numbers)) if numbers else None
