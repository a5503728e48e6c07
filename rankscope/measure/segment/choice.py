"""The iterations of a report: those that `--iteration` asks for, or the best ones there are.

See METHOD.md#iterations.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import NoIterations
from rankscope.measure.segment.iterations import (
    IterationRanges,
    find_iterations,
    whole_capture,
    with_pauses,
    with_trailing,
)
from rankscope.measure.segment.labelled_ranges import LabelledRanges, with_meanings
from rankscope.measure.segment.step_detection import (
    RANGE_COLUMNS,
    WORK_COLUMNS,
    DetectedSteps,
    find_steps,
)
from rankscope.model.arrays import of_process
from rankscope.model.options import AUTO, WHOLE, ShapingOptions
from rankscope.model.reports import Trace
from rankscope.model.schema import OPERATORS
from rankscope.sources.conventions import Vocabulary, vocabulary
from rankscope.sources.report_format import IterationHints

LAUNCHING = ("process", "launch_thread")

SHOWN_NAMES = 8
"""The number of range names that an error lists."""


class Chosen(Struct, frozen=True):
    """The iterations of the processes of one report."""

    named: LabelledRanges
    words: Vocabulary
    iterations: dict[int, IterationRanges]  # process → its iterations
    steps: dict[int, DetectedSteps]  # process → how its steps were detected, if they were
    taken: str | None  # the `--iteration` that gives the same; None: names that are conventions

    def paused(self, pauses: Iterable[tuple[int, int]]) -> Chosen:
        """The same, without times (start and end, ns) that were not recorded."""
        iterations = {
            process: with_pauses(each, pauses) for process, each in self.iterations.items()
        }
        return replace(self, iterations=iterations)

    def until(self, cut_ns: int) -> Chosen:
        """The same, with the iterations that end after a moment (ns) incomplete."""
        whole = pl.col("complete") & (pl.col("window_end") <= cut_ns)
        iterations = {
            process: replace(each, frame=each.frame.with_columns(complete=whole))
            for process, each in self.iterations.items()
        }
        return replace(self, iterations=iterations)


def choose_iterations(
    path: Path, trace: Trace, words: Vocabulary, options: ShapingOptions, hints: IterationHints
) -> Chosen:
    """The iterations of each process that has some.

    Without `--iteration` these are the ranges named like iterations; else those that the format
    suggests; else the detected steps, if they are sure on every training process; else each
    capture as one iteration. With `auto` names do not count.

    Args:
        words: the vocabulary of `options`.
        options: the user's options.
        hints: the format's advice.

    Raises:
        NoIterations: the report has no iterations of the requested kind.
    """
    named = with_meanings(trace.ranges, words)
    if options.iteration == WHOLE:
        return _whole(path, trace, named, words, hints)
    if options.iteration == AUTO:
        steps = _steps(trace, named)
        sure = {process: each for process, each in steps.items() if each.sure}
        return _detected(named, words, sure) if sure else _whole(path, trace, named, words, hints)
    iterations = _by_name(trace, named)
    if iterations:
        return Chosen(named, words, iterations, {}, options.iteration)
    if options.iteration is not None:
        raise _no_names(path, named.rows("domain", "name"), hints)
    if hints.pattern is not None:
        own = vocabulary(replace(options, iteration=hints.pattern))
        if iterations := _by_name(trace, with_meanings(trace.ranges, own)):
            ended = {
                process: with_trailing(each, _ranges(named, process))
                for process, each in iterations.items()
            }
            # The ranges that end iterations are phases (the optimizer) as well.
            return Chosen(named, own, ended, {}, hints.pattern)
    training = _training(trace, named)
    steps = _steps(trace, named, training)
    if steps and all(each.sure for each in steps.values()):
        return _detected(named, words, steps)
    return _whole(path, trace, named, words, hints)


def _by_name(trace: Trace, named: LabelledRanges) -> dict[int, IterationRanges]:
    candidates = {
        process: find_iterations(of_process(named.meaningful, process), trace.facts.duration_ns)
        for process in _processes(named.meaningful)
    }
    iterations = {process: each for process, each in candidates.items() if each}
    if len(iterations) < 2 or trace.states_ranks(iterations):
        return iterations
    work = trace.device_work
    of_device = (each["process"] for each in (work.kinds, work.unrecorded, work.sync_calls))
    using = {*pl.concat(of_device)}
    # Ranges of helpers (loaders that were forked) are named like those of the process that trains.
    return {process: each for process, each in iterations.items() if process in using} or iterations


def _steps(
    trace: Trace, named: LabelledRanges, only: list[int] | None = None
) -> dict[int, DetectedSteps]:
    """Process → its steps, sure or not."""
    work = pl.concat(part.select(WORK_COLUMNS) for part in trace.device_work.first_look())
    processes = dict.fromkeys(_processes(named.signatures) + _processes(work))
    return {
        process: find_steps(
            _ranges(named, process),
            of_process(work, process),
            trace.facts.duration_ns,
            trace.process_of(process).main_thread,
        )
        for process in processes
        if only is None or process in only
    }


def _detected(named: LabelledRanges, words: Vocabulary, steps: dict[int, DetectedSteps]) -> Chosen:
    iterations = {process: each.iterations for process, each in steps.items() if each.iterations}
    return Chosen(named, words, iterations, steps, AUTO)


def _training(trace: Trace, named: LabelledRanges) -> list[int]:
    """The processes that train: those with device work, else with known names, else with ranges."""
    return (
        _processes(trace.device_work.kinds)
        or _processes(named.meaningful)
        or _processes(named.signatures)
        or [*trace.busiest]
    )


def _whole(
    path: Path, trace: Trace, named: LabelledRanges, words: Vocabulary, hints: IterationHints
) -> Chosen:
    """The capture of each training process as one iteration."""
    work, launching = _extents(trace)
    captures = {
        process: whole_capture(
            _ranges(named, process),
            work.get(process, trace.busiest.get(process)),
            launching.filter(launching["process"] == process)["launch_thread"],
            trace.process_of(process).main_thread,
        )
        for process in _training(trace, named)
    }
    iterations = {process: each for process, each in captures.items() if each}
    if not iterations:
        raise NoIterations(f"{path}: holds no events of a process", hint=hints.no_ranges)
    return Chosen(named, words, iterations, {}, WHOLE)


def _extents(trace: Trace) -> tuple[dict[int, tuple[int, int]], pl.DataFrame]:
    """First launch (or start) and last end of the device work by process; who launches computation.

    The second is a frame of process and launch_thread.
    """
    begin = pl.coalesce("launch", "start")
    spans, threads = [], [pl.DataFrame(schema=dict.fromkeys(LAUNCHING, pl.Int64))]
    for part in trace.device_work.parts():
        spans.append(part.group_by("process").agg(begin.min().alias("begin"), pl.col("end").max()))
        computing = part.filter(pl.col("operation").is_null(), pl.col("kind") != "copy")
        threads.append(computing.select(LAUNCHING).drop_nulls().unique())
    launching = pl.concat(threads).unique()
    if not spans:
        return {}, launching
    rows = pl.concat(spans).group_by("process").agg(pl.col("begin").min(), pl.col("end").max())
    return {process: (begin, end) for process, begin, end in rows.iter_rows()}, launching


def _ranges(named: LabelledRanges, process: int) -> pl.DataFrame:
    """Start, end and RANGE_COLUMNS of the ranges of a process."""
    return named.rows(*RANGE_COLUMNS, of=pl.col("process") == process)


def _processes(frame: pl.DataFrame) -> list[int]:
    return frame["process"].unique(maintain_order=True).to_list()


def _no_names(path: Path, ranges: pl.DataFrame, hints: IterationHints) -> NoIterations:
    """The error that shows which names there are."""
    if ranges.is_empty():
        return NoIterations(
            f"{path}: holds no {hints.ranges} ranges, so none fits --iteration",
            hint=f"leave out --iteration: then steps are detected; or {hints.no_ranges}",
        )
    annotations = ranges.filter(pl.col("domain") != OPERATORS)
    stems = (ranges if annotations.is_empty() else annotations).select(
        pl.col("name").cast(pl.String).str.replace_all(r"\d+", "N").str.slice(0, 60)
    )
    common = stems["name"].value_counts().sort("count", "name", descending=[True, False])
    names = ", ".join(f"{name!r} ({count})" for name, count in common.head(SHOWN_NAMES).iter_rows())
    return NoIterations(
        f"{path}: has no ranges that fit --iteration; its most frequent ranges are {names}",
        hint="correct the pattern, or leave out --iteration: then the names that are conventions "
        "count, else steps are detected",
    )
