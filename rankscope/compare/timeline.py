"""Some ranks in some iterations, in detail, on one aligned clock.

The database holds sums and collectives. Segments and device work are read again from the reports of
the requested ranks, by the stages of ingest.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from rankscope.compare.comparison import Comparison
from rankscope.compare.report_files import further
from rankscope.errors import ReportError, UnreadableReport, UsageError
from rankscope.match import warnings
from rankscope.match.clocks import aligned
from rankscope.measure.collectives import belonging
from rankscope.measure.host_states import state_intervals
from rankscope.measure.metrics import device_segments, host_segments
from rankscope.measure.rank import RankDetail
from rankscope.measure.report import ReportDetail, details
from rankscope.model.host_events import HostEvents
from rankscope.model.kinds import HostState
from rankscope.model.options import AUTO, WHOLE, ShapingOptions
from rankscope.model.reports import ReportFile, RunWarning
from rankscope.model.results import Timeline
from rankscope.model.schema import conform
from rankscope.model.timeline import (
    TIMELINE_COLLECTIVES,
    TIMELINE_OPERATIONS,
    TIMELINE_PHASES,
    TIMELINE_RANKS,
    TIMELINE_STATES,
    TIMELINE_WINDOWS,
)
from rankscope.sources.discover import describe_again
from rankscope.sources.moved import PUT_BACK, located
from rankscope.sources.name_numbers import found_before
from rankscope.util.rank_list import few
from rankscope.util.wording import agreeing, counted, ranks_text

COLLECTIVE_KEY = ["rank", "iteration", "place", "communicator", "operation", "ordinal"]
"""The columns that identify a collective of a rank."""

ORDERS = {
    "windows": ["rank", "clock", "start_ns"],
    "phases": ["rank", "clock", "start_ns"],
    "states": ["rank", "start_ns"],
    "operations": ["rank", "start_ns", "end_ns"],
    "collectives": ["rank", "arrival_ns", "end_ns"],
}
"""The frames of a timeline that have a row per event, and their orders."""

LEAST_WAIT_NS = 1_000
"""If no rank waits longer than this for a collective, nobody came last to it."""

MOST_LAST = 3
"""Most ranks that are shown in addition because others wait for them."""


def timeline(
    comparison: Comparison,
    ranks: Sequence[int],
    iterations: Sequence[int],
    *,
    states: bool = False,
) -> Timeline:
    """`ranks` in `iterations`, on one axis that starts at the earliest window.

    Args:
        comparison: the run, and the clock.
        ranks: ranks of the run, in the order to show them.
        iterations: iteration numbers; those that a rank lacks are left out there.
        states: read what the training threads did, too.

    Raises:
        UsageError: a rank or iteration that the run lacks.
        ReportError: a report is gone, or not the one that was ingested.
    """
    parts = [*timelines(comparison, ranks, iterations, states=states)]
    frames = {
        name: pl.concat(getattr(part, name) for part in parts).sort(order)
        for name, order in ORDERS.items()
    }
    place = {rank: place for place, rank in enumerate(ranks)}
    shown = pl.concat(part.ranks for part in parts)
    return replace(parts[0], ranks=shown.sort(pl.col("rank").replace_strict(place)), **frames)


def timelines(
    comparison: Comparison,
    ranks: Sequence[int],
    iterations: Sequence[int],
    *,
    states: bool = False,
) -> Iterator[Timeline]:
    """`timeline` in parts, one per report, which is read when its part is requested.

    All parts have the same axis and the same `problems`, those of all `ranks`. Args and Raises: as
    of `timeline`.
    """
    ranks = tuple(dict.fromkeys(few(ranks, "rank")))
    numbers = tuple(sorted({*few(iterations, "iteration")}))
    _check(comparison, ranks, numbers)
    axes = _axes(comparison, ranks)
    windows = _aligned(comparison, _windows(comparison, ranks, numbers))
    calls = _waiting(comparison, _aligned(comparison, _collectives(comparison, ranks, numbers)))
    origins = _origins(axes, windows)
    together = [origin for rank, origin in origins.items() if axes[rank] != "own"]
    utc = bool(together) and None not in comparison.scope.utc_starts.values()
    described, problems = _ranks(comparison, axes), tuple(_problems(comparison, axes))
    for file, options, own in _reports(comparison, ranks):
        detailed = _in_detail(comparison, details(file, options), own, numbers, states)
        here = pl.col("iteration").is_in(numbers)
        of_own_ranks = pl.col("rank").is_in(own)
        frames = {
            "windows": windows.filter(of_own_ranks),
            "collectives": calls.filter(of_own_ranks),
            **{name: _aligned(comparison, each.filter(here)) for name, each in detailed.items()},
        }
        yield Timeline(
            clock=comparison.clock,
            iterations=numbers,
            origin_utc_ns=together[0] if utc else None,
            ranks=described.filter(of_own_ranks),
            problems=problems,
            **{name: _since(origins, frame).sort(ORDERS[name]) for name, frame in frames.items()},
        )


def _in_detail(
    comparison: Comparison,
    report: ReportDetail,
    ranks: Sequence[int],
    numbers: tuple[int, ...],
    states: bool,
) -> dict[str, pl.DataFrame]:
    """TIMELINE_PHASES, TIMELINE_OPERATIONS and TIMELINE_STATES of a report, on its axis."""
    shifts = comparison.scope.shifts
    sources = [(report.ranks[rank], rank, shifts.get(rank, 0)) for rank in ranks]
    in_states = [states_of(*each, numbers, report.host_of) for each in sources if states]
    return {
        "phases": pl.concat(phases_of(*each) for each in sources),
        "operations": pl.concat(operations_of(*each) for each in sources),
        "states": pl.concat([pl.DataFrame(schema=TIMELINE_STATES), *in_states]),
    }


def with_last_to_arrive(
    comparison: Comparison, ranks: Sequence[int], iterations: Sequence[int]
) -> tuple[int, ...]:
    """`ranks`, and those for which they wait longest in `iterations`, though they are none of them.

    The rank that came last may itself have waited for another one, which is added as well, up to
    `MOST_LAST`.

    Args:
        ranks: ranks of the run.
        iterations: iteration numbers.
    """
    calls = _matched_calls(comparison, tuple(iterations))
    shown = list(dict.fromkeys(ranks))
    for _ in range(MOST_LAST):
        worst = longest_waits(calls.filter(pl.col("rank").is_in(shown)))
        if worst.is_empty() or int(worst["last_rank"][0]) in shown:
            break
        shown.append(int(worst["last_rank"][0]))
    return tuple(shown)


def longest_waits(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls of the instance that cost most waiting, added up over its calls; or no rows.

    Args:
        calls: instance, wait_ns and last_rank of TIMELINE_COLLECTIVES.
    """
    known = calls.drop_nulls(["wait_ns", "last_rank"])
    worst = (
        known.group_by("instance")
        .agg(cost=pl.col("wait_ns").sum(), longest=pl.col("wait_ns").max())
        .filter(pl.col("longest") >= LEAST_WAIT_NS)
        .sort("cost", "instance")
        .tail(1)
    )
    return known.join(worst, on="instance", how="semi")


