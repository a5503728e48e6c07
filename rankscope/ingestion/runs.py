"""Reports → the runs that they belong to, before their events are read."""

import os
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rankscope.errors import SeveralRuns
from rankscope.sources import formats
from rankscope.sources.identify import LAST_NUMBER, OF_WORLD, RANK_IN_NAME
from rankscope.sources.same_job import CLOCK_SLACK_NS, Capture, clock_slack_ns, pause_ns
from rankscope.util.atomic_io import DEFAULT_DB
from rankscope.util.wording import and_more, counted, ranks_text

MOST_PATHS = 3
"""Most paths that a shell command spells out, and most reports that are advised one by one."""

HALF = 0.5
"""Of two runs at one time, a share of common ranks below this is that of strays."""

MOST_HOSTS = 3
"""Most hosts that are named; the others are counted."""


def runs_of(captures: Iterable[Capture]) -> list[list[Capture]]:
    """The captures by their runs, in the order of start times, else of paths.

    Captures of different ranks of one job are of one run, even if a host's clock is wrong. Others
    are of different runs if their worlds differ or their times do not overlap. Otherwise
    those of one folder with names that differ in the rank alone are of one run; and such groups
    are of one run if no rank is in both, or if one holds only copies of reports of the other, or
    if less than half of the ranks of the smaller one are in both: then a few reports are strays.
    """
    captures = sorted(captures, key=lambda each: each.path)
    ranks = [rank for each in captures for rank in each.ranks]
    if captures and _concurrent(captures, []) and len({*ranks}) == len(ranks):
        return [captures]
    slack_ns = clock_slack_ns(captures)
    if slack_ns > CLOCK_SLACK_NS and _concurrent(captures, [], slack_ns):
        return [captures]
    groups: dict[tuple[Path, str], list[list[Capture]]] = {}
    for capture in captures:
        same_name = groups.setdefault((capture.path.parent, _stem(capture)), [])
        own = next((group for group in same_name if _concurrent([capture], group)), None)
        if own is None:
            same_name.append([capture])
        else:
            own.append(capture)
    runs: list[list[Capture]] = []
    for group in (each for same_name in groups.values() for each in same_name):
        fitting = [run for run in runs if _concurrent(group, run) and not _shared(group, run)]
        if fitting:
            max(fitting, key=lambda run: _common(run, group)).extend(group)
        else:
            runs.append(group)
    return sorted(_merged(runs), key=lambda run: (_start(run) or 0, run[0].path))


def at_one_time(captures: Sequence[Capture]) -> bool | None:
    """Whether captures overlap in time, as far as the clocks of hosts agree; None: unknown."""
    known = all(each.end_ns is not None for each in captures)
    return _concurrent(captures, []) if known else None


def described(run: Sequence[Capture]) -> str:
    """The reports of a run: ranks, hosts, start, folder and a name, as part of a sentence."""
    ranks = sorted({rank for each in run for rank in each.ranks})
    hosts = sorted({each.host for each in run if each.host})
    start, unknown = _start(run), sum(not each.ranks for each in run)
    parts = [
        counted(len(run), "report"),
        ranks_text(ranks) if ranks else "",
        f"{unknown} of unknown rank" if unknown else "",
        f"on {and_more(hosts, MOST_HOSTS)}" if hosts else "",
        "" if start is None else f"from {utc(start)}",
        f"in {os.path.commonpath([each.path.parent for each in run]) or '.'}",
        f"such as {run[0].path.name}",
    ]
    return ", ".join(part for part in parts if part)


def shell_arguments(paths: Sequence[str | Path]) -> str:
    """Paths as the arguments of a command for the shell; `PATH...` for many."""
    return shlex.join(map(str, paths)) if len(paths) <= MOST_PATHS else "PATH..."


def ingest_command(paths: Sequence[str | Path], target: Path, run: int | None) -> str:
    """The command that ingests `paths`, or one run of them, into `target`."""
    alone = "" if run is None else f" --run {run}"
    into = "" if str(target) == DEFAULT_DB else f" --db {shlex.quote(str(target))}"
    return f"rankscope ingest {shell_arguments(paths)}{into}{alone}"


def several(runs: Sequence[list[Capture]], command: str) -> SeveralRuns:
    """The error that lists the runs, and how `command` ingests each."""
    lines = [
        f"run {number}: {described(run)}: {command} --run {number}"
        for number, run in enumerate(runs, 1)
    ]
    repeated = len({frozenset(rank for each in run for rank in each.ranks) for run in runs}) == 1
    repeated &= len(runs[0]) <= MOST_PATHS
    return SeveralRuns(
        f"the reports are of {counted(len(runs), 'run')}",
        hint="ingest one of them; --all-runs makes one database per run; --on-error skip reads the "
        "one with most reports"
        + ("; if they are of one job, read each with its own --rank N" if repeated else ""),
        lines=tuple(lines),
    )


def _stem(capture: Capture) -> str:
    """The name without the rank."""
    stem = formats.title(capture.path)
    spelled = next(
        (each for each in (OF_WORLD, RANK_IN_NAME, LAST_NUMBER) if each.search(stem)), None
    )
    return stem if spelled is None else spelled.sub("#", stem)


def _concurrent(
    captures: Sequence[Capture], others: Sequence[Capture], slack_ns: int = CLOCK_SLACK_NS
) -> bool:
    """Whether captures can be of one job by its size and their times."""
    together = (*captures, *others)
    worlds = {each.world_size for each in together} - {None}
    return len(worlds) < 2 and pause_ns(together) <= slack_ns


def _merged(runs: list[list[Capture]]) -> list[list[Capture]]:
    """The runs, where those of copies, or with few ranks of a larger one, are merged into it."""
    kept: list[list[Capture]] = []
    for run in sorted(runs, key=len, reverse=True):
        into = next((each for each in kept if _belongs(run, each)), None)
        if into is None:
            kept.append(run)
        else:
            into.extend(run)
    return kept


def _belongs(run: list[Capture], other: list[Capture]) -> bool:
    """Whether a run holds only copies of reports of a larger one, or few of its ranks."""
    is_copy = _origins(run) <= _origins(other) - {None}
    return is_copy or (0 < _shared(run, other) < HALF and _concurrent(run, other))


def _origins(run: Sequence[Capture]) -> set[tuple[object, ...] | None]:
    """Rank, host, start and size of the job of every capture; None where one is unknown."""
    known = [(each.ranks, each.host, each.start_ns, each.world_size) for each in run]
    return {each if each[0] and None not in each[1:3] else None for each in known}


def _shared(captures: Sequence[Capture], others: Sequence[Capture]) -> float:
    """The share of the ranks of the smaller one that is in both."""
    ranks, theirs = ({rank for each in of for rank in each.ranks} for of in (captures, others))
    return len(ranks & theirs) / max(min(len(ranks), len(theirs)), 1)


def _common(run: Sequence[Capture], group: Sequence[Capture]) -> int:
    """The number of folders that the paths of two groups have in common."""
    paths = [os.path.abspath(each.path) for each in (run[0], group[0])]
    return len(Path(os.path.commonpath(paths)).parts)


def utc(nanoseconds: int) -> str:
    """A time in UTC as `2026-01-31 12:00:00 UTC`."""
    return f"{datetime.fromtimestamp(nanoseconds / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _start(run: Sequence[Capture]) -> int | None:
    return min((each.start_ns for each in run if each.start_ns is not None), default=None)
