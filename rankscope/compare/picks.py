"""The min / median / max reports to open side by side, and where to look in them.

See METHOD.md#picks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path

import polars as pl
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.compare.metric_table import lacks_phases
from rankscope.compare.report_files import ReportFiles, files_of
from rankscope.errors import UsageError
from rankscope.judge.levels import FEW
from rankscope.model.kinds import NAMED_PHASES
from rankscope.model.metrics import WAITS, check_metrics, column_of
from rankscope.model.results import Pick, Window
from rankscope.sources import formats
from rankscope.sources.moved import located
from rankscope.sources.report_format import Viewer
from rankscope.util import inline
from rankscope.util.wording import agreeing, ranks_text, span

GUI_BASE_BYTES, GUI_FACTOR = 500_000_000, 25
"""Memory of the Nsight Systems GUI: without a report, and per byte of report. See `gui_bytes`."""

MOST_PARTS = 8
"""Parts of a list of ranks or iterations in a title."""

ARRIVALS = "collective_wait"
"""The metric that picks late arrivals where whole captures are compared: they wait least."""

DEFAULT_METRICS = ("time_to_all_reduce", "work", "load", ARRIVALS)
"""Metrics to pick reports by; the first known one is used."""

AFTER_REDUCTION = ("optimizer", "other")
"""Phases that the time to the last gradient reduction lacks, in whole or in part."""

Rows = Callable[[list[int]], pl.DataFrame]
"""Gives the rows of some ranks."""

HAS_MORE = ("has more to do", "have more to do")
"""What is said of a rank that is given more work, and of several."""

SlowSet = tuple[tuple[int, ...], tuple[int, ...]]
"""Ranks, and the iterations in which they are slow together."""

Labels = list[tuple[str, int]]
"""Label and rank of each pick; a rank appears once."""


class Look(Struct, frozen=True):
    """An iteration to look at, and why.

    `ranks`: who is slow in it; empty for the worst and for the typical iteration. `iterations`: all
    in which they are slow. `windows`: where it is in each picked report, in the order of the picks.
    """

    title: str
    ranks: tuple[int, ...]
    iterations: tuple[int, ...]
    windows: tuple[Window, ...]

    @property
    def iteration(self) -> int:
        """The iteration to look at."""
        return self.windows[0].iteration


class Picks(Struct, frozen=True):
    """The reports to open, and the iterations to look at: those of the verdict come first."""

    metric: str
    picks: tuple[Pick, ...]
    looks: tuple[Look, ...]

    def _repr_html_(self) -> str:
        """The picks as a notebook shows them."""
        rows = (
            (each.label, each.rank, each.host, each.worst.iteration, each.report)
            for each in self.picks
        )
        return inline.table(("pick", "rank", "host", "worst iteration", "report"), rows)

    def nearby(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The iterations to look at, each with its neighbours, of those in `numbers`."""
        iterations = sorted(numbers)
        places = [iterations.index(each.iteration) for each in self.looks]
        near = {place + step for place in places for step in (-1, 0, 1)}
        return tuple(number for place, number in enumerate(iterations) if place in near)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files for the GUI, in the order of the picks: the first gives the time axis."""
        return tuple(dict.fromkeys(each.file for each in self.picks if each.file is not None))

    @property
    def unopenable(self) -> tuple[Path, ...]:
        """Picked reports without a file that a viewer opens."""
        return tuple(dict.fromkeys(each.report for each in self.picks if each.file is None))

    @property
    def in_browser(self) -> bool:
        """Whether they are traces, which the Nsight Systems GUI does not open."""
        return any(formats.of_report(file).viewer is Viewer.BROWSER for file in self.files)

    @property
    def late(self) -> str:
        """The label of the rank that the others may wait for."""
        return "min" if self.metric in WAITS else "max"

    @property
    def in_gui(self) -> bool:
        """Whether the Nsight Systems GUI opens all of them."""
        return bool(self.files) and not self.unopenable and not self.in_browser

    @property
    def total_bytes(self) -> int:
        """Size of `files`."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def gui_bytes(self) -> int:
        """Memory the GUI needs for them on one timeline, at least about.

        Measured on the 2022.4 and 2023.4 GUIs with reports of NVTX ranges of 7 to 114 MB: resident
        memory grows by 22 to 25 bytes a byte of report, on top of half a gigabyte.
        """
        return GUI_BASE_BYTES + GUI_FACTOR * self.total_bytes


