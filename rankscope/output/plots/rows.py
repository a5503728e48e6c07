"""Ranks as rows of a picture: which to show, and brackets around those that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection

from rankscope.output.plots.style import SMALL, Theme, shown, text_width

MOST_ROWS = 24
"""More ranks than these are shown as a band over all, with only some as rows of their own."""

HIGHEST, LOWEST = 8, 4
"""Rows of their own at either end of many ranks."""

GAP = 0.7
"""Rows that a gap takes where ranks are left out."""

LEAST_HEIGHT = 0.14
"""Inches between two lines of small text."""

LONGEST_LABEL = 14
"""Letters of a host's or role's name."""

LABELS = 2.0
"""Inches that the names of rows take."""


@dataclass(frozen=True, slots=True)
class Row:
    """A rank and where its row is, downwards, in rows."""

    rank: int
    place: float
    skipped: int  # ranks left out above it


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows with the same name."""

    first: int
    last: int
    name: str


def chosen_rows(order: Sequence[int], keep: Sequence[int]) -> list[int]:
    """The ranks that get rows of their own: all, or both ends, the middle and `keep`.

    Args:
        order: all ranks, highest first.
        keep: those to show in any case; of many only the first ones.
    """
    if len(order) <= MOST_ROWS:
        return list(order)
    middle = order[len(order) // 2]
    wanted = {*order[:HIGHEST], *order[-LOWEST:], middle, *keep[:HIGHEST]}
    return [rank for rank in order if rank in wanted]


def spaced(order: Sequence[int], shown_ranks: Sequence[int]) -> list[Row]:
    """Rows for `shown_ranks`, with a gap where ranks of `order` between them are left out."""
    rows: list[Row] = []
    place, before = 0.0, -1
    for rank in shown_ranks:
        at = order.index(rank)
        skipped = at - before - 1
        place += GAP if skipped and rows else 0
        rows.append(Row(rank, place, skipped))
        place, before = place + 1, at
    return rows


def row_labels(
    axes: Axes,
    rows: Sequence[Row],
    groups: Sequence[str | None],
    accused: Sequence[int],
    theme: Theme,
) -> None:
    """Name the rows by rank and group, the accused ones in bold, and say what gaps leave out."""
    names = [
        f"rank {row.rank}" + ("" if group is None else f" · {shown(group, LONGEST_LABEL)}")
        for row, group in zip(rows, groups, strict=True)
    ]
    axes.set_yticks([row.place for row in rows], labels=names)
    axes.tick_params(axis="y", length=0)
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        if row.rank in accused:
            label.set(weight="bold", color=theme.ink)
        if row.skipped:
            axes.annotate(
                f"… {row.skipped:,} ranks between",
                (0, row.place - (1 + GAP) / 2),
                xytext=(-4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                va="center",
                size=SMALL - 1,
                color=theme.muted,
            )


def runs(names: Sequence[str | None]) -> list[Run]:
    """Neighbours with the same name; those without one are in none."""
    found = []
    for name, places in groupby(range(len(names)), key=lambda place: names[place]):
        members = list(places)
        if name is not None:
            found.append(Run(members[0], members[-1], name))
    return found


def bracket_width(groups: Sequence[Run]) -> float:
    """Inches that the brackets and names of groups take."""
    names = {shown(group.name, LONGEST_LABEL) for group in groups}
    return max(text_width(name, SMALL) for name in names) + 0.25


def heading(axes: Axes, text: str, points: float) -> None:
    """A word above the left edge of rows, its end so many points right of the edge."""
    axes.annotate(
        text, (0, 1), xytext=(points, 4), xycoords="axes fraction", textcoords="offset points",
        ha="right", va="bottom", size=SMALL,
    )  # fmt: skip


def bracket(axes: Axes, name: str, groups: Sequence[Run], row_height: float, theme: Theme) -> None:
    """Draw brackets for groups beside the rows.

    Args:
        axes: `bracket_width` wide, with the rows' y axis.
        name: what the groups are.
        groups: runs of rows.
        row_height: inches of a row.
        theme: colours.
    """
    axes.set_axis_off()
    wide = bracket_width(groups)
    axes.set_xlim(-wide, 0)
    heading(axes, name, 72 * wide - 8)
    room = 0.0
    lines = []
    for group in groups:
        low, high = group.first - 0.5, group.last + 0.5
        inset = min(0.12, 0.2 * (high - low))
        low, high = low + inset, high - inset
        lines.append([(-0.02, low), (-0.08, low), (-0.08, high), (-0.02, high)])
        middle = (low + high) / 2
        if middle * row_height - room < 0:
            continue
        room = middle * row_height + LEAST_HEIGHT
        axes.text(
            -0.12, middle, shown(group.name, LONGEST_LABEL), ha="right", va="center", size=SMALL,
            color=theme.ink,
        )  # fmt: skip
    axes.add_collection(
        LineCollection(lines, colors=theme.muted, linewidths=0.9, clip_on=False, joinstyle="miter"),
        autolim=False,
    )


def rank_ticks(axes: Axes, labels: Sequence[str], row_height: float) -> None:
    """Label the rows of `axes`, as many of them as there is room for."""
    step = next(
        size
        for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2**20)
        if size * row_height >= LEAST_HEIGHT
    )
    places = range(0, len(labels), step)
    axes.set_yticks(list(places), labels=[labels[place] for place in places])