def _matched_calls(comparison: Comparison, numbers: tuple[int, ...]) -> pl.DataFrame:
    """All ranks' calls that are matched: rank, instance, arrival_ns, wait_ns and last_rank."""
    return (
        comparison.collectives(numbers)
        .part(numbers)
        .select(
            pl.col("rank", "instance", "arrival_ns").cast(pl.Int64),
            wait_ns="wait",
            last_rank=pl.col("last").cast(pl.Int64),
        )
    )


def _waiting(comparison: Comparison, calls: pl.DataFrame) -> pl.DataFrame:
    """TIMELINE_COLLECTIVES whose waits end when the last rank arrives, on one clock.

    That rank is the one that came last, or the latest one where nobody clearly did. Where a
    member's clock is not tied, the waits stay as the metrics have them.
    """
    tied = [*comparison.matching.summary.clocks.fits]
    all_calls = _matched_calls(comparison, tuple(calls["iteration"].unique()))
    arrival = pl.col("arrival_ns")
    last = (
        _aligned(comparison, all_calls)
        .group_by("instance")
        .agg(
            last_arrival=pl.coalesce(
                arrival.filter(pl.col("rank") == pl.col("last_rank")).first(), arrival.max()
            ),
            tied=pl.col("rank").is_in(tied).all(),
        )
        .filter("tied")
        .select("instance", "last_arrival")
    )
    until = pl.min_horizontal("last_arrival", "end_ns")
    waited = pl.max_horizontal(until - arrival, 0)
    return (
        calls.join(last, on="instance", how="left", maintain_order="left")
        .with_columns(
            wait_ns=pl.when(pl.col("last_arrival").is_null() | pl.col("wait_ns").is_null())
            .then("wait_ns")
            .otherwise(waited)
        )
        .drop("last_arrival")
    )