def among(scores: pl.DataFrame, ranks: Container[int] | None) -> pl.DataFrame:
    """The scores of some ranks, or of all; raises `UsageError` if the run has none of them."""
    present = scores["rank"].to_list()
    selected = scores.filter([ranks is None or rank in ranks for rank in present])
    if selected.is_empty() and present:
        raise UsageError(
            "none of the given ranks is in this run", hint=f"it holds {ranks_text(present)}"
        )
    return selected


def picks_of(
    comparison: Comparison, metric: str | None, ranks: Container[int] | None = None
) -> Picks:
    """The reports to open.

    Args:
        metric: name; None: the first of `DEFAULT_METRICS` that is known.
        ranks: the ranks to pick from; None: all.
    """
    scores = among(comparison.scores, ranks)
    if metric is not None:
        check_metrics([metric])
    else:
        arrivals = len(comparison.selection.numbers) == 1 and lacks_phases(
            comparison.rows(NAMED_PHASES)
        )
        after = comparison.verdict.cause in AFTER_REDUCTION
        names = (ARRIVALS,) * arrivals + DEFAULT_METRICS[after:]
        metric = next(
            (name for name in names if scores[column_of(name)].is_not_null().any()), "iteration"
        )
    ranks_table, verdict = comparison.tables.ranks, comparison.verdict
    held = verdict.holders if len(verdict.holders) <= FEW else ()
    leads: list[SlowSet] = [((each.rank,), each.iterations) for each in held]
    if 0 < len(verdict.members) < scores.height:  # one communicator of several
        leads = [(verdict.members[:FEW], verdict.iterations)]
    return pick(
        scores,
        lambda ranks: comparison.rows([*dict.fromkeys((metric, "iteration", "load"))], ranks),
        lambda ranks: comparison.tables.read("iterations", ranks=ranks),
        {rank: (host, pid) for rank, host, pid in ranks_table.select("rank", "host", "pid").rows()},
        files_of(ranks_table, comparison.tables.reports),
        comparison.scope.utc_starts,
        metric,
        verdict.slow_sets,
        verdict.sets_with_more_work,
        Counter(comparison.rows(["iteration"], flags=True).filter("flagged")["iteration"]),
        leads if leads or verdict.leading is None else [(verdict.leading.ranks, ())],
        comparison.tables.database,
        comparison.roles.of,
        verdict.iterations,
    )


