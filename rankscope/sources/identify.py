"""The rank of each process of a report: by evidence, with conflicts as errors, never a guess."""

import re
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from rankscope.errors import RankConflict, UnknownRank, UsageError
from rankscope.model.kinds import EvidenceKind
from rankscope.model.reports import CaptureFacts, Claim, RankEvidence, RankIdentity, Trace
from rankscope.sources import formats
from rankscope.sources.environment import OPEN_MPI, PMI, PMIX, SLURM
from rankscope.sources.name_numbers import NODES, RANK_PATTERN, place_groups
from rankscope.sources.recorders import Recorder, recorder_of
from rankscope.util.rank_list import MOST_RANKS

RANK_IN_NAME = re.compile(r"(?:^|[^a-z])rank[_\-.=]?([0-9]{1,6})(?!\d)", re.IGNORECASE)
"""A file name that says `rank` before the number."""

LAST_NUMBER = re.compile(r"(?:^|[_\-.])([0-9]{1,6})$")
"""A file name that ends in a number: weak evidence, used only if there is no other."""

OF_DIMENSION = re.compile(
    r"(?:^|[^a-z])(tp|dp|pp|ep|cp|sp|fsdp|ddp|mp|tensor|data|pipeline|expert)(?:[_\-.]?rank)?[_\-.=]?([0-9]{1,6})(?!\d)",
    re.IGNORECASE,
)
"""A place in one dimension of a job: with several of them in a name, none alone is the rank."""

RANK_FOLDER = re.compile(r"rank[_\-.=]?([0-9]{1,6})", re.IGNORECASE)
"""The whole name of a folder that holds the report of a rank."""

PARENTS = 2
"""Folders above a report whose names may say its rank."""

MPI_LAUNCHERS = (OPEN_MPI, PMIX, PMI)
"""mpirun sets these for each process, which inherits the batch script's SLURM_PROCID."""

OF_WORLD = re.compile(r"(?:^|[_\-.])([0-9]{1,6})[_\-]of[_\-]([0-9]{1,6})(?!\d)", re.IGNORECASE)
"""A file name that says rank and world size: `name-3-of-8`."""

NAME_HINT = "give the place of the rank in the path: --rank-pattern 'rank_(?P<rank>\\d+)'"

UNNAMED = re.compile(r"(?<!\\)\((?=\\d|\[0-9\])")
"""The start of a group of digits without a name, in a pattern."""

ONE_AT_A_TIME = "or read the reports one by one, each with --rank N"

PID_HINT = "or have them numbered in the order of process ids: --rank-pattern '(?P<pid>\\d+)'"

FILE_NAME = RankEvidence("file name", EvidenceKind.FILE_NAME)
FOLDER_NAME = RankEvidence("folder name", EvidenceKind.FILE_NAME)
GIVEN = RankEvidence("--rank", EvidenceKind.USER, own=True)
ONLY_REPORT = RankEvidence("only report", EvidenceKind.ASSUMED)

MPI_TRACE = RankEvidence("MPI trace", EvidenceKind.EVENTS)
JAX = RankEvidence("JAX process", EvidenceKind.EVENTS)
OF_EVENTS = RankEvidence("rank of its events", EvidenceKind.EVENTS)
DEVICE = RankEvidence("device order", EvidenceKind.ORDER)
PID = RankEvidence("process id order", EvidenceKind.ORDER)

RanksByEvidence = dict[RankEvidence, dict[int, int]]
"""Evidence → process key → rank; the most trusted evidence first."""


def pattern(text: str | None) -> re.Pattern[str] | None:
    """The user's `--rank-pattern`, checked.

    Raises:
        UsageError: no regular expression, or none with a group `rank` (or groups `rank1`, `rank2`,
            … that make it together; or `pid`: then the processes of one report are numbered in the
            order of their ids).
    """
    if text is None:
        return None
    try:
        compiled = re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--rank-pattern '{text}' is not a regular expression ({error})",
            hint="quote it for the shell",
        ) from error
    if not {"rank", "pid"} & compiled.groupindex.keys() and not place_groups(compiled):
        named = UNNAMED.sub("(?P<rank>", text, count=1)
        raise UsageError(
            f"--rank-pattern '{text}' has no group named rank",
            hint=NAME_HINT.split(": ")[1] if named == text else f"--rank-pattern '{named}'",
        )
    return compiled


