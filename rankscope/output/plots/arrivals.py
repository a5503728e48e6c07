"""How late each rank arrives at the collectives, as distributions."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from rankscope.compare.comparison import Comparison
from rankscope.errors import UsageError
from rankscope.output.palette import THEMES, Theme
from rankscope.output.plots import PlotOptions
from rankscope.output.plots.captions import footer, subtitle
from rankscope.output.plots.rows import (
    LABELS,
    MOST_ROWS,
    Row,
    of_all_ranks,
    row_labels,
    selected_rows,
    spaced,
)
from rankscope.output.plots.style import SMALL, Caption, beside, new_sheet
from rankscope.sources.recorders import Record, advice, recorder_of
from rankscope.util.wording import MOST_LISTED, milliseconds, percent, ranks_text

WIDTH, PANEL = 10.0, 6.4
"""Widths in inches: of the sheet, and of the distributions."""

ROW, LEAST_HEIGHT, OVERVIEW = 0.3, 1.2, 1.9
"""Heights in inches: of a row, of the panel at least, and of the panel of all ranks."""

MOST_POINTS = 6_000
"""Most collectives that are all drawn as points; of more, only those beyond the 95th percentile."""

GOLDEN = 0.618034
"""Fractional part of the golden ratio: its multiples spread evenly, so points overlap little."""

TICKS = (0, 0.1, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5)
"""Positions of the ticks on a square-root axis, in ms."""


def lateness(comparison: Comparison) -> pl.DataFrame:
    """The delay of each rank behind the first rank, at each collective.

    A rank that arrives later waits less, so its delay is the longest wait at the collective minus
    its own wait. Waits are measured by duration or by arrival, whichever has the smaller error;
    by duration they need no common clock. See METHOD.md#waits. Only collectives that were matched
    on all ranks of their group, in the selected iterations, are included.

    Returns:
        A row per rank and collective: rank, iteration, instance (of the collective), late_ns.

    Raises:
        UsageError: no collective has counterparts on other ranks.
    """
    numbers = comparison.selection.numbers
    frame = (
        comparison.collectives(numbers)
        .part(numbers)
        .select(
            pl.col("rank", "iteration", "instance").cast(pl.Int64),
            late_ns=pl.col("wait").max().over("instance") - pl.col("wait"),
        )
    )
    if frame.is_empty():
        unlinked = not comparison.roles.links
        roles = "sends and receives whose ends do not tell the peers need --roles with pp="
        raise UsageError(
            "plot arrivals: no collective of this run has counterparts on other ranks",
            hint="; ".join(
                (
                    *(["ingest several ranks"] if comparison.tables.ranks.height == 1 else []),
                    advice(Record.COMMUNICATION, recorder_of(comparison.tables.reports["kind"])),
                    *([roles] * unlinked),
                )
            ),
        )
    return frame


def distributions(late: pl.DataFrame) -> pl.DataFrame:
    """Statistics of `lateness` per rank.

    Returns:
        A row per rank, the latest on average first: rank, count, mean_ns, p5_ns, p25_ns, p50_ns,
        p75_ns, p95_ns, max_ns.
    """
    value = pl.col("late_ns")
    return (
        late.group_by("rank")
        .agg(
            count=pl.len(),
            mean_ns=value.mean(),
            **{
                f"p{share}_ns": value.quantile(share / 100, "linear")
                for share in (5, 25, 50, 75, 95)
            },
            max_ns=value.max(),
        )
        .sort("mean_ns", "rank", descending=[True, False])
    )


def draw(comparison: Comparison, options: PlotOptions) -> Figure:
    """Box plots of lateness per rank in ms: quartiles, 5th and 95th percentile, single values.

    If there are many ranks, only the latest, the earliest, the middle and the picks have boxes,
    and bands below show all ranks.
    """
    late = lateness(comparison)
    frame = distributions(late)
    theme = THEMES[options.theme]
    order = frame["rank"].to_list()
    keep = [*dict(options.ranks), *comparison.verdict.named]
    chosen = [rank for rank in order if rank in options.only]
    rows = spaced(order, chosen or selected_rows(order, keep))
    many = len(order) > MOST_ROWS
    height = max((rows[-1].place + 1) * ROW, LEAST_HEIGHT)
    below = OVERVIEW + 0.8 if many else 0.0
    sheet = new_sheet(
        WIDTH,
        0.45 + below + height + 0.1,
        Caption(
            _title(comparison, frame),
            subtitle(
                comparison,
                "arrival of each rank at the collectives, after the first rank: quartiles, 5th and "
                "95th percentile, and single collectives",
            ),
            footer(comparison, *_notes(comparison, order)),
        ),
        theme,
    )
    axes = sheet.axes(LABELS, below + 0.45, PANEL, height)
    hosts = dict(comparison.tables.ranks.select("rank", "host").iter_rows())
    _boxes(axes, frame, late, rows, theme)
    row_labels(axes, rows, [hosts.get(row.rank) for row in rows], comparison.verdict.named, theme)
    _root_scale(axes, "x", frame["max_ns"].max())
    axes.set_xlabel("lateness (ms, square-root scale)")
    axes.grid(axis="x")
    _columns_of_numbers(axes, frame, rows, comparison, theme)
    if many:
        _overview(sheet.axes(LABELS, 0.35, PANEL, OVERVIEW), frame, theme)
    return sheet.figure


def _title(comparison: Comparison, frame: pl.DataFrame) -> str:
    """The rank that arrives latest on average, and the rank that most often arrives last.

    Where ranks have no report, or only send and receive, the last arrival is unknown. A rank that
    the verdict does not name, while it names others, may be late because of those, as a pipeline's
    stages are.
    """
    late = milliseconds(frame["mean_ns"][0])
    rank = frame["rank"][0]
    shares = dict(comparison.waits().select("rank", "last_arriver_share").iter_rows())
    if comparison.missing_ranks or not shares:
        return f"Rank {rank} arrives {late} ms after the first one on average; the last is unknown"
    most = max(shares, key=lambda each: shares[each] or 0.0)
    if not shares[most]:
        return f"No rank clearly arrives last: at most {late} ms after the first one on average"
    share, highest = percent(shares.get(rank)), percent(shares[most])
    other = "" if share == highest else f", rank {most} at {highest}"
    named = comparison.verdict.named
    waited = "; it may have waited itself" if named and rank not in named else ""
    return (
        f"Rank {rank} arrives {late} ms after the first one on average, last at {share} of the "
        f"collectives{other}{waited}"
    )


def _notes(comparison: Comparison, known: Sequence[int]) -> list[str]:
    unknown = sorted({*comparison.tables.ranks["rank"]} - {*known})
    notes = []
    if unknown:
        named = ranks_text(unknown, MOST_LISTED)
        notes.append(f"unknown for {named}: no collective matches those of other ranks")
    if comparison.missing_ranks:
        notes.append("after the first rank with a report: ranks without one may arrive earlier")
    return notes


def _boxes(
    axes: Axes, frame: pl.DataFrame, late: pl.DataFrame, rows: Sequence[Row], theme: Theme
) -> None:
    """Draw the quartiles, the 5th and 95th percentile and the single collectives of each row."""
    place_of = {row.rank: row.place for row in rows}
    shown = frame.filter(pl.col("rank").is_in([*place_of]))
    places = shown["rank"].replace_strict(place_of, return_dtype=pl.Float64).to_numpy()
    ms = {name: shown[f"{name}_ns"].to_numpy() / 1e6 for name in ("p5", "p25", "p50", "p75", "p95")}
    axes.hlines(places, ms["p5"], ms["p95"], color=theme.muted, linewidth=1)
    axes.barh(
        places, ms["p75"] - ms["p25"], left=ms["p25"], height=0.62, color=theme.faint,
        edgecolor=theme.muted, linewidth=0.8, gid="quartiles",
    )  # fmt: skip
    axes.vlines(ms["p50"], places - 0.31, places + 0.31, color=theme.ink, linewidth=1.6)
    points = late.filter(pl.col("rank").is_in([*place_of]))
    if points.height > MOST_POINTS:
        points = points.join(shown.select("rank", "p95_ns"), on="rank").filter(
            pl.col("late_ns") > pl.col("p95_ns")
        )
    off = (np.arange(points.height) * GOLDEN % 1 - 0.5) * 0.5
    axes.scatter(
        points["late_ns"].to_numpy() / 1e6,
        points["rank"].replace_strict(place_of, return_dtype=pl.Float64).to_numpy() + off,
        s=5, color=theme.late, alpha=0.45, linewidths=0, zorder=3, gid="collectives",
        rasterized=points.height > MOST_POINTS,
    )  # fmt: skip
    axes.set_ylim(rows[-1].place + 0.6, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(length=2, pad=2)


def _columns_of_numbers(
    axes: Axes, frame: pl.DataFrame, rows: Sequence[Row], comparison: Comparison, theme: Theme
) -> None:
    """Write the mean lateness, and how often the rank came last, beside its row."""
    means = dict(frame.select("rank", "mean_ns").iter_rows())
    shares = dict(comparison.waits().select("rank", "last_arriver_share").iter_rows())
    if comparison.missing_ranks:  # one of them may have come last
        shares = {}
    columns = (
        ("mean (ms)", [milliseconds(means[row.rank]) for row in rows]),
        ("came last", [percent(shares.get(row.rank)) for row in rows]),
    )
    for (name, cells), inches in zip(columns, (0.62, 1.3), strict=True):
        x = 1 + inches / PANEL
        above = {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        beside(axes, name, (x, 1), (0, 3), color=theme.muted, **above)
        for row, cell in zip(rows, cells, strict=True):
            axes.annotate(
                cell, (x, row.place), xycoords=("axes fraction", "data"), ha="right",
                va="center", size=SMALL + 0.5, annotation_clip=False,
            )  # fmt: skip


def _overview(axes: Axes, frame: pl.DataFrame, theme: Theme) -> None:
    """Draw bands of quantiles over all ranks, the latest on average first."""
    ms = {
        name: frame[f"{name}_ns"].to_numpy() / 1e6
        for name in ("p5", "p25", "p50", "p75", "p95", "max")
    }
    edges = np.arange(frame.height + 1)
    for low, high, color, name in (
        ("p5", "p95", theme.faint, "5 to 95 %"),
        ("p25", "p75", theme.muted, "quartiles"),
    ):
        axes.stairs(ms[high], edges, baseline=ms[low], fill=True, color=color, label=name)
    axes.stairs(ms["p50"], edges, baseline=None, color=theme.ink, linewidth=1.2, label="median")
    axes.scatter(edges[:-1] + 0.5, ms["max"], s=2, color=theme.late, linewidths=0, label="latest")
    _root_scale(axes, "y", frame["max_ns"].max())
    axes.set_ylabel("lateness (ms)")
    of_all_ranks(axes, frame.height, ("latest on average", "earliest"), "by mean lateness")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0, markerscale=2)


def _root_scale(axes: Axes, side: str, highest: object) -> None:
    """Set a square-root axis from 0, on which both typical and extreme values are visible."""
    top = float(highest) / 1e6 * 1.08 if isinstance(highest, int) and highest else 1.0
    scale, limits, axis = (
        (axes.set_xscale, axes.set_xlim, axes.xaxis)
        if side == "x"
        else (axes.set_yscale, axes.set_ylim, axes.yaxis)
    )
    scale("function", functions=(lambda x: np.sqrt(np.maximum(x, 0)), np.square))
    limits(0, top)
    ticks = [tick for tick in TICKS if tick == 0 or top / 400 <= tick <= top]
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_locator(NullLocator())
