"""Checks before any report is read: which reports are new, and whether they belong together.

What would fail after minutes of reading (two reports of one rank, two runs) fails here in seconds.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from rankscope.errors import ForeignRun, RankConflict, RankscopeError, UsageError
from rankscope.ingestion import runs
from rankscope.model.kinds import EvidenceKind
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import CaptureFacts, Claim, RankIdentity, ReportFile
from rankscope.sources import formats
from rankscope.sources.discover import united
from rankscope.sources.identify import (
    by_name,
    check_distinct,
    claims_for_report,
    name_disagrees,
    name_hint,
)
from rankscope.sources.name_numbers import NODES, differing_numbers
from rankscope.sources.same_job import Capture, check_one_job
from rankscope.util.wording import counted

ONE_RUN = "ingest the reports of one run at a time"


def check_one_rank(options: ShapingOptions, files: list[ReportFile]) -> None:
    """Raises `UsageError` if `--rank` is given together with several reports or a pattern."""
    if options.rank is None:
        return
    if options.rank_pattern is not None:
        raise UsageError("--rank with --rank-pattern", hint="give one of them")
    if len(files) > 1:
        raise UsageError(
            f"--rank {options.rank} is for one report, but there are {len(files)}",
            hint="name one report; of several, --rank-pattern finds the ranks in their paths",
        )


def capture_facts(files: list[ReportFile]) -> list[CaptureFacts | RankscopeError]:
    """Facts of each report's capture, or why it cannot be read; events are not read.

    Many threads need twice the CPU time of one, but wait together for files that are far away.
    """
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(_facts, files))


def reports_to_read(
    discovered: list[ReportFile],
    rank_pattern: re.Pattern[str] | None,
    stored: Sequence[ReportFile] = (),
) -> tuple[list[ReportFile], dict[Path, Path]]:
    """The reports without copies, and the copies, as `united` gives them.

    Where names repeat on every host, ranks are counted over hosts.
    """
    files, copies = united(discovered, rank_pattern, stored)
    return (files if rank_pattern is not None else _on_hosts(files)), copies


def _on_hosts(files: list[ReportFile]) -> list[ReportFile]:
    """The reports, with ranks counted over hosts where names have local ranks alone.

    That is so where only names tell the rank, the names are the same on every host and count from
    0, and the captures overlap in time or, if that is unknown, the paths contain the names of the
    hosts. Hosts are in the order of their names, with numbers in names compared as numbers.
    """
    claims = [by_name(file.path, file.numbers) for file in files]
    numbers = [-1 if claim is None else claim.rank for claim in claims]
    if len({*numbers}) == len(files) or any(claim and claim.world_size for claim in claims):
        return files
    hosts: dict[str, dict[Path, int]] = {}
    captured: list[Capture] = []
    for file, facts, number in zip(files, capture_facts(files), numbers, strict=True):
        if isinstance(facts, RankscopeError) or facts.environment or facts.host is None:
            return files
        hosts.setdefault(facts.host, {})[file.path] = number
        captured.append(_capture((file, facts, None)))
    together = runs.at_one_time(captured)
    if together is None:
        together = all((each.host or "").partition(".")[0] in str(each.path) for each in captured)
    if not together:
        return files
    in_order = (hosts[host] for host in sorted(hosts, key=_numerically))
    grid = [host | differing_numbers(host) for host in in_order]
    devices = len(files) // len(grid)
    if any(sorted(host.values()) != [*range(devices)] for host in grid):
        return files
    ranks = {path: nth * devices + host[path] for nth, host in enumerate(grid) for path in host}
    return [replace(file, numbers=Claim(ranks[file.path], None, NODES)) for file in files]


def _numerically(name: str) -> list[str | int]:
    """A key to sort names by: texts, and the numbers between them."""
    parts = re.split("([0-9]{1,9})", name)
    return [int(part) if nth % 2 else part for nth, part in enumerate(parts)]


Described = tuple[ReportFile, CaptureFacts, Claim | None]
"""A report that will be read, its facts, and the best evidence for its rank."""


def select_run(
    files: list[ReportFile], number: int, rank_pattern: re.Pattern[str] | None
) -> list[ReportFile]:
    """The reports of run `number`, counted from 1.

    Raises:
        UsageError: there are fewer runs, or the user's pattern does not fit a report.
    """
    by_path = {file.path: file for file in files}
    described = captures(files, rank_pattern)
    for each in described:
        if isinstance(each, UsageError):
            raise each
    grouped = runs.runs_of(each for each in described if isinstance(each, Capture))
    if not 1 <= number <= len(grouped):
        raise UsageError(
            f"--run {number}: the reports are of {counted(len(grouped), 'run')}",
            hint="leave out --run to list them",
        )
    return [by_path[each.path] for each in grouped[number - 1]]


def found_runs(
    files: list[ReportFile], rank_pattern: re.Pattern[str] | None
) -> list[list[Capture]]:
    """The runs of the reports; reports that cannot be read belong to none."""
    described = captures(files, rank_pattern)
    return runs.runs_of(each for each in described if isinstance(each, Capture))


def captures(
    files: list[ReportFile], rank_pattern: re.Pattern[str] | None
) -> list[Capture | RankscopeError]:
    """Facts of each report before it is read, or why it cannot be read."""
    described: list[Capture | RankscopeError] = []
    for file, facts in zip(files, capture_facts(files), strict=True):
        if isinstance(facts, RankscopeError):
            described.append(facts)
            continue
        try:
            claims = claims_for_report(file.path, facts, rank_pattern, numbers=file.numbers)
        except RankscopeError as error:
            described.append(error)
        else:
            described.append(_own_capture((file, facts, next(iter(claims), None))))
    return described


def of_one_run(
    existing: list[Capture],
    reports: list[Described],
    skip: bool,
    command: str,
) -> tuple[list[Described], list[tuple[ReportFile, str]]]:
    """The reports that belong together, and those left out, with the reasons.

    Args:
        existing: the ranks of the database that are not replaced, a capture each.
        reports: those to read.
        skip: leave out what does not belong to the database, else to the run with most reports.
        command: that of this ingest, for messages.

    Raises:
        SeveralRuns: the reports are of several runs.
        RankConflict: two reports claim one rank.
        ForeignRun: a report is not of the run that the database has.
    """
    grouped = runs.runs_of(map(_own_capture, reports))
    if not skip and len(grouped) > 1 and not existing:
        raise runs.several(grouped, command)
    try:
        check_together(existing, reports)
    except (RankConflict, ForeignRun) as error:
        if not skip:
            if existing:
                error.hint = (
                    f"another run? Name another --db, or replace this one: {command} --rebuild"
                )
            raise
    else:
        return reports, []
    largest = {each.path for each in max(grouped, key=len)}
    kept: list[Described] = []
    left_out: list[tuple[ReportFile, str]] = []

    def doubt(report: Described) -> tuple[bool, bool, bool]:
        file, _, claim = report
        return file.path not in largest, _misnamed(report), claim is None or not claim.world_size

    for report in sorted(reports, key=doubt):
        try:
            check_together(existing, [*kept, report])
            kept.append(report)
        except (RankConflict, ForeignRun) as error:
            left_out.append((report[0], error.message))
    return kept, left_out


def _capture(report: Described) -> Capture:
    """What is known of a report, with the best evidence of its rank."""
    file, facts, claim = report
    return Capture(
        file.path,
        () if claim is None else (claim.rank,),
        None if claim is None else claim.world_size,
        facts.host,
        facts.utc_start_ns,
        facts.duration_ns,
    )


def _own_capture(report: Described) -> Capture:
    """The same without the rank if its evidence may be that of the launcher."""
    *_, claim = report
    says_rank = claim is not None and (
        claim.evidence.own or claim.evidence.kind is EvidenceKind.FILE_NAME
    )
    return _capture(report) if says_rank else replace(_capture(report), ranks=())


def _misnamed(report: Described) -> bool:
    """Whether the name of a report says another rank than its evidence."""
    file, facts, claim = report
    if claim is None:
        return False
    identity = RankIdentity(claim.rank, 0, facts.local_rank, None, None, claim.evidence)
    return name_disagrees(file.path, identity) is not None


def check_together(
    existing: list[Capture],
    reports: list[Described],
) -> None:
    """Check that the reports, and the database they go into, are of one run.

    Raises:
        RankConflict: two reports claim one rank.
        ReportError: a report is of another run.
    """
    place = next((file.pattern for file, *_ in reports if file.pattern), None)
    one_job = place and f"if they are of one job, {name_hint(place)}; else ingest one run at a time"
    check_distinct(
        [
            *((rank, each.path) for each in existing for rank in each.ranks),
            *(
                (claim.rank, file.path)
                for file, _, claim in reports
                if claim is not None and claim.evidence.own
            ),
        ],
        hint=one_job,
    )
    check_one_job([*existing, *map(_capture, reports)], hint=ONE_RUN)


def _facts(file: ReportFile) -> CaptureFacts | RankscopeError:
    try:
        return formats.facts(file)
    except RankscopeError as error:
        return error