def _check(comparison: Comparison, ranks: tuple[int, ...], numbers: tuple[int, ...]) -> None:
    """Raises `UsageError` if the run lacks a rank, or all of these ranks lack an iteration."""
    if not ranks:
        present = ranks_text(comparison.tables.ranks["rank"])
        raise UsageError("no ranks are named", hint=f"the run holds {present}")
    comparison.check_ranks(ranks)
    own_iterations = comparison.tables.iterations.filter(pl.col("rank").is_in(ranks))
    present_numbers = own_iterations["iteration"].unique().sort().to_list()
    unknown = sorted({*numbers} - {*present_numbers})
    if unknown or not numbers:
        raise UsageError(
            f"iteration {unknown[0]} is on none of these ranks"
            if unknown
            else "no iterations are named",
            hint=f"they hold iterations {present_numbers[0]} to {present_numbers[-1]}",
        )


def _reports(
    comparison: Comparison, ranks: tuple[int, ...]
) -> list[tuple[ReportFile, ShapingOptions, list[int]]]:
    """The reports of `ranks`, how each becomes rows, and which of `ranks` it holds.

    Raises:
        ReportError: a report is gone, or not the one that was ingested.
    """
    own = comparison.tables.ranks.filter(pl.col("rank").is_in(ranks))
    ranks_of_report = own.group_by("path").agg(pl.col("rank").sort(), pl.col("convention").first())
    files = []
    for row in comparison.tables.reports.join(
        ranks_of_report, on="path", maintain_order="left"
    ).rows(named=True):
        options = ShapingOptions.from_json(row["options"])
        if row["convention"] in (AUTO, WHOLE):  # taken by default
            options = replace(options, iteration=row["convention"])
        held = comparison.tables.ranks.filter(path=row["path"])
        file = _unchanged(row, comparison.tables.database)
        if held.height == 1:  # a name alone may not tell its rank: it was compared with others
            file = replace(file, numbers=found_before(held["rank"][0], held["evidence"][0]))
        files.append((file, options, row["rank"]))
    return files


def _unchanged(row: dict[str, object], database: Path | None) -> ReportFile:
    """The report of a row of `reports`, if it is still what was ingested.

    Copies have times of their own, so a report that was moved must have the same size only.
    """
    stored = Path(str(row["path"]))
    path = located(stored, database)
    try:
        windows = row["windows"]
        more = further(path, None if windows is None else str(windows))
        file = describe_again(ReportFile(path, str(row["kind"]), 0, 0, more=tuple(more)))
    except UnreadableReport as error:
        raise ReportError(
            f"{path}: is gone, and only it holds its ranks in detail",
            hint=PUT_BACK,
        ) from error
    times = {row["modified_ns"], file.modified_ns}
    if file.bytes != row["bytes"] or (path == stored and len(times) > 1):
        raise ReportError(
            f"{path}: has changed since it was ingested", hint="ingest it again, then repeat this"
        )
    return file


def _windows(
    comparison: Comparison, ranks: tuple[int, ...], numbers: tuple[int, ...]
) -> pl.DataFrame:
    """TIMELINE_WINDOWS of ranks and iterations, on the reports' axes."""
    measures = comparison.tables.read("measures", ranks=ranks, iterations=numbers)
    known = measures.drop_nulls(["window_start_ns", "iteration_ns"])
    start = pl.col("window_start_ns")
    spans = known.with_columns(start_ns=start, end_ns=start + pl.col("iteration_ns"))
    return conform(spans, TIMELINE_WINDOWS, drop_others=True)


