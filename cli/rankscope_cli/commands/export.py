"""`rankscope export`: the picked ranks as a Perfetto trace, or tables for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from rankscope_cli.bundles import MeanAnalysis
from rankscope_cli.help import CHOICE
from rankscope_cli.opening import opened
from rankscope_cli.options import DB, Db, Format, FormatOption, PickMetric, Quiet, Verbose
from rankscope_cli.written import Written

if TYPE_CHECKING:
    from rankscope.compare.comparison import Comparison
    from rankscope.model.reports import RunWarning
    from rankscope.model.results import Timeline

TRACES = (".json", ".json.gz")
TABLES = (".parquet", ".csv")
"""Endings of the names of traces and tables."""

SAFE_SHARE = 0.9
"""Share of the largest size that a hint aims at, since iterations differ in size."""

VIEWER = "https://ui.perfetto.dev"
"""A viewer of traces, which keeps them on the user's machine."""


def export(
    *,
    target: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File of the trace (.json, .json.gz) or table (.parquet, .csv).",
        ),
    ],
    db: Db = DB,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            metavar="0,7,100:120|all",
            help="Ranks to export; A:B excludes B, A-B includes it. Default: of a trace the picked "
            "ranks, of a table all.",
            rich_help_panel=CHOICE,
        ),
    ] = None,
    analysis: MeanAnalysis,
    metric: PickMetric = None,
    output: FormatOption = Format.TABLE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Export the picked ranks on one clock as a Chrome/Perfetto trace, or all metrics as a table.

    A trace contains the iterations around those of pick-reports, or those of --iter-range. The
    reports of its ranks are read again, one after the other.

    Examples:

      rankscope export -o picks.json.gz

      rankscope export -o two.json --ranks 0,3 --iter-range 10:14

      rankscope export -o all.json.gz --ranks all --iter-range 10:14

      rankscope export -o run.parquet
    """
    from rankscope.compare.comparison import Stage
    from rankscope.util.atomic_io import check_writable

    ending = _ending(target)
    check_writable(target)
    rows_only = ending in TABLES
    run = opened(db)
    comparison = run.compare(analysis, until=Stage.OUTLIERS if rows_only else Stage.VERDICT)
    selected = _selected(comparison, ranks)
    limited = analysis.iter_range is not None
    if rows_only:
        written = _rank_iterations(comparison, selected, limited, target, ending)
    else:
        written = _trace(comparison, selected, limited, metric, target, ending)
    written.show(run, comparison, output, quiet, verbose)


def _selected(comparison: Comparison, ranks: str | None) -> list[int] | None:
    """The ranks of `--ranks`; None without it."""
    from rankscope.util.rank_list import parse_ranks

    if ranks == "all":
        return comparison.tables.ranks["rank"].sort().to_list()
    return None if ranks is None else sorted(parse_ranks(ranks))


def _ending(target: Path) -> str:
    """The ending of the file's name, which selects a trace or a table.

    Raises:
        UsageError: another ending.
    """
    from rankscope.errors import UsageError

    endings = (*TRACES, *TABLES)
    ending = next((each for each in endings if target.name.lower().endswith(each)), None)
    if ending is None:
        raise UsageError(
            f"-o {target}: unknown file name ending",
            hint=f"end the name of a trace in {' or '.join(TRACES)}, of a table in "
            f"{' or '.join(TABLES)}",
        )
    return ending


def _rank_iterations(
    comparison: Comparison, ranks: list[int] | None, limited: bool, target: Path, ending: str
) -> Written:
    """Every metric of every rank and iteration, as in `select * from rank_iterations`."""
    from io import BytesIO

    import polars as pl

    from rankscope.output.markdown_csv import csv
    from rankscope.util.atomic_io import write_whole

    frame = comparison.rank_iterations()
    if ranks is not None:
        comparison.check_ranks(ranks)
        frame = frame.filter(pl.col("rank").is_in(ranks))
    if limited:
        frame = frame.filter(pl.col("iteration").is_in(comparison.selection.numbers))
    content = BytesIO()
    if ending == ".csv":
        content.write((csv(frame) + "\n").encode())
    else:
        frame.write_parquet(content)
    write_whole(target, content.getvalue())
    of_ranks, numbers = (frame[name].unique().sort() for name in ("rank", "iteration"))
    return _written(target, "rank_iterations", frame.height, of_ranks, numbers)


def _trace(
    comparison: Comparison,
    chosen: list[int] | None,
    limited: bool,
    metric: str | None,
    target: Path,
    ending: str,
) -> Written:
    """Write a trace, report by report, so that memory does not grow with their number.

    Raises:
        UsageError: it is larger than what a browser opens, or cannot be written. A file that was at
            `target` is kept.
        ReportError: a report is gone, or not the one that was ingested.
    """
    from rankscope import __version__
    from rankscope.api import picks_of
    from rankscope.compare.timeline import timelines, with_last_to_arrive
    from rankscope.output.perfetto import trace
    from rankscope.util.atomic_io import written_whole
    from rankscope.util.sanitize import sanitized

    picks = picks_of(comparison, metric)
    numbers = comparison.selection.numbers
    iterations = numbers if limited else picks.nearby(numbers)
    labels = {each.rank: each.title for each in picks.picks}
    ranks = chosen or with_last_to_arrive(comparison, [*labels], iterations)
    parts = timelines(comparison, ranks, iterations, states=True)
    first = next(parts)
    about = {
        "program": f"rankscope {__version__}",
        "run": sanitized(comparison.tables.name),
        "verdict": comparison.verdict.sentence,
        "clock": comparison.clock,
        "origin_utc_ns": first.origin_utc_ns,
    }
    heights: list[int] = []

    def counted_parts() -> Iterator[Timeline]:
        for part in chain([first], parts):
            events = (part.phases, part.states, part.collectives, part.operations)
            heights.append(sum(each.height for each in events))
            yield part

    pieces = bounded(trace(counted_parts(), about, labels), first, ranks)
    begin = next(pieces)  # if the whole is too large, this raises before a file is made
    try:
        with written_whole(target) as partial, partial.open("wb") as file:
            _write_pieces(file, chain([begin], _with_read_errors(pieces)), ending.endswith(".gz"))
    except _ReadError as failed:
        raise failed.error from None
    around = "" if limited else ", around those of pick-reports"
    shown = sorted(ranks), first.iterations
    return _written(target, "trace", sum(heights), *shown, first.problems, around)


def bounded(
    pieces: Iterator[bytes], first: Timeline, ranks: Sequence[int], most: int | None = None
) -> Iterator[bytes]:
    """The pieces of a trace, unless it is larger than what a browser opens.

    The size of the whole is estimated from the first piece, which has the ranks of one report.

    Args:
        first: the part that is in the first piece.

    Raises:
        UsageError: the whole is, or will be, larger than `most`.
    """
    from rankscope.errors import UsageError
    from rankscope.output.perfetto import MOST_BYTES
    from rankscope.util.wording import counted, size

    most = MOST_BYTES if most is None else most
    written = expected = 0
    for piece in pieces:
        written += len(piece)
        if not expected:
            expected = len(piece) * len(ranks) // first.ranks.height
        if max(written, expected) > most:
            numbers = first.iterations
            fitting = int(len(numbers) * SAFE_SHARE * most / max(written, expected))
            raise UsageError(
                f"a trace of {counted(len(ranks), 'rank')} and "
                f"{counted(len(numbers), 'iteration')} has about {size(max(written, expected))}; "
                f"browsers open up to {size(most)}",
                hint=f"take fewer iterations (--iter-range {numbers[0]}:{numbers[0] + fitting})"
                if fitting
                else "name fewer ranks (--ranks)",
            )
        yield piece


class _ReadError(Exception):
    """An `OSError` from reading reports, as opposed to one from writing the trace."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def _with_read_errors(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces; an `OSError` from making them becomes a `_ReadError`."""
    try:
        yield from pieces
    except OSError as error:
        raise _ReadError(error) from error


