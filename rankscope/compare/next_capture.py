"""The smallest capture that would settle what a run left open. See METHOD.md#causes."""

import math
import re
from typing import Annotated

import polars as pl
from msgspec import Struct

from rankscope.capture import CaptureConfig
from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import Picks
from rankscope.errors import UsageError
from rankscope.judge.causes import blocked, counters
from rankscope.judge.phrases import one_host
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.results import Finding, Verdict
from rankscope.sources.recorders import Recorder, recorder_of
from rankscope.util.meaning import says
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import MOST_LISTED, agreeing, ranks_text

MOST_ITERATIONS = 20
"""Most iterations that are recorded, unless the verdict says how many would settle it: enough to
compare, in a small report."""

AHEAD = 0.1
"""Share of the time before the first iteration by which the next job may be faster."""

LEAST_DELAY_S = 5
"""Least delay of a recording (s); a shorter one saves nothing."""

EVERY_RANK = "without --for, the script records every rank"

WARM_UP = 2
"""Steps that the PyTorch profiler warms up before it records."""

INTERPRETER = r"^_?Py|\.so|^0x|^$|on the CPU"
"""Names of functions that do not tell which Python function runs."""

FILES = r"read|write|fsync|fdatasync|open|stat|fadvise|sync_file"
"""Calls of the operating system about files."""


class Needed(Struct, frozen=True):
    """An option of nsys that the next capture needs."""

    option: Annotated[str, says("an option of nsys")]
    reason: Annotated[str, says("what it tells")]
    privilege: Annotated[str, says("what it asks for")]
    cost: Annotated[str, says("what it costs")]


HOST = Needed(
    "--trace=osrt --sample=process-tree --cpuctxsw=process-tree",
    "what the training thread does: calls, functions, time off the CPU",
    "perf_event_paranoid at most 2",
    "the report grows with the calls and switches of the process",
)
PYTHON = Needed(
    "--python-sampling=true",
    "which Python function computes",
    "none; nsys 2023.4 or newer. Ingest the .nsys-rep: its exports lack these samples",
    "interrupts the interpreter 1,000 times a second",
)
SYSTEM_WIDE = Needed(
    "--cpuctxsw=system-wide",
    "which other threads run on the CPUs of the rank",
    "root, or perf_event_paranoid at most 0",
    "the report grows with the switches of all processes on the node",
)
FILE_ACCESS = Needed(
    "--osrt-file-access=true", "which file", "none; nsys 2025.1 or newer", "little"
)
GPU_COUNTERS = Needed(
    "--gpu-metrics-devices=all",
    "clocks, load and links of the device",
    "root, or a driver that lets users profile; no profiling by DCGM meanwhile",
    "10,000 samples a second of each device",
)
NIC_COUNTERS = Needed(
    "--nic-metrics=true", "whether the network is congested", "none for most adapters", "little"
)
MEMORY = Needed("--cuda-memory-usage=true", "who allocates how much", "none", "little")


class RecordedRank(Struct, frozen=True):
    """A rank that the next capture records."""

    label: Annotated[
        str,
        says(
            "`slow` (`culprit` in 0.1.0) or `more work`; where nobody is named, who `leads`, or "
            "the `slowest`; `median`, `fast`"
        ),
    ]
    rank: Annotated[int, says("a rank that is recorded")]
    host: Annotated[str | None, says("its host")]


class RecordedIterations(Struct, frozen=True):
    """The iterations that the next capture records."""

    first: Annotated[int, says("the first iteration that is recorded")]
    last: Annotated[int, says("the last iteration that is recorded")]