def pick(
    ranked: pl.DataFrame,
    rows_of: Rows,
    views_of: Rows,
    processes: dict[int, tuple[str | None, int]],
    files: dict[int, ReportFiles],
    utc_starts: dict[int, int | None],
    metric: str,
    slow: Sequence[SlowSet],
    given_more: Collection[tuple[int, ...]],
    flagged: Counter[int],
    leads: Sequence[SlowSet] = (),
    database: Path | None = None,
    roles: Mapping[int, str] | None = None,
    affected: tuple[int, ...] = (),
) -> Picks:
    """Lowest, nearest to the median, highest score; then slow ranks that are none of the three.

    The three are in the role of the first slow one. Ranks that lead are picked where none is slow.
    The iterations to look at are one of each slow set of ranks, and a typical one, if there are
    several; all in one window of the profiler's schedule, which is one file of each rank.

    Args:
        ranked: rank and `<metric>_ns`, each rank's score.
        rows_of: gives rank, iteration, iteration_ns, load_ns and `<metric>_ns` of some ranks in the
            selected iterations.
        views_of: gives RANK_ITERATIONS of some ranks.
        processes: rank → host and pid.
        files: rank → the files of its report.
        utc_starts: rank → UTC of its report's time 0.
        metric: what to rank by.
        slow: the sets of ranks that the verdict names; those that cost most first.
        given_more: those of these sets of ranks that are given more work.
        flagged: iteration → how many ranks are flagged in it.
        leads: the ranks that lead, or hold most of the cost, where the verdict names none.
        database: the database, in whose folder moved reports are looked for.
        roles: rank → role.
        affected: the iterations that the verdict names; empty: it is about all.

    Raises:
        UsageError: no rank has the metric.
    """
    column = column_of(metric)
    values = dict(ranked.select("rank", column).drop_nulls().sort(column, "rank").iter_rows())
    if not values:
        raise UsageError(
            f"--metric {metric}: unknown on every rank of this run",
            hint="rankscope imbalance shows which metrics there are",
        )
    slow, leads = (
        [
            (known, when)
            for ranks, when in sets
            if (known := tuple(rank for rank in ranks if rank in values))
        ]
        for sets in (slow, leads)
    )
    named, leading = (
        tuple(dict.fromkeys(rank for ranks, _ in sets for rank in ranks))
        for sets in (slow, () if slow else leads)
    )
    at_fault = {rank for ranks, _ in slow if ranks not in given_more for rank in ranks}
    slow_ranks, role = named or leading, (roles or {}).get
    peers = [rank for rank in values for one in slow_ranks[:1] if role(rank) == role(one)]
    beside = {*peers}.difference(slow_ranks)
    labelled = _low_median_high(peers if beside else [*values], values, slow_ranks)
    three = {rank for _, rank in labelled}
    more = [rank for rank in slow_ranks if rank not in three]
    labelled += [("slow" if named else "leads", rank) for rank in more]
    picked = [rank for _, rank in labelled]
    rows, seen = rows_of(picked), views_of(picked)
    lengths = {
        each[:2]: each[2] for each in rows.select("rank", "iteration", "iteration_ns").rows()
    }
    own = seen.filter(pl.col("rank") == picked[0])
    alone = _where_nobody_else_is(slow or leads)
    rows, place = _in_one_file(rows, column, alone, own, files[picked[0]])
    begins = {rank: files[rank].starts_ns[place] for rank in picked}
    axes = _Axes(seen, lengths, utc_starts, begins)
    looks = _looks(rows, column, slow, leads, given_more, axes, flagged, affected)
    reports = {rank: located(files[rank].paths[place], database) for rank in picked}
    return Picks(
        metric,
        tuple(
            Pick(
                label=label,
                rank=rank,
                report=reports[rank],
                file=openable_report(reports[rank]),
                host=processes[rank][0],
                pid=processes[rank][1],
                value=values[rank],
                worst=looks[0].windows[at],
                typical=looks[-1].windows[at],
                slow=rank in named,
                has_more=rank in named and rank not in at_fault,
                leads=rank in leading,
            )
            for at, (label, rank) in enumerate(labelled)
        ),
        tuple(looks),
    )


