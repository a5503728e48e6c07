"""Why a rank is slow: the work of its device or training thread, beside that of the median rank."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.compare.thread_states import median_peers, thread_states, work_excess
from rankscope.errors import UsageError
from rankscope.judge.causes.excess import activity_excess
from rankscope.judge.causes.registry import findings_sentence
from rankscope.model.kinds import PARTS, PHASES, HostState
from rankscope.model.results import Verdict
from rankscope.output.palette import STATE_COLORS, STATE_NAMES, THEMES, Theme
from rankscope.output.plots import PlotOptions
from rankscope.output.plots.captions import footer, subtitle
from rankscope.output.plots.style import (
    HATCH,
    SMALL,
    Caption,
    beside,
    drawable,
    legend_above,
    new_sheet,
    text_width,
)
from rankscope.output.table_layout import middle_out
from rankscope.sources.recorders import Record, advice, recorder_of
from rankscope.util.numbers import sampled
from rankscope.util.wording import counted, milliseconds, percent, span

WIDTH, LABELS, PANEL = 10.0, 2.3, 7.2
"""Widths in inches: of the sheet, of the row labels, and of the bars."""

ROW, GAP = 0.42, 0.5
"""Height of a row in inches, and of the gap between the two iterations in rows."""


KINDS = ("kernel", "graph", "copy", "set", "idle")
"""Kinds of activities of the device."""

MOST = 6
"""Most activities with bars."""

LEAST_OF_MOST = 0.05
"""Share of the largest excess below which an activity is left out."""

NAMES = {"idle": "idle", "set": "memory set"}
"""Kind of activity → the label that replaces its name."""

NAMES_WIDTH, PAIRS_WIDTH, PAIR = 3.0, 6.5, 0.5
"""In inches: widths of the names and of the bars, and height of a pair of bars."""

LONGEST_NAME = 34
"""Most characters of the name of an activity."""


class ThreadBar(Struct, frozen=True):
    """States of a rank's training thread in an iteration."""

    rank: int
    iteration: int
    label: str  # what the verdict says of the rank, or `median`
    parts: pl.DataFrame  # state, name, total_ns, in the order of the bar


def draw(comparison: Comparison, options: PlotOptions) -> Figure:
    """The cause of a slow rank: bars of device work, or of states of training threads, in ms.

    If the device explains the rank, a pair of bars for each activity shows it beside the median
    rank. Else there are stacked bars of two training threads in two iterations.

    The first rank is the slow one (or the first of `options.only`), the other the median rank of
    its role in that iteration. The upper two bars are the iteration with the largest excess (or
    `options.iteration`), the lower two the median one of those in which the rank is not slow.

    Raises:
        UsageError: the verdict names no rank, or no report records what threads or devices did.
    """
    rank, phase = _subject(comparison, options)
    theme = THEMES[options.theme]
    numbers = _slow_iterations(comparison, rank, options.iteration)
    on_device = _device_excess(comparison, rank, phase, numbers)
    if _device_explains(comparison, rank, phase, numbers, on_device):
        return _draw_device(comparison, rank, phase, numbers, on_device, theme)
    worst, typical = _iterations(comparison, rank, options.iteration)
    phases = [*PARTS] if phase is None else [phase]
    bars = [
        ThreadBar(
            shown_rank,
            iteration,
            label,
            thread_states(comparison, [shown_rank], [iteration], phases),
        )
        for iteration in dict.fromkeys((worst, typical))
        for shown_rank, label in (
            (rank, _mark(comparison.verdict, rank)),
            (_median_rank(comparison, rank, iteration), "median"),
        )
    ]
    known = pl.col("state") != HostState.UNKNOWN
    unknown = next((bar.rank for bar in bars if bar.parts.filter(known).is_empty()), None)
    if unknown is not None:
        raise UsageError(
            f"plot why: the report of rank {unknown} does not say what its threads did",
            hint=advice(Record.HOST, recorder_of(comparison.tables.reports["kind"])),
        )
    shown = "an iteration" if phase is None else f"{phase} of an iteration"
    title = _title(bars[0], bars[1])
    height = (len(bars) + GAP) * ROW + 0.2
    sheet = new_sheet(
        WIDTH,
        0.45 + height + 0.25,
        Caption(
            title,
            subtitle(
                comparison,
                f"what the training thread did in {shown}: iteration {worst} is the worst, "
                f"{typical} a typical one",
                title,
            ),
            footer(comparison),
        ),
        theme,
    )
    _bars(sheet.axes(LABELS, 0.45, PANEL, height), bars, theme)
    return sheet.figure


