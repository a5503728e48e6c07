"""One report → its rows: everything that is done once per report, knowing no other rank."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from rankscope import read
from rankscope.errors import NoIterations, UsageError
from rankscope.identify import identities, name_disagrees, pattern
from rankscope.measure.rank import RankDetail, detail_rank, measure_rank
from rankscope.records import (
    Problem,
    RankIdentity,
    ReportFile,
    ReportRows,
    ShapingOptions,
    Trace,
)
from rankscope.schema import OPERATORS
from rankscope.segment import Found, find_iterations, whole_capture
from rankscope.vocabulary import Vocabulary, vocabulary

SHOWN_NAMES = 8

PROFILER_HINT = (
    "call prof.step() after every iteration; in this trace, --iteration '^Optimizer\\.step#' ends "
    "one with each optimizer step"
)
"""How to mark iterations for the PyTorch profiler."""


@dataclass(frozen=True, slots=True)
class Segmented:
    """One report, read: whose ranks it holds, and their iterations."""

    trace: Trace
    words: Vocabulary
    named: pl.DataFrame  # RANGES with the columns of MEANINGS
    found: dict[int, Found]  # process → its iterations
    whose: list[RankIdentity]


def segmented(file: ReportFile, options: ShapingOptions) -> Segmented:
    """Read, identify and segment one report.

    Raises:
        UnreadableReport: it is none.
        NoIterations: nothing in it is named like an iteration.
        UnknownRank, RankConflict: whose it is cannot be told.
    """
    if options.iteration == "auto":
        raise UsageError(
            "--iteration auto cannot find steps without markers yet",
            hint="name the ranges: --iteration 'my_step_(\\d+)', or take --iteration whole",
        )
    whole = options.iteration == "whole"
    words = vocabulary(ShapingOptions(phases=options.phases) if whole else options)
    trace = read.read(file)
    named = trace.ranges.join(
        words.meanings(trace.ranges), on=["domain", "name"], how="left", nulls_equal=True
    )
    work_ends = dict(trace.device_work.group_by("process").agg(pl.col("end").max()).iter_rows())
    found = {
        process: iterations
        for (process,), ranges in named.partition_by("process", as_dict=True).items()
        if (
            iterations := whole_capture(ranges, work_ends.get(process))
            if whole
            else find_iterations(ranges, trace.facts.duration_ns)
        )
    }
    if not found:
        raise _no_iterations(file, trace.ranges, options)
    whose = identities(
        file.path, trace.facts, found, trace.process_ranks, pattern(options.rank_pattern)
    )
    return Segmented(trace, words, named, found, whose)


def details(file: ReportFile, options: ShapingOptions) -> dict[int, RankDetail]:
    """rank → everything its numbers are made of.

    Raises: what `segmented` does.
    """
    report = segmented(file, options)
    return {
        identity.rank: detail_rank(
            identity.process,
            report.found[identity.process],
            report.named,
            report.trace.device_work,
        )
        for identity in report.whose
    }


def extract(file: ReportFile, options: ShapingOptions) -> ReportRows:
    """Read, identify, segment and measure one report.

    Raises: what `segmented` does.
    """
    report = segmented(file, options)
    trace, whose = report.trace, report.whose
    problems = [
        Problem(
            "file-name-disagrees",
            f"{file.path.name} is named like rank {spelled}, but its {identity.evidence} says "
            f"rank {identity.rank}, which is believed",
            (identity.rank,),
        )
        for identity in whose
        if (spelled := name_disagrees(file.path, identity)) is not None
    ]
    if trace.broken_rows:
        problems.append(
            Problem(
                "rows-broken",
                f"{trace.broken_rows:,} events without a time or an owner are left out; is the "
                "export whole?",
                tuple(identity.rank for identity in whose),
            )
        )
    return ReportRows(
        file=file,
        facts=trace.facts,
        ranks=tuple(
            measure_rank(
                identity,
                report.found[identity.process],
                report.named,
                trace.device_work,
                report.words,
            )
            for identity in whose
        ),
        problems=tuple(problems),
        events=trace.events,
    )


def _no_iterations(file: ReportFile, ranges: pl.DataFrame, options: ShapingOptions) -> NoIterations:
    """The error that shows which names there are."""
    annotations = ranges.filter(pl.col("domain") != OPERATORS)
    by_profiler = file.kind == "kineto"
    if ranges.is_empty():
        return NoIterations(
            f"{file.path}: holds no {'host' if by_profiler else 'NVTX'} ranges",
            hint="profile with ProfilerActivity.CPU, and call prof.step() after every iteration"
            if by_profiler
            else "annotate the training loop (torch.cuda.nvtx.range_push(f'step {i}')) and profile "
            "with --trace=nvtx; or take the capture as one: --iteration whole",
        )
    stems = (ranges if annotations.is_empty() else annotations).select(
        pl.col("name").str.replace_all(r"\d+", "N").str.slice(0, 60)
    )
    common = stems["name"].value_counts().sort("count", "name", descending=[True, False])
    names = ", ".join(f"{name!r} ({count})" for name, count in common.head(SHOWN_NAMES).iter_rows())
    looked = "that fit --iteration" if options.iteration else "named like iterations"
    return NoIterations(
        f"{file.path}: has no ranges {looked}; its most frequent ranges are {names}",
        hint=PROFILER_HINT
        if by_profiler and not options.iteration
        else "name the iterations with --iteration 'REGEX' (its first group is the number), the "
        "phases with --phase forward='REGEX'",
    )
