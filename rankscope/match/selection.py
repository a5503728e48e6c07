"""The iterations to compare (complete on every rank, in range, no warm-up), and the clock.

See METHOD.md#iterations and METHOD.md#gpu-clock.
"""

from collections.abc import Callable, Collection

import polars as pl
from msgspec.structs import replace

from rankscope.errors import ReportError, UsageError
from rankscope.match.records import ReusedScope, Scope, Selection
from rankscope.match.renumbering import renumbered
from rankscope.model.kinds import NAMED_PHASES, Clock
from rankscope.model.metrics import columns_of
from rankscope.model.options import Options
from rankscope.model.reports import RunWarning
from rankscope.sources.recorders import Record, advice, recorder_of
from rankscope.store.tables import RunTables
from rankscope.util.rank_list import LONGEST
from rankscope.util.wording import MOST_LISTED, agreeing, counted, listed, ranks_text, span


def scope_of(
    tables: RunTables,
    options: Options,
    reuse: ReusedScope | None = None,
    shifted: tuple[dict[int, int], list[RunWarning]] | None = None,
) -> Scope:
    """The ranks, the clock and the iterations that `options` select.

    Args:
        tables: the run as its reports number it.
        options: how to compare.
        reuse: the reusable parts of the scope of the default options.
        shifted: rank → the shift of its numbers, and warnings; None: not known yet.

    Raises:
        UsageError: an unknown clock, or one without times.
        ReportError: iterations without numbers cannot be paired.
    """
    starts = tables.ranks.join(tables.reports, on="path", how="left")
    utc_starts = dict(starts.select("rank", "utc_start_ns").iter_rows())
    unnumbered = tables.ranks.filter(~pl.col("numbered"))["rank"].to_list()
    if reuse is not None:
        shifts, warnings = reuse.shifts, reuse.shift_warnings
    elif shifted is not None:
        shifts, warnings = shifted[0], tuple(shifted[1])
    else:
        from rankscope.match.iteration_matching import pair_iterations

        shifts, doubts = pair_iterations(
            tables.iterations, lambda: tables.collectives, utc_starts, unnumbered
        )
        warnings = tuple(doubts)
    tables = renumbered(tables, shifts)
    clock, reason = choose_clock(tables, options.clock)
    size = tables.ranks["world_size"].max()
    world_size = size if isinstance(size, int) else None
    present = {*tables.ranks["rank"]}
    job = world_size or max(present) + 1
    return Scope(
        tables=tables,
        options=options,
        utc_starts=utc_starts,
        shifts=shifts,
        shift_warnings=warnings,
        matched_by="ordinal" if unnumbered else "number",
        clock=clock,
        clock_reason=reason,
        world_size=world_size,
        missing_ranks=tuple(sorted({*range(job)} - present)),
        blind_ranks=_blind_ranks(tables, job) if reuse is None else reuse.blind_ranks,
        choice=_choice(tables, options, clock, reuse),
    )


def _blind_ranks(tables: RunTables, job: int) -> tuple[int, ...]:
    """Ranks without collectives in their reports, if the job has several ranks."""
    if max(job, tables.ranks.height) < 2:
        return ()
    seen = tables.read("collectives", ["rank"], distinct=True)["rank"]
    return tuple(sorted({*tables.ranks["rank"]} - {*seen}))


def without_lost(scope: Scope, lacking: pl.DataFrame) -> Scope:
    """The scope less iterations in which a rank lost records of its device, and the next ones.

    No record may tell that both launches and kernels are lost, but all members of a communicator
    make the same calls. A rank that lacks some in half of its iterations did not lose them; nor did
    one that lacks some in its first, which may be cut. If several ranks lack some in different
    iterations, so that half of all would be left out, none is: few ranks hardly change the median.

    Args:
        scope: the ranks, the clock and the iterations.
        lacking: `Matched.lacking`.
    """
    complete = scope.tables.iterations.filter("complete")
    own = complete.group_by("rank")
    of_ranks = own.agg(pl.len(), first=pl.col("iteration").min()).cast(pl.Int64)
    lost = lacking.join(of_ranks, on="rank").filter(
        pl.col("iteration") > pl.col("first"),
        2 * pl.len().over("rank") < pl.col("len"),
    )
    if scope.clock != Clock.GPU or lost.is_empty():
        return scope
    next_too = pl.concat([lost, lost.with_columns(pl.col("iteration") + 1)])
    left_out = next_too["iteration"].n_unique()
    if lost["rank"].n_unique() > 1 and 2 * left_out >= complete["iteration"].n_unique():
        return scope
    return replace(scope, choice=_choice(scope.tables, scope.options, scope.clock, None, next_too))


