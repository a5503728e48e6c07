"""Device activities of a slow rank beside the median rank: a pair of bars per activity."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from rankscope.compare.comparison import Comparison
from rankscope.judge.causes.excess import activity_excess
from rankscope.judge.causes.registry import findings_sentence
from rankscope.output.palette import Theme
from rankscope.output.plots.captions import footer, subtitle
from rankscope.output.plots.style import Caption, beside, drawable, legend_above, new_sheet
from rankscope.output.table_layout import middle_out
from rankscope.util.numbers import sampled
from rankscope.util.wording import counted, milliseconds, percent, span

KINDS = ("kernel", "graph", "copy", "set", "idle")
"""Kinds of activities of the device."""

MOST = 6
"""Most activities with bars."""

LEAST_OF_MOST = 0.05
"""Share of the largest excess below which an activity is left out."""

NAMES = {"idle": "idle", "set": "memory set"}
"""Kind of activity → the label that replaces its name."""

WIDTH, LABELS, PANEL = 10.0, 3.0, 6.5
"""Widths in inches: of the sheet, of the names, and of the bars."""

ROW = 0.5
"""Height of a pair of bars in inches."""

LONGEST_NAME = 34
"""Most characters of the name of an activity."""


def device_excess(
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


def draw(
    comparison: Comparison,
    rank: int,
    phase: str | None,
    iterations: list[int],
    activities: pl.DataFrame,
    theme: Theme,
) -> Figure:
    """The picture of the activities that `device_excess` returned."""
    height = ROW * max(activities.height, 2)
    where = "" if phase is None else f" in {phase}"
    title = _title(comparison, rank, iterations, activities)
    numbers = f"{counted(len(iterations), 'iteration')} ({span(tuple(iterations))})"
    content = f"device work{where} that takes longer than on the median rank: mean of {numbers}"
    sheet = new_sheet(
        WIDTH,
        0.45 + height + 0.3,
        Caption(title, subtitle(comparison, drawable(content, 200), title), footer(comparison)),
        theme,
    )
    axes = sheet.axes(LABELS, 0.45, PANEL, height)
    _bars(axes, rank, activities, theme)
    return sheet.figure


def _title(
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
    return drawable(f"Rank {rank}: {verb} {longer} ms longer than on the median rank", 140)


def _label(row: dict[str, object]) -> str:
    kind, name = str(row["kind"]), str(row["name"])
    return NAMES.get(kind, f"{kind} {name}".strip())


def _bars(axes: Axes, rank: int, activities: pl.DataFrame, theme: Theme) -> None:
    """Two bars per activity, the slow rank's above, and how much longer it is."""
    places = np.arange(activities.height, dtype=float)
    slow, usual = (activities[name].to_numpy() / 1e6 for name in ("total_ns", "usual_ns"))
    axes.barh(places - 0.19, slow, height=0.34, color=theme.late, gid="slow")
    axes.barh(places + 0.19, usual, height=0.34, color=theme.muted, gid="median")
    for place, longest, excess in zip(places, np.maximum(slow, usual), slow - usual, strict=True):
        beside(axes, f"+{milliseconds(excess * 1e6)}", (longest, place), (4, 0), color=theme.ink)
    names = [
        middle_out(drawable(_label(row), 400), LONGEST_NAME)
        for row in activities.iter_rows(named=True)
    ]
    axes.set_yticks(places, labels=names)
    axes.set_ylim(max(activities.height, 2) - 0.4, -0.6)
    axes.set_xlim(0, float(max(slow.max(), usual.max())) * 1.15 or 1)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_xlabel("time per iteration (ms)")
    slow_bars = Patch(label=f"rank {rank} (slow)", color=theme.late)
    legend_above(axes, [slow_bars, Patch(label="median rank", color=theme.muted)])