def _collectives(
    comparison: Comparison, ranks: tuple[int, ...], numbers: tuple[int, ...]
) -> pl.DataFrame:
    """TIMELINE_COLLECTIVES of ranks and iterations, on the reports' axes."""
    key = {name: TIMELINE_COLLECTIVES[name] for name in COLLECTIVE_KEY}
    labels = comparison.matching.groups.select(pl.col("group").cast(pl.Int32), "label")
    known = (
        comparison.collectives(numbers)
        .part(numbers)
        .join(labels, on="group")
        .select(*COLLECTIVE_KEY, "instance", "label", wait_ns="wait", last_rank="last")
        .cast(key)  # type: ignore[arg-type]
    )
    own = comparison.tables.read("collectives", ranks=ranks, iterations=numbers)
    labelled = own.join(known, on=COLLECTIVE_KEY, how="left")
    return conform(
        labelled.with_columns(communicator=pl.coalesce("label", "communicator")),
        TIMELINE_COLLECTIVES,
        drop_others=True,
    )


def _axes(comparison: Comparison, ranks: tuple[int, ...]) -> dict[int, str]:
    """rank → `axis` of TIMELINE_RANKS."""
    clocks = comparison.matching.summary.clocks.fits
    tied = clocks if len(clocks) > 1 else {}
    unmoved = {
        rank: "own" if comparison.scope.utc_starts[rank] is None else "utc" for rank in ranks
    }
    return {rank: "aligned" if rank in tied else unmoved[rank] for rank in ranks}


def _aligned(comparison: Comparison, frame: pl.DataFrame) -> pl.DataFrame:
    """Times of the reports' axes by the lowest rank's UTC; of ranks not tied to it by their own."""
    clocks, starts = comparison.matching.summary.clocks, comparison.scope.utc_starts
    start = pl.col("rank").replace_strict(
        {rank: own or 0 for rank, own in starts.items()}, return_dtype=pl.Int64
    )
    return frame.with_columns(
        pl.coalesce(aligned(clocks, name, starts) + clocks.middle_ns, pl.col(name) + start).alias(
            name
        )
        for name in _times(frame)
    )


def _origins(axes: dict[int, str], windows: pl.DataFrame) -> dict[int, int]:
    """rank → what becomes 0: the earliest window of all; of a rank without UTC its own first."""
    first = dict(windows.group_by("rank").agg(pl.col("start_ns").min()).iter_rows())
    earliest = min((first[rank] for rank in first if axes[rank] != "own"), default=0)
    return {rank: first[rank] if axes[rank] == "own" else earliest for rank in first}


def _since(origins: dict[int, int], frame: pl.DataFrame) -> pl.DataFrame:
    """Times since each rank's origin."""
    origin = pl.col("rank").replace_strict(origins, default=0, return_dtype=pl.Int64)
    return frame.with_columns(pl.col(name) - origin for name in _times(frame))


def _times(frame: pl.DataFrame) -> list[str]:
    """Columns that hold moments; a wait is a length."""
    return [name for name in frame.columns if name.endswith("_ns") and name != "wait_ns"]


def _ranks(comparison: Comparison, axes: dict[int, str]) -> pl.DataFrame:
    """TIMELINE_RANKS."""
    clocks = comparison.matching.summary.clocks.fits
    aligned = pl.DataFrame(
        {
            "rank": list(axes),
            "axis": list(axes.values()),
            "residual_ns": [
                clocks[rank].spread_ns if axis == "aligned" else None for rank, axis in axes.items()
            ],
        },
        schema={name: TIMELINE_RANKS[name] for name in ("rank", "axis", "residual_ns")},
    )
    ranks = aligned.join(comparison.tables.ranks, on="rank", how="left")
    return conform(ranks, TIMELINE_RANKS, drop_others=True)