def claims_for_report(
    path: Path,
    facts: CaptureFacts,
    user_pattern: re.Pattern[str] | None,
    rank: int | None = None,
    numbers: Claim | None = None,
) -> tuple[Claim, ...]:
    """The claims about a report of one rank, the most trusted first.

    The user's rank or pattern comes first, then the profiler's records (the environment of the
    process, else of the profiler's command; or its `distributedInfo`), then the names of the file
    and its folders, alone and beside those of the other reports (`numbers`).

    Raises:
        RankConflict: variables for one world size disagree.
        UsageError: the user's pattern does not fit the path.
    """
    if rank is not None:
        if not 0 <= rank <= MOST_RANKS:
            raise UsageError(f"--rank {rank} is no rank", hint=f"give one from 0 to {MOST_RANKS}")
        return (Claim(rank, None, GIVEN),)
    if user_pattern is not None and "pid" not in user_pattern.groupindex:
        return (_by_pattern(path, user_pattern, numbers),)
    first = next(iter(facts.environment), None)
    for other in facts.environment[1:]:
        assert first is not None
        if other.evidence == SLURM and first.evidence in MPI_LAUNCHERS:
            continue
        if other.rank != first.rank and other.world_size == first.world_size is not None:
            raise RankConflict(
                f"{path}: {first.evidence} says rank {first.rank}, {other.evidence} says "
                f"{other.rank}",
                hint=NAME_HINT,
            )
    named = by_name(path, numbers)
    return (*facts.environment, *(() if named is None else (named,)))


def process_ranks(trace: Trace, several: bool = True) -> RanksByEvidence:
    """The ranks that a report states for its processes.

    The sources are the profiler's MPI trace; JAX, which names threads by its processes; events that
    say their rank, in a file that a tool merged; and, if there are `several` processes that use one
    device each, counted from 0, the device: the local rank, if the launcher starts one process per
    device.
    """
    stated = {
        MPI_TRACE: trace.process_ranks,
        JAX: trace.jax_processes,
        OF_EVENTS: trace.event_ranks,
    }
    if not several:
        return stated
    devices = (
        trace.device_work.kinds.filter(pl.col("kind") != "copy")
        .select("process", "device")
        .unique()
        .sort("device")
    )
    processes = devices["process"].n_unique()
    in_order = devices["device"].to_list() == list(range(processes))
    return stated | {DEVICE: dict(devices.iter_rows()) if in_order and processes > 1 else {}}


def identities(
    path: Path,
    facts: CaptureFacts,
    pids: dict[int, int],
    stated: RanksByEvidence,
    user_pattern: re.Pattern[str] | None,
    *,
    rank: int | None = None,
    alone: bool = False,
    numbers: Claim | None = None,
    rank_place: str | None = None,
) -> dict[int, RankIdentity]:
    """Process key → the rank of each process of a report that has iterations.

    Args:
        facts: what it says about its capture.
        pids: keys of the processes with iterations → their process ids.
        stated: what `process_ranks` returned.
        user_pattern: the user's pattern.
        rank: the rank that the user gives the report.
        alone: it is the only report, which is rank 0 without any evidence.
        numbers: as in `claims_for_report`.
        rank_place: a pattern for the numbers that may tell the rank.

    Raises:
        UsageError: the user gives one rank to several processes.
        UnknownRank: no evidence, or several processes that no evidence distinguishes.
        RankConflict: evidence that contradicts itself.
    """
    if len(pids) > 1 and rank is not None:
        raise UsageError(
            f"--rank {rank}: {path} holds {len(pids)} training processes",
            hint=PID_HINT.removeprefix("or "),
        )
    if len(pids) > 1:
        return _several(path, facts, dict(sorted(pids.items())), stated, user_pattern)
    [(process, pid)] = pids.items()
    claims = claims_for_report(path, facts, user_pattern, rank, numbers)
    best = next(iter(claims), None)
    events = (MPI_TRACE, JAX, OF_EVENTS)
    evidence = next((each for each in events if process in stated.get(each, {})), None)
    if evidence is not None and user_pattern is None and rank is None:
        number = stated[evidence][process]
        better = (EvidenceKind.ENVIRONMENT, EvidenceKind.PROFILER)
        if best is None or best.evidence.kind not in better:
            best = Claim(number, None, evidence)
        elif best.rank != number and evidence != OF_EVENTS:
            raise RankConflict(
                f"{path}: {best.evidence} says rank {best.rank}, its {evidence} says {number}",
                hint=NAME_HINT,
            )
    of_pid = best == Claim(pid, None, FILE_NAME) and not _spelled(formats.title(path))
    if of_pid or best is None:
        best = Claim(0, None, ONLY_REPORT) if alone else None
    if best is None:
        raise UnknownRank(
            f"{path}: no evidence of the rank that wrote it"
            + (": the number in its name is that of its process" if of_pid else ""),
            hint=ONE_AT_A_TIME.removeprefix("or ")
            if of_pid
            else f"{name_hint(rank_place)}; {ONE_AT_A_TIME}",
        )
    return {
        process: RankIdentity(
            best.rank, pid, facts.local_rank, best.world_size, facts.host, best.evidence
        )
    }