def _looks(
    rows: pl.DataFrame,
    column: str,
    slow: Sequence[SlowSet],
    leads: Sequence[SlowSet],
    given_more: Collection[tuple[int, ...]],
    axes: _Axes,
    flagged: Counter[int],
    affected: tuple[int, ...],
) -> list[Look]:
    """The iterations to look at: one of each slow set of ranks, and a typical one.

    `rows` has rank, iteration, load_ns and `<metric>_ns` of the picked ranks.
    """
    per = _per_iteration(rows, column)
    iterations = {*rows["iteration"]}
    verbs = ("is slow", "are slow") if slow else ("takes longest", "take longest")
    sets = slow or leads
    present = [
        (ranks, tuple(number for number in when if number in iterations)) for ranks, when in sets
    ]
    looks = [
        Look(
            _title(ranks, when, iteration, HAS_MORE if ranks in given_more else verbs),
            ranks,
            when,
            axes.windows(iteration),
        )
        for (ranks, when), (_, best) in zip(sets, _where_nobody_else_is(present), strict=True)
        if (iteration := _slowest(rows, column, ranks, best)) is not None
    ]
    if not looks:
        inside = per.filter(pl.col("iteration").is_in([*affected]))
        worst = _worst(per if inside.is_empty() else inside)
        where = "Where they differ most" if rows["rank"].n_unique() > 1 else "The longest one"
        looks.append(Look(f"{where}: iteration {worst}", (), (worst,), axes.windows(worst)))
    if rows["iteration"].n_unique() > 1:
        named = {number for _, when in slow for number in when} if slow else {*affected}
        marked = flagged + Counter(named)
        typical = _typical(per, marked, [each.iteration for each in looks])
        title = f"A typical iteration: {typical}"
        looks.append(Look(title, (), (typical,), axes.windows(typical)))
    return looks


def _where_nobody_else_is(slow: Sequence[SlowSet]) -> list[SlowSet]:
    """Each slow set with the iterations in which no other set is slow; with all, if there are none.

    Beside a rank that stalls, one that is always a little slow is not seen.
    """
    counts = Counter(number for _, when in slow for number in when)
    return [(ranks, tuple(n for n in when if counts[n] == 1) or when) for ranks, when in slow]


def _in_one_file(
    rows: pl.DataFrame,
    column: str,
    slow: Sequence[SlowSet],
    views: pl.DataFrame,
    files: ReportFiles,
) -> tuple[pl.DataFrame, int]:
    """The rows of the iterations that one file of each rank holds, and which of its files it is.

    It is the file with the iteration in which those that cost most are slowest, else the worst.

    Args:
        rows: as in `_looks`.
        slow: ranks and the iterations to choose from; those that cost most first.
        views, files: RANK_ITERATIONS and files of one of the picked ranks.
    """
    slowest = (_slowest(rows, column, ranks, when) for ranks, when in slow)
    anchor = next(
        (each for each in slowest if each is not None), _worst(_per_iteration(rows, column))
    )
    held_in = {
        iteration: files.at(start)
        for iteration, start in views.select("iteration", "start_ns").iter_rows()
    }
    place = held_in[anchor]
    return rows.filter([held_in.get(each) == place for each in rows["iteration"]]), place


def _title(
    ranks: tuple[int, ...], when: tuple[int, ...], iteration: int, verbs: tuple[str, str]
) -> str:
    """The title of an iteration in which ranks do what `verbs` say, of one rank and of several."""
    others = [number for number in when if number != iteration]
    also = f" (also {span(others, MOST_PARTS)})" if others else ""
    who = f"{ranks_text(ranks, MOST_PARTS)} {agreeing(len(ranks), *verbs)}"
    return f"Where {who}: iteration {iteration}{also}"


def _slowest(
    rows: pl.DataFrame, column: str, ranks: tuple[int, ...], iterations: tuple[int, ...]
) -> int | None:
    """The iteration in which `ranks` exceed the others most; None without values.

    One in which their load is unknown, as in the first of a report, is taken only if no other is.
    """
    is_slow = pl.col("rank").is_in(ranks)
    per = (
        rows.filter(pl.col("iteration").is_in(iterations))
        .group_by("iteration")
        .agg(
            pl.col("load_ns").filter(is_slow).null_count().alias("unknown"),
            more=pl.col(column).filter(is_slow).mean()
            - pl.col(column).filter(~is_slow).median().fill_null(0),
        )
        .drop_nulls()
        .sort("unknown", "more", "iteration", descending=[False, True, False])
    )
    return None if per.is_empty() else int(per["iteration"][0])


def openable_report(report: Path) -> Path | None:
    """The file that a viewer opens: the report itself, or another form of it that exists."""
    return next((path for _, path in formats.forms(report) if path.exists()), None)