def _write_pieces(file: BinaryIO, pieces: Iterable[bytes], zipped: bool) -> None:
    """Write a trace; the same pieces give the same file."""
    import gzip

    if not zipped:
        file.writelines(pieces)
        return
    with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        packed.writelines(pieces)


def _written(
    target: Path,
    kind: str,
    rows: int,
    ranks: Iterable[int],
    iterations: Iterable[int],
    problems: tuple[RunWarning, ...] = (),
    around: str = "",
) -> Written:
    """The output about a file, with how to open it.

    Args:
        kind: `trace`, or the name of the table.
        around: why the file has these iterations.
        rows: of the table; of a trace its phases, states, collectives and device operations.
    """
    from rankscope.output.documents.written import Export
    from rankscope.output.quantities import short_path
    from rankscope.util.wording import agreeing, counted, ranks_text, size, span

    facts: dict[str, object] = {"output": str(target), "kind": kind, "rows": rows}
    bytes_, who, numbers = target.stat().st_size, list(ranks), list(iterations)
    facts |= {"bytes": bytes_, "ranks": who, "iterations": numbers}
    is_trace = kind == "trace"
    what = counted(rows, "event") if is_trace else f"{counted(rows, 'row')} of {kind}"
    lines = [
        f"{short_path(target)}: {what} ({size(bytes_)}), {ranks_text(who)}, "
        f"{agreeing(len(numbers), 'iteration')} {span(numbers)}{around}",
        *[f"Open it in {VIEWER} (uploads nothing) or chrome://tracing."] * is_trace,
    ]
    return Written(Export, "Exported", facts, lines, problems)