def _choice(
    tables: RunTables,
    options: Options,
    clock: str,
    reuse: ReusedScope | None,
    lost: pl.DataFrame | None = None,
) -> Selection | UsageError | ReportError:
    try:
        if reuse is not None and reuse.clock == clock:
            default = reuse.selection
            common = sorted({*default.numbers, *default.warmup})
            return within(
                common,
                default.settling,
                default.problems,
                options.iter_range,
                options.include_warmup,
            )
        columns = ["rank", "iteration", "iteration_ns", "work_ns"]
        lengths = tables.read("measures", columns, clock=clock)
        if lost is not None:
            known = lengths.join(lost, on=["rank", "iteration"], how="anti")
            lengths = lengths.select("rank", "iteration").join(
                known, on=["rank", "iteration"], how="left"
            )
        return select(tables.iterations, lengths, options.iter_range, options.include_warmup)
    except (UsageError, ReportError) as error:
        return error.with_traceback(None)


IterRange = slice | str | tuple[int | None, int | None] | None
"""A range of iteration numbers as Python callers write it: `slice(10, 50)`, `"10:50"`, `(10, 50)`.
"""


def as_range(bounds: IterRange) -> slice | None:
    """A range of iteration numbers as a slice.

    Raises:
        UsageError: it is not a range of iterations, or it has a step.
    """
    if bounds is None:
        return None
    if isinstance(bounds, str):
        return parse_range(bounds)
    parts = (
        (bounds.start, bounds.stop, bounds.step) if isinstance(bounds, slice) else (*bounds, None)
    )
    whole = all(isinstance(each, int | None) for each in parts)
    if len(parts) != 3 or not whole or parts[2] not in (None, 1):
        raise UsageError(
            f"iter_range={str(bounds)[:LONGEST]} is no range of iteration numbers",
            hint="slice(10, 50), (10, 50) or '10:50': iterations 10 to 49",
        )
    return slice(*parts[:2])


def parse_range(text: str) -> slice:
    """`10:50` as a slice of iteration numbers.

    Raises:
        UsageError: not `A:B`.
    """
    parts = text.split(":")
    try:
        if len(parts) != 2:
            raise ValueError(text)
        begin, end = (int(part) if part.strip() else None for part in parts)
    except ValueError as error:
        raise UsageError(
            f"--iter-range {text[:LONGEST]!r} is not A:B",
            hint="like a Python slice of iteration numbers: 10:50, 10:, :50, -20:; "
            "12:13 is iteration 12 alone",
        ) from error
    return slice(begin, end)


def select(
    iterations: pl.DataFrame,
    lengths: pl.DataFrame,
    iter_range: slice | None,
    include_warmup: bool,
) -> Selection:
    """The iterations to compare.

    Args:
        iterations: RANK_ITERATIONS of all ranks.
        lengths: iteration, rank, iteration_ns and work_ns on the selected clock.
        iter_range: slice of numbers; negative ones count complete iterations from the end.
        include_warmup: select the warm-up as well.

    Raises:
        UsageError: nothing is left.
        ReportError: no iteration is complete on every rank.
    """
    problems: list[RunWarning] = []
    complete = iterations.filter("complete")
    common = common_iterations(iterations)
    total = complete["iteration"].n_unique()
    if len(common) < total:
        problems.append(_uneven(complete, common, total))
    if not common:
        raise _nothing_shared(iterations, complete)
    unknown = _unknown(common, lengths)
    with_work = sorted({*common} - {*unknown["iteration"]})
    if with_work and len(with_work) < len(common):
        common = with_work
        problems.append(_without_work(unknown))
    from rankscope.match.warmup import warmup_of

    warmup, settled = warmup_of(common, lengths)
    if not settled:
        problems.append(
            RunWarning(
                "warmup-unsettled",
                "iteration times had not settled within the first tenth of the run; only "
                "iteration 0 is left out as warm-up",
            )
        )
    return within(common, warmup, tuple(problems), iter_range, include_warmup)