class NextCapture(Struct, frozen=True):
    """What the next capture records, and why."""

    sentence: Annotated[str, says("what the run left open")]
    ranks: Annotated[tuple[RecordedRank, ...], says("the ranks that are recorded, slow ones first")]
    iterations: Annotated[RecordedIterations, says("the iterations that are recorded")]
    delay_s: Annotated[
        int | None, says("seconds from the start to the beginning of the recording; null: none")
    ]
    duration_s: Annotated[int, says("seconds of the recording")]
    options: Annotated[tuple[Needed, ...], says("the options that are needed")]

    @property
    def metric_ranks(self) -> tuple[int, ...]:
        """The ranks that record counters: the first of each host."""
        first: dict[str | None, int] = {}
        for each in self.ranks:
            first.setdefault(each.host, each.rank)
        return tuple(first.values())

    def config(self, trace: str) -> CaptureConfig:
        """The configuration of the launch script.

        Args:
            trace: the APIs that the scheduler's script traces anyway.
        """
        wide = SYSTEM_WIDE in self.options
        plain = (PYTHON, FILE_ACCESS, NIC_COUNTERS, MEMORY)
        return CaptureConfig(
            ranks=tuple(each.rank for each in self.ranks),
            delay_s=self.delay_s,
            duration_s=self.duration_s,
            trace=f"{trace},osrt" if HOST in self.options else trace,
            sample="process-tree" if HOST in self.options else "none",
            cpuctxsw="system-wide" if wide else "process-tree" if HOST in self.options else "none",
            metrics=GPU_COUNTERS in self.options,
            metric_ranks=self.metric_ranks,
            optional=tuple(each.option for each in self.options if each in plain),
            comments=self.comments(),
        )

    def comments(self) -> tuple[str, ...]:
        """The lines that explain the script."""
        ranks = ", ".join(f"{each.rank} ({each.label})" for each in self.ranks)
        stretch = f"{self.iterations.first} to {self.iterations.last}"
        lines = [self.sentence, f"Ranks: {ranks}. Iterations: {stretch}."]
        if self.delay_s is not None:
            lines.append(
                "The window is timed as in that run. Safer: --capture-range cudaProfilerApi, with"
            )
            lines.append("torch.cuda.profiler.start() and .stop() around these iterations.")
        for each in self.options:
            lines.append(f"{each.option}: {each.reason}.")
            lines.append(f"  privilege: {each.privilege}; cost: {each.cost}.")
        return tuple(lines)


def next_capture(comparison: Comparison, picks: Picks) -> NextCapture:
    """The next capture.

    Args:
        comparison: up to its verdict.
        picks: the reports to open: of the fast, the median and the slow rank.

    Raises:
        UsageError: nothing stayed open, few ranks would not settle it, or nsys did not record
            the run.
    """
    verdict = comparison.verdict
    if verdict.kind == VerdictKind.BALANCED:
        raise UsageError("nothing stayed open: the verdict is balanced", hint=EVERY_RANK)
    if verdict.kind == VerdictKind.INCONCLUSIVE and not verdict.settles:
        raise UsageError(
            "the verdict is inconclusive, and a capture of few ranks would not settle it",
            hint=f"{verdict.next}; {EVERY_RANK}",
        )
    ranks = _chosen(verdict, picks)
    first, last = _stretch(verdict.iterations or comparison.scope.selection.numbers)
    following = last if verdict.settles is None else first + verdict.settles - 1
    if recorder_of(comparison.tables.reports["kind"]) is Recorder.PYTORCH:
        raise _of_pytorch(comparison, [each.rank for each in ranks], (first, following))
    own = [ranks[0].rank]
    host_known = not comparison.tables.read("host_states", ranks=own).is_empty()
    hosts = dict(comparison.tables.ranks.select("rank", "host").iter_rows())
    near = one_host(verdict.members, hosts) is not None
    needed, sentence = _needed(verdict, host_known, near)
    windows = comparison.tables.read("iterations", ranks=own)
    inside = windows.filter(pl.col("iteration").is_between(first, last))
    begin, end = inside["view_start_ns"].to_numpy().min(), inside["view_end_ns"].to_numpy().max()
    end = begin + (end - begin) * (following - first + 1) / (last - first + 1)
    delay, duration = _delay_and_duration(float(begin) / 1e9, float(end) / 1e9)
    stretch = RecordedIterations(first, following)
    return NextCapture(sentence, ranks, stretch, delay, duration, needed)


def _of_pytorch(comparison: Comparison, ranks: list[int], stretch: tuple[int, int]) -> UsageError:
    """The error that says how the PyTorch profiler records the same ranks and steps.

    A trace does not say how long its job had run, so that no script can wait for the same moment.
    """
    first, last = stretch
    wait = max(first - WARM_UP, 0)
    return UsageError(
        f"{comparison.tables.name}: the PyTorch profiler recorded this run, and the script records "
        "with nsys",
        hint=f"record ranks {', '.join(map(str, ranks))} with torch.profiler.schedule(wait={wait}, "
        f"warmup={first - wait}, active={last - first + 1}); {EVERY_RANK} with nsys",
    )