def _low_median_high(order: list[int], values: Mapping[int, int], slow: Collection[int]) -> Labels:
    """The three picks of the ranks in `order`, which is by score, then rank; fewer of few ranks.

    No slow rank is the median one: slow ranks are looked at beside it.
    """
    lowest, *others = order
    if not others:
        return [("min", lowest)]
    highest = min(rank for rank in others if values[rank] == values[others[-1]])
    median = values[order[(len(order) - 1) // 2]]
    between = [rank for rank in others if rank != highest and rank not in slow]
    nearest = sorted(between, key=lambda rank: (abs(values[rank] - median), rank))[:1]
    return [("min", lowest), *(("median", rank) for rank in nearest), ("max", highest)]


def _per_iteration(wide: pl.DataFrame, column: str) -> pl.DataFrame:
    """iteration, its spread between ranks (of a single rank, the value), and how unusual it is."""

    def unlike(name: str) -> pl.Expr:
        return (pl.col(name) - pl.col(name).median().over("rank")).abs()

    known = wide.drop_nulls(column)
    least = 0 if known["rank"].n_unique() == 1 else pl.col(column).min()
    return (
        known.with_columns(off=pl.sum_horizontal(unlike(column), unlike("iteration_ns")))
        .group_by("iteration")
        .agg(spread=pl.col(column).max() - least, off=pl.col("off").sum())
    )


def _worst(per: pl.DataFrame) -> int:
    """The iteration with the largest spread."""
    return int(per.sort("spread", "iteration", descending=[True, False])["iteration"][0])


def _typical(per: pl.DataFrame, marked: Counter[int], shown: list[int]) -> int:
    """The iteration with the fewest slow ranks that is most like the rest, and not shown anyway."""
    others = per.filter(~pl.col("iteration").is_in(shown))
    usual = others if others.height else per
    marks = pl.Series("marks", [marked[number] for number in usual["iteration"]])
    return int(usual.with_columns(marks).sort("marks", "off", "iteration")["iteration"][0])


class _Axes(Struct, frozen=True):
    """The axes of the picked reports.

    Attributes:
        views: RANK_ITERATIONS of the picked ranks.
        lengths: (rank, iteration) → its measured length, ns; null: unknown.
        utc_starts: rank → UTC of its report's time 0.
        begins: picked rank → where its file starts on its axis, ns; the first one first.
    """

    views: pl.DataFrame
    lengths: dict[tuple[int, int], int | None]
    utc_starts: dict[int, int | None]
    begins: dict[int, int]

    def windows(self, iteration: int) -> tuple[Window, ...]:
        """Where an iteration is in each picked report."""
        return tuple(self._window(rank, iteration) for rank in self.begins)

    def _window(self, rank: int, iteration: int) -> Window:
        """Where an iteration is in a rank's file: from the end of the iteration before it.

        What is between the ranges of two iterations, often loading, belongs to the later one. So
        does what the host does in the earlier range after the last work of the device.
        """
        own = self.views.filter((pl.col("rank") == rank) & (pl.col("iteration") <= iteration))
        own = own.sort("iteration").tail(2)
        start, end = int(own["view_start_ns"][-1]), int(own["view_end_ns"][-1])
        if own.height > 1 and own["iteration"][0] == iteration - 1:
            length = self.lengths.get((rank, iteration)) or 0
            start = min(start, int(own["view_end_ns"][0]), end - length)
        first, begin = next(iter(self.begins)), self.begins[rank]
        own_start, first_start = self.utc_starts.get(rank), self.utc_starts.get(first)
        shift = (
            None
            if own_start is None or first_start is None
            else own_start - first_start - self.begins[first]
        )
        return Window(
            iteration=iteration,
            start_ns=start - begin,
            end_ns=end - begin,
            shared_start_ns=None if shift is None else start + shift,
            shared_end_ns=None if shift is None else end + shift,
        )