def _nothing_shared(iterations: pl.DataFrame, complete: pl.DataFrame) -> ReportError:
    """The error where no iteration is complete on every rank."""
    present = {*complete["rank"]}
    lacking = {*iterations["rank"]} - present
    if not lacking or len(present) < 2:
        return ReportError(
            "no iteration is complete on every rank: the reports share no step",
            hint="do the reports belong to one run, and do their captures overlap?",
        )
    return ReportError(
        f"no iteration is complete on every rank: {ranks_text(lacking, MOST_LISTED)} "
        f"{agreeing(len(lacking), 'has', 'have')} none",
        hint="record these again, or read the others alone: rankscope ingest PROFILES --rebuild "
        f"--ranks {span(sorted(present)).replace(' ', '')}",
    )


def within(
    common: list[int],
    warmup: Collection[int],
    problems: tuple[RunWarning, ...],
    iter_range: slice | None,
    include_warmup: bool,
) -> Selection:
    """The selected ones of the iterations that are complete on every rank.

    Args:
        common: all of them, ascending.
        warmup: which of them are warm-up.
        problems: warnings about them.
        iter_range: as in `select`.
        include_warmup: as in `select`.

    Raises:
        UsageError: nothing is left.
    """
    ranged = _in_range(common, iter_range)
    if not ranged:
        start = None if iter_range is None else iter_range.start
        single = f"; {start}:{start + 1} is iteration {start} alone" if start in common else ""
        raise UsageError(
            f"--iter-range {range_text(iter_range)[:LONGEST]} selects nothing",
            hint=f"iterations {common[0]} to {common[-1]} are complete on every rank{single}",
        )
    keep = include_warmup or iter_range is not None
    numbers = ranged if keep else [each for each in ranged if each not in warmup]
    if not numbers:
        raise UsageError("all iterations are warm-up", hint="add --include-warmup")
    left_out = () if keep else tuple(each for each in warmup if each in ranged)
    return Selection(tuple(numbers), left_out, problems, tuple(sorted(warmup)))


def common_iterations(iterations: pl.DataFrame) -> list[int]:
    """Numbers of the iterations that are complete on every rank, ascending.

    Args:
        iterations: RANK_ITERATIONS of all ranks.
    """
    ranks = iterations["rank"].n_unique()
    counts = (
        iterations.filter("complete")
        .group_by("iteration")
        .agg(ranks=pl.col("rank").n_unique())
        .sort("iteration")
    )
    return counts.filter(pl.col("ranks") == ranks)["iteration"].to_list()


def _in_range(common: list[int], limits: slice | None) -> list[int]:
    if limits is None:
        return common

    def bound(value: int | None, default: float) -> float:
        if value is None:
            return default
        if value >= 0:
            return value
        index = len(common) + value
        return common[index] if index >= 0 else float("-inf")

    low, high = bound(limits.start, float("-inf")), bound(limits.stop, float("inf"))
    return [number for number in common if low <= number < high]


def _unknown(common: list[int], lengths: pl.DataFrame) -> pl.DataFrame:
    """rank and iteration: the windows that are unknown on the clock, for lack of device work."""
    unknown = lengths.filter(pl.col("iteration_ns").is_null() & pl.col("iteration").is_in(common))
    return unknown.select("rank", "iteration").sort("iteration", "rank")


def _without_work(unknown: pl.DataFrame) -> RunWarning:
    numbers = unknown["iteration"].unique().sort().to_list()
    ranks = tuple(unknown["rank"].unique().sort())
    return RunWarning(
        "iterations-without-work",
        f"no device work, or not all of it, in {agreeing(len(numbers), 'iteration')} "
        f"{listed(numbers)}: left out on all ranks",
        ranks,
    )


def _uneven(complete: pl.DataFrame, common: list[int], total: int) -> RunWarning:
    spans = complete.group_by("rank").agg(pl.len().alias("count")).sort("rank")
    short = spans.filter(pl.col("count") < spans["count"].max())["rank"].to_list()
    fewest = f"; fewest on rank {short[0]}" if short else ""
    return RunWarning(
        "iterations-uneven",
        f"only {len(common)} of {counted(total, 'iteration')} are complete on every rank; "
        f"the others are left out{fewest}",
        tuple(short),
    )