def _several(
    path: Path,
    facts: CaptureFacts,
    pids: dict[int, int],
    stated: RanksByEvidence,
    user_pattern: re.Pattern[str] | None,
) -> dict[int, RankIdentity]:
    if user_pattern is not None and "pid" in user_pattern.groupindex:
        stated = {PID: {process: number for number, process in enumerate(pids)}}
    evidence = next((each for each in stated if stated[each].keys() >= pids.keys()), None)
    if evidence is None:
        listed = ", ".join(map(str, pids.values()))
        raise UnknownRank(
            f"{path}: holds {len(pids)} training processes (pids {listed}), and no "
            "evidence of their ranks",
            hint=f"profile each rank into a report of its own{_apart(path)}; {PID_HINT}",
        )
    ranks = {process: stated[evidence][process] for process in pids}
    if len({*ranks.values()}) < len(ranks):
        raise RankConflict(
            f"{path}: two of its processes have the same rank: {sorted(ranks.values())}",
            hint=f"was more than one job profiled into it? Profile each into its own; {PID_HINT}",
        )
    return {
        process: RankIdentity(rank, pids[process], None, None, facts.host, evidence)
        for process, rank in ranks.items()
    }


def _apart(path: Path) -> str:
    """How nsys profiles each rank into a report of its own; nothing for traces of others."""
    if recorder_of([formats.of_report(path).name]) is not Recorder.NSYS:
        return ""
    return (
        ": nsys inside the launcher, not around it, with -o report_%q{RANK}; under mpirun, "
        "--trace=mpi records the ranks"
    )


def name_hint(rank_place: str | None) -> str:
    """How to name the place of the rank, with a pattern that fits the reports if there is one.

    Args:
        rank_place: the pattern.
    """
    if rank_place is None:
        return NAME_HINT
    if "rank2" in rank_place:
        return (
            "several numbers of its name tell it together, in an order that nothing says: "
            f"--rank-pattern '{rank_place}' counts rank1 slowest; number the groups otherwise for "
            "another order"
        )
    return f"give the place of the rank in the path: --rank-pattern '{rank_place}'"


def by_name(path: Path, numbers: Claim | None) -> Claim | None:
    """What the names of a report and its folders say, alone and beside the others' (`numbers`)."""
    if numbers is not None and numbers.evidence == NODES:
        return numbers
    stem = formats.title(path)
    spelled = _spelled(stem)
    if len({*spelled}) == 1:
        return Claim(*spelled[0], FILE_NAME)
    for parent in path.absolute().parents[:PARENTS]:
        if folder := RANK_FOLDER.fullmatch(parent.name):
            return Claim(int(folder[1]), None, FOLDER_NAME)
    if numbers is not None:
        return numbers
    several = spelled or len(OF_DIMENSION.findall(stem)) > 1
    weak = None if several or OF_WORLD.search(stem) else LAST_NUMBER.search(stem)
    return None if weak is None else Claim(int(weak[1]), None, FILE_NAME)


def _spelled(stem: str) -> list[tuple[int, int | None]]:
    """Every rank that a name spells out, with the world size if the name has it."""
    of_world = OF_WORLD.search(stem)
    rank, size = map(int, of_world.groups()) if of_world else (0, 0)
    several = len(OF_DIMENSION.findall(stem)) > 1
    undimensioned = OF_DIMENSION.sub("", stem) if several else stem
    if ranks := [int(number) for number in RANK_IN_NAME.findall(undimensioned)]:
        return [(each, size if each == rank < size else None) for each in ranks]
    return [(rank, size)] if rank < size else []


def _by_pattern(path: Path, user_pattern: re.Pattern[str], numbers: Claim | None) -> Claim:
    if numbers is not None and numbers.evidence == RANK_PATTERN:
        return numbers
    fit = user_pattern.search(str(path))
    groups = {} if fit is None else fit.groupdict()
    try:
        world = groups.get("world")
        return Claim(
            _number(groups.get("rank")), None if world is None else _number(world), RANK_PATTERN
        )
    except ValueError as error:
        raise UsageError(
            f"{path}: --rank-pattern finds no rank in its path",
            hint="its group `rank` must match digits; the whole path is searched",
        ) from error


def _number(text: str | None) -> int:
    """A number of at most six digits 0 to 9; raises `ValueError`."""
    if text is None or not re.fullmatch("[0-9]{1,6}", text):
        raise ValueError(text)
    return int(text)


def name_disagrees(path: Path, identity: RankIdentity) -> int | None:
    """The rank in the file's name if better evidence contradicts it, else None.

    A name that has the local rank does not contradict.
    """
    spelled = {rank for rank, _ in _spelled(formats.title(path))}
    is_of_name = identity.evidence.kind in (EvidenceKind.FILE_NAME, EvidenceKind.USER)
    if len(spelled) != 1 or is_of_name or identity.evidence == NODES:
        return None
    (rank,) = spelled
    return None if rank in (identity.rank, identity.local_rank) else rank


def check_distinct(claims: Iterable[tuple[int, Path]], hint: str | None = None) -> None:
    """Raises `RankConflict`, naming both files, if two reports claim one rank."""
    seen: dict[int, Path] = {}
    for rank, path in claims:
        if rank in seen and seen[rank] != path:
            usual = "ingest the reports of one run at a time, or give the ranks with --rank-pattern"
            raise RankConflict(
                f"{path} claims rank {rank}, and so does {seen[rank]}",
                hint=f"{hint or usual}; --on-error skip leaves out a stray one",
            )
        seen[rank] = path