def _bars(axes: Axes, bars: list[ThreadBar], theme: Theme) -> None:
    """Draw a stacked bar per thread and iteration, with a gap between the two iterations."""
    longest = max(float(bar.parts["total_ns"].sum()) for bar in bars) / 1e6
    axes.set_xlim(0, longest * 1.02 or 1)
    places = [place + (GAP if place > 1 else 0) for place in range(len(bars))]
    for place, bar in zip(places, bars, strict=True):
        _stack(axes, place, bar.parts, PANEL / (longest * 1.02 or 1), theme)
    labels = [f"{_marked(bar.rank, bar.label)} · iteration {bar.iteration}" for bar in bars]
    axes.set_yticks(places, labels=labels)
    for label, bar in zip(axes.get_yticklabels(), bars, strict=True):
        if bar.rank == bars[0].rank:
            label.set(weight="bold", color=theme.ink)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    _bare(axes, "time of the training thread (ms)")
    states = {state for bar in bars for state in bar.parts["state"]}
    names = {state: name for state, name in STATE_NAMES.items() if state in states}
    handles = [Patch(label=name, **_look(state, theme)) for state, name in names.items()]
    legend_above(axes, handles)


def _bare(axes: Axes, label: str) -> None:
    """Horizontal bars on a grid, with the label of their length."""
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel(label)


def _mark(verdict: Verdict, rank: int) -> str:
    """`slow` or `more work` by the verdict; else nothing, as the user may choose any rank."""
    blamed = {
        each
        for ranks, _ in verdict.slow_sets
        if ranks not in verdict.sets_with_more_work
        for each in ranks
    }
    return "slow" if rank in blamed else "more work" * (rank in verdict.named)


def _marked(rank: int, mark: str) -> str:
    return f"rank {rank} ({mark})" if mark else f"rank {rank}"


def _slow_iterations(comparison: Comparison, rank: int, wanted: int | None) -> list[int]:
    """The iterations in which a rank is slow, by the verdict; else all."""
    numbers = comparison.selection.numbers
    if wanted is not None:
        return [wanted] if wanted in numbers else []
    sets = comparison.verdict.slow_sets
    return sorted(next((iterations for ranks, iterations in sets if rank in ranks), numbers))


def _device_explains(
    comparison: Comparison,
    rank: int,
    phase: str | None,
    numbers: list[int],
    on_device: pl.DataFrame,
) -> bool:
    """Whether the device, and not the training thread, explains why a rank is slow."""
    if on_device.is_empty():
        return False
    findings = [each for each in comparison.verdict.findings if rank in each.ranks]
    if findings:
        return findings[0].activity not in ("host", "range")
    phases = [*PARTS] if phase is None else [phase]
    states = thread_states(comparison, [rank], numbers, phases)
    known = states.filter(pl.col("state") != HostState.UNKNOWN)
    return known["total_ns"].sum() < on_device["excess_total_ns"].sum() * len(numbers)


def _subject(comparison: Comparison, options: PlotOptions) -> tuple[int, str | None]:
    """The rank to explain, and the phase of its excess; None: all phases."""
    verdict = comparison.verdict
    ranks = options.only or verdict.named
    if not ranks:
        raise UsageError(
            "plot why: the verdict names no rank", hint="--ranks N shows the thread of a rank"
        )
    also = next((each for each in verdict.also if ranks[0] in each.ranks), None)
    finding = verdict if ranks[0] in verdict.ranks else also
    cause = None if finding is None else finding.cause
    return ranks[0], cause if cause in PHASES else None