def range_text(wanted: slice | None) -> str:
    """A slice of iteration numbers as `parse_range` reads it: `10:50`."""
    if wanted is None:
        return ":"
    return f"{'' if wanted.start is None else wanted.start}:" + (
        "" if wanted.stop is None else str(wanted.stop)
    )


CLOCKS = ("auto", *Clock)
"""Values of `--clock`."""

PHASE_COLUMNS = columns_of(NAMED_PHASES)

MOST_LACKING = 0.1
"""Share of a rank's complete iterations that may lack device work; one may in any case."""


def choose_clock(tables: RunTables, requested: str) -> tuple[str, str]:
    """The clock to compare ranks on, and why.

    Args:
        requested: auto, gpu or host.

    Raises:
        UsageError: there is no such clock, or no device work to read it from.
    """
    if requested not in CLOCKS:
        raise UsageError(f"--clock {requested}", hint=f"one of {', '.join(CLOCKS)}")
    ranks = tables.ranks
    without = ranks.filter(~pl.col("has_device"))["rank"].to_list()
    if requested == "gpu" and without:
        record = advice(Record.DEVICE, recorder_of(tables.reports["kind"]))
        raise UsageError(
            f"--clock gpu: rank {without[0]} has no device work in its report",
            hint=f"{record}; or use --clock host",
        )
    if requested != "auto":
        return requested, "asked for"
    columns = ["rank", "iteration", "clock", "iteration_ns", *PHASE_COLUMNS]
    return auto_clock(
        ranks,
        lambda few: (
            tables.read("measures", columns, ranks=few, narrow=True),
            tables.iterations.filter(pl.col("rank").is_in(few)),
        ),
    )


def auto_clock(
    ranks: pl.DataFrame, rows: Callable[[list[int]], tuple[pl.DataFrame, pl.DataFrame]]
) -> tuple[str, str]:
    """The clock that `auto` takes, and why.

    Args:
        ranks: rank, has_device, clock_gpu.
        rows: gives MEASURES and RANK_ITERATIONS of some ranks.
    """
    without = ranks.filter(~pl.col("has_device"))["rank"].to_list()
    if without:
        many = "no rank has" if len(without) == ranks.height else f"rank {without[0]} lacks"
        return "host", f"{many} device work in its report"
    few = ranks.filter(~pl.col("clock_gpu"))["rank"].sort().to_list()
    if not few:
        return "gpu", "at least 90 % of the iterations have device work on every rank"
    counts = _counts(*rows(few))
    most = pl.max_horizontal(1, MOST_LACKING * pl.col("iterations"))
    lacking = pl.col("iterations") - pl.col("working")
    sparse = counts.filter((lacking > most) | (pl.col("working") <= lacking))
    for rank, iterations, working in sparse.iter_rows():
        return "host", (
            f"rank {rank} has device work of a phase in {working} of "
            f"{counted(iterations, 'iteration')}, "
            "fewer than 90 %"
        )
    return "gpu", (
        "at least 90 % of the complete iterations, or all but one, have device work on every rank"
    )


def _counts(measures: pl.DataFrame, iterations: pl.DataFrame) -> pl.DataFrame:
    """rank, iterations (complete ones), working (those with device work of a phase).

    A rank whose report names no phases has only `other`, which then counts.
    """
    rows = measures.with_columns(pl.col("rank", "iteration").cast(pl.Int64))
    named = pl.any_horizontal(pl.col(PHASE_COLUMNS).is_not_null()).any().over("rank")
    owned = pl.sum_horizontal(PHASE_COLUMNS) > 0
    known = pl.col("iteration_ns").is_not_null()
    working = rows.with_columns(works=known & (owned | ~named)).filter(clock="gpu").filter("works")
    complete = iterations.filter("complete")
    return (
        complete.select("rank", "iteration")
        .join(working.select("rank", "iteration", "works"), on=["rank", "iteration"], how="left")
        .group_by("rank")
        .agg(iterations=pl.len().cast(pl.Int64), working=pl.col("works").sum().cast(pl.Int64))
        .sort("rank")
    )