def _chosen(verdict: Verdict, picks: Picks) -> tuple[RecordedRank, ...]:
    """The slow ranks, or those that lead, then the median and the fast one.

    If there are neither, the rank is recorded that others may wait for.
    """
    early = "max" if picks.late == "min" else "min"
    places = (picks.late, "slow", "leads", "median", early)
    order = sorted(picks.picks, key=lambda each: places.index(each.label))
    asked = verdict.ranks or tuple(each.rank for each in order if each.leads)
    late = [each for each in order if each.rank in asked][:MOST_LISTED] or order[:1]
    others = [each for each in order if each.rank not in {late[0].rank, *asked}]
    compared = [each for each in others if each.label in ("median", early)] or others[:1]
    return (
        *(RecordedRank(each.mark or "slowest", each.rank, each.host) for each in late),
        *(
            RecordedRank("median" if each.label == "median" else "fast", each.rank, each.host)
            for each in compared
        ),
    )


def _delay_and_duration(begin: float, end: float) -> tuple[int | None, int]:
    """When to begin to record, if not at once, and for how long (s), if the job starts alike."""
    early = begin * AHEAD
    delay = math.floor(begin - early)
    if delay < LEAST_DELAY_S:
        return None, math.ceil(end * (1 + AHEAD))
    return delay, math.ceil(end - begin + 2 * early)


def _stretch(iterations: tuple[int, ...]) -> tuple[int, int]:
    """The first and last of the stretch of `MOST_ITERATIONS` that holds most of the iterations."""
    best = max(
        iterations,
        key=lambda first: (
            sum(first <= each < first + MOST_ITERATIONS for each in iterations),
            -first,
        ),
    )
    inside = [each for each in iterations if best <= each < best + MOST_ITERATIONS]
    return inside[0], inside[-1]


def _needed(verdict: Verdict, host_known: bool, near: bool) -> tuple[tuple[Needed, ...], str]:
    """The options, and what stayed open in words.

    Args:
        host_known: whether the reports tell what the first rank's host does.
        near: whether all members of the slow transfer are on one host.
    """
    leading = () if verdict.leading is None else verdict.leading.ranks
    ranks = verdict.ranks or leading
    who = ranks_text(ranks, MOST_LISTED) if ranks else "no single rank"
    does = "may be" if leading and not verdict.ranks else agreeing(len(ranks) or 1, "is", "are")
    slow = f"{who} {does} slow in {sanitized(verdict.cause or 'the iteration')}"
    if verdict.kind == VerdictKind.COMMUNICATION:
        counted = (GPU_COUNTERS, NIC_COUNTERS) if near else (NIC_COUNTERS,)
        return counted, "communication is slow: are its links congested?"
    captures = [_of_finding(each, host_known) for each in verdict.findings]
    if not captures:
        if host_known:
            return (HOST, PYTHON, SYSTEM_WIDE), f"{slow}, and no cause explains enough of it"
        return (HOST,), f"{slow}, and the reports do not tell what its host does"
    options, words = captures[0]
    return (HOST, *options) if HOST not in options else options, f"{slow}; {words}"


def _of_finding(finding: Finding, host_known: bool) -> tuple[tuple[Needed, ...], str]:
    """The question that the first finding leaves open."""
    name = sanitized(finding.name)
    known = f"the cause is known ({finding.kind}: {name}); this capture can confirm a repair"
    known_by = {blocked.FILES, counters.TABLE}
    options: tuple[Needed, ...] = ()
    match finding.kind:
        case CauseKind.ON_CPU if re.search(INTERPRETER, finding.name):
            options, open_ = (PYTHON,), "which function of the program computes?"
        case CauseKind.BLOCKED | CauseKind.DEVICE_SLOWER if known_by & {*finding.evidence}:
            open_ = known
        case CauseKind.BLOCKED if re.search(FILES, finding.name):
            options, open_ = (FILE_ACCESS,), f"which file does it wait for in {name}?"
        case CauseKind.PREEMPTED:
            options, open_ = (SYSTEM_WIDE,), "who runs in its place?"
        case CauseKind.UNEXPLAINED if host_known:
            options, open_ = (SYSTEM_WIDE,), "who runs on its CPUs?"
        case CauseKind.DEVICE_SLOWER | CauseKind.CONTENTION | CauseKind.COPIES:
            options, open_ = (GPU_COUNTERS,), "does its device run at a lower clock?"
        case CauseKind.ALLOCATOR:
            options, open_ = (MEMORY,), "who allocates?"
        case CauseKind.STARVED | CauseKind.LOADER | CauseKind.RANGE | CauseKind.UNEXPLAINED:
            open_ = "what does its host do?"
        case _:
            open_ = known
    return options, open_