def _iterations(comparison: Comparison, rank: int, wanted: int | None) -> tuple[int, int]:
    """The iteration to explain, and a typical one of the rank."""
    excesses = work_excess(comparison).filter(pl.col("rank") == rank).drop_nulls("excess")
    if wanted is not None and wanted not in excesses["iteration"]:
        raise UsageError(
            f"--iteration-number {wanted}: rank {rank} has no such iteration",
            hint=f"one of {excesses['iteration'][0]} to {excesses['iteration'][-1]}",
        )
    verdict = comparison.verdict
    slow = {*verdict.iterations} if rank in verdict.ranks else set[int]()
    slow |= {i for each in verdict.also if rank in each.ranks for i in each.iterations}
    slow_rows = excesses.filter(pl.col("iteration").is_in([*slow]))
    worst = (slow_rows if slow_rows.height else excesses).sort("excess", descending=True)[
        "iteration"
    ][0]
    not_slow = excesses.filter(~pl.col("iteration").is_in([*slow]))
    others = (not_slow if not_slow.height else excesses).sort("value", "iteration")["iteration"]
    return int(wanted if wanted is not None else worst), int(others[(len(others) - 1) // 2])


def _median_rank(comparison: Comparison, rank: int, iteration: int) -> int:
    """The lower median of the other ranks of the role in an iteration."""
    cell = pl.DataFrame({"rank": [rank], "iteration": [iteration]})
    peers = median_peers(work_excess(comparison), cell)
    if peers.is_empty():
        raise UsageError(
            f"plot why: no other rank does the work of rank {rank} in iteration {iteration}",
            hint="rankscope plot phases shows the rank alone",
        )
    return int(peers["peer"][0])


def _title(slow: ThreadBar, median: ThreadBar) -> str:
    """The title: the state with the largest excess of the slow rank over the median rank."""
    both = slow.parts.join(median.parts, on=["state", "name"], how="left", suffix="_median")
    more = both.with_columns(more=pl.col("total_ns") - pl.col("total_ns_median").fill_null(0)).sort(
        "more", descending=True
    )
    state, name, excess = more.select("state", "name", "more").row(0)
    where = f"Rank {slow.rank} in iteration {slow.iteration}"
    if excess <= 0:
        return f"{where}: nothing takes its thread longer than that of rank {median.rank}"
    longer = f"{milliseconds(excess)} ms longer than rank {median.rank}"
    if state == HostState.UNKNOWN:
        return f"{where}: {longer}, and nothing recorded what its thread did"
    what = STATE_NAMES[HostState(state)].replace("a call", f"{name}" if name else "a call")
    inside = f" in {name}" if name and HostState(state) is not HostState.BLOCKED else ""
    return drawable(f"{where}: {what}{inside} {longer}", 140)


def _look(state: HostState, theme: Theme) -> dict[str, Any]:
    if state is HostState.UNKNOWN:
        return {"facecolor": theme.page, "edgecolor": theme.muted, "hatch": HATCH, "linewidth": 0.5}
    return {"facecolor": STATE_COLORS[state], "edgecolor": theme.page, "linewidth": 0.8}


def _stack(axes: Axes, place: float, parts: pl.DataFrame, inch: float, theme: Theme) -> None:
    """Draw a bar, with the names of its parts where they fit."""
    lengths = parts["total_ns"].to_numpy() / 1e6
    left = np.concatenate(([0.0], np.cumsum(lengths)[:-1]))
    for start, length, state, name in zip(
        left, lengths, parts["state"], parts["name"], strict=True
    ):
        axes.barh(
            place, length, left=start, height=0.78, gid=state, **_look(HostState(state), theme)
        )
        text = drawable(f"{name} {milliseconds(length * 1e6)}".strip(), 40)
        if text_width(text, SMALL) < length * inch - 0.08:
            axes.text(
                start + length / 2,
                place,
                text,
                ha="center",
                va="center",
                size=SMALL,
                color=theme.ink if state == HostState.UNKNOWN else "#14171C",
            )


def _device_excess(
    comparison: Comparison, rank: int, phase: str | None, iterations: list[int]
) -> pl.DataFrame:
    """Device activities of a rank that take longer than usual in its role, the longest first.

    Args:
        phase: the phase of the activities; None: all phases.
        iterations: the iterations to average over; of many, an even sample is used.

    Returns:
        kind, name, total_ns, usual_ns (the lower median of the role), excess_total_ns: means per
        iteration; at most `MOST` rows, all of positive excess.
    """
    chosen = sampled(iterations)
    rows = comparison.tables.read("activities", iterations=chosen)
    rows = rows.filter(pl.col("kind").is_in(KINDS))
    slow = pl.DataFrame({"iteration": chosen}, schema={"iteration": pl.Int64})
    slow = slow.with_columns(rank=pl.lit(rank, pl.Int64))
    amounts = ("total_ns", "usual_ns", "excess_total_ns")
    excess = activity_excess(rows, comparison.roles.of, slow, phase)
    return (
        excess.select("kind", "name", pl.col(amounts) / len(chosen))
        .filter(pl.col("excess_total_ns") > LEAST_OF_MOST * pl.col("excess_total_ns").max())
        .filter(pl.col("excess_total_ns") > 0)
        .sort("excess_total_ns", "kind", "name", descending=[True, False, False])
        .head(MOST)
    )


def _draw_device(
    comparison: Comparison,
    rank: int,
    phase: str | None,
    iterations: list[int],
    activities: pl.DataFrame,
    theme: Theme,
) -> Figure:
    """The picture of the activities that `_device_excess` returned."""
    height = PAIR * max(activities.height, 2)
    where = "" if phase is None else f" in {phase}"
    title = _device_title(comparison, rank, iterations, activities)
    numbers = f"{counted(len(iterations), 'iteration')} ({span(tuple(iterations))})"
    content = f"device work{where} that takes longer than on the median rank: mean of {numbers}"
    sheet = new_sheet(
        WIDTH,
        0.45 + height + 0.3,
        Caption(title, subtitle(comparison, drawable(content, 200), title), footer(comparison)),
        theme,
    )
    axes = sheet.axes(NAMES_WIDTH, 0.45, PAIRS_WIDTH, height)
    _pairs(axes, _marked(rank, _mark(comparison.verdict, rank)), activities, theme)
    return sheet.figure


def _device_title(
    comparison: Comparison, rank: int, iterations: list[int], activities: pl.DataFrame
) -> str:
    """The causes in the verdict, if it is about this rank only; else the activity with most excess.

    Several kernels count as one activity.
    """
    verdict = comparison.verdict
    if verdict.ranks == (rank,) and verdict.findings and [*verdict.iterations] == iterations:
        return drawable(f"Rank {rank}: {findings_sentence(verdict.findings)}", 140)
    first = activities.row(0, named=True)
    kernels = activities.filter(pl.col("kind") == "kernel")
    main = kernels.filter(pl.col("excess_total_ns") >= first["excess_total_ns"] / 4)
    if first["kind"] == "kernel" and main.height > 1:
        excess, usual = (float(main[name].sum()) for name in ("excess_total_ns", "usual_ns"))
        more = f" or {percent(excess / usual)}" if usual else ""
        return (
            f"Rank {rank}: {counted(main.height, 'kernel')} take {milliseconds(excess)} ms{more} "
            "longer than on the median rank"
        )
    verb = "its device idles" if first["kind"] == "idle" else f"{_label(first)} takes"
    longer = milliseconds(first["excess_total_ns"])
    return f"Rank {rank}: {verb} {longer} ms longer than on the median rank"


def _label(row: dict[str, object]) -> str:
    kind, name = str(row["kind"]), str(row["name"])
    return middle_out(drawable(NAMES.get(kind, f"{kind} {name}".strip()), 400), LONGEST_NAME)


def _pairs(axes: Axes, name: str, activities: pl.DataFrame, theme: Theme) -> None:
    """Two bars per activity, the slow rank's above, and how much longer it is."""
    places = np.arange(activities.height, dtype=float)
    slow, usual = (activities[name].to_numpy() / 1e6 for name in ("total_ns", "usual_ns"))
    axes.barh(places - 0.19, slow, height=0.34, color=theme.late, gid="slow")
    axes.barh(places + 0.19, usual, height=0.34, color=theme.muted, gid="median")
    for place, longest, excess in zip(places, np.maximum(slow, usual), slow - usual, strict=True):
        beside(axes, f"+{milliseconds(excess * 1e6)}", (longest, place), (4, 0), color=theme.ink)
    axes.set_yticks(places, labels=[*map(_label, activities.iter_rows(named=True))])
    axes.set_ylim(max(activities.height, 2) - 0.4, -0.6)
    axes.set_xlim(0, float(max(slow.max(), usual.max())) * 1.15 or 1)
    _bare(axes, "time per iteration (ms)")
    shown = Patch(label=name, color=theme.late)
    legend_above(axes, [shown, Patch(label="median rank", color=theme.muted)])