def _problems(comparison: Comparison, axes: dict[int, str]) -> Iterator[RunWarning]:
    """Which ranks' times must not be compared, and what the waits leave out."""
    said = {
        "utc": "times are by the clock of the host, which may be milliseconds off",
        "own": "no UTC either: the first window was put at 0",
    }
    for kind, how in said.items() if len(axes) > 1 else ():
        if ranks := tuple(rank for rank, axis in axes.items() if axis == kind):
            yield RunWarning(
                "not-aligned",
                f"{warnings.named(sorted(ranks))}no collective, report or host in common with the "
                f"others; {how}; these times cannot be compared with those of the others",
                ranks,
            )
    if blind := tuple(rank for rank in comparison.scope.blind_ranks if rank in axes):
        yield warnings.blind_ranks(blind, len(axes))
    if comparison.missing_ranks and comparison.tables.ranks.height > 1:  # else there are no waits
        yield RunWarning(
            "waits-lower-bounds",
            f"{counted(len(comparison.missing_ranks), 'rank')} of the job "
            f"{agreeing(len(comparison.missing_ranks), 'has', 'have')} no report and may have "
            "come last: waits are lower bounds",
            comparison.missing_ranks,
        )


def phases_of(detail: RankDetail, rank: int, shift: int) -> pl.DataFrame:
    """TIMELINE_PHASES of one rank, on its report's axis; iterations are numbered `shift` higher."""
    clocks = {"host": host_segments(detail.host, not detail.hidden)}
    if detail.has_device:
        clocks["gpu"] = device_segments(detail.device)
    number = detail.iterations.frame.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("window"), pl.col("iteration") + shift
    )
    segments = pl.concat(
        frame.join(number, on="window").with_columns(clock=pl.lit(clock))
        for clock, frame in clocks.items()
    )
    named = segments.with_columns(rank=pl.lit(rank), start_ns="start", end_ns="end", phase="label")
    return conform(named, TIMELINE_PHASES, drop_others=True)


def states_of(
    detail: RankDetail,
    rank: int,
    shift: int,
    numbers: tuple[int, ...],
    host_of: HostEvents | None,
) -> pl.DataFrame:
    """TIMELINE_STATES of one rank in the iterations `numbers`, on its report's axis.

    Args:
        shift: added to the report's own numbers.
        host_of: gives what threads did in spans of time; None where no report records it.
    """
    windows = detail.iterations.frame.with_columns(pl.col("iteration") + shift).filter(
        pl.col("iteration").is_in(numbers)
    )
    if host_of is None or windows.is_empty():
        return pl.DataFrame(schema=TIMELINE_STATES)
    thread = detail.iterations.thread
    span = windows["window_start"].to_numpy().min(), windows["window_end"].to_numpy().max()
    events = host_of({thread: span})[thread]
    parts = [
        state_intervals(events, begin, until).with_columns(iteration=number)
        for number, begin, until in windows.select(
            "iteration", "window_start", "window_end"
        ).iter_rows()
    ]
    known = pl.concat(parts).filter(pl.col("state") != HostState.UNKNOWN)
    named = known.with_columns(rank=pl.lit(rank), start_ns="start", end_ns="end")
    return conform(named, TIMELINE_STATES, drop_others=True)


def operations_of(detail: RankDetail, rank: int, shift: int) -> pl.DataFrame:
    """TIMELINE_OPERATIONS of one rank, on its report's axis; `shift` as in `phases_of`."""
    work = pl.concat(belonging(part, detail.iterations.frame) for part in detail.work.parts())
    collective = pl.col("operation").is_not_null()
    kind, name = (pl.col(each).cast(pl.String) for each in ("kind", "name"))
    named = work.with_columns(
        pl.col("iteration") + shift,
        rank=pl.lit(rank),
        start_ns="start",
        end_ns="end",
        launch_ns="launch",
        kind=pl.when(collective).then(pl.lit("collective")).otherwise(kind),
        name=pl.when(name == "").then(kind).otherwise(name),
        phase=pl.when("training").then("phase"),
    )
    return conform(named, TIMELINE_OPERATIONS, drop_others=True)
