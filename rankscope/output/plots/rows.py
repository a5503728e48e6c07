"""Ranks as rows of a picture: their selection, their labels, and brackets around groups."""

from collections.abc import Sequence
from itertools import groupby

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from msgspec import Struct

from rankscope.output.palette import Theme
from rankscope.output.plots.style import SMALL, beside, drawable, text_width
from rankscope.util.wording import counted

MOST_ROWS = 24
"""Most ranks that all have rows; of more ranks some have rows, and a band shows all of them."""

HIGHEST, LOWEST = 8, 4
"""If there are more ranks than rows: the number of rows for the highest and the lowest ranks."""

GAP = 0.7
"""Height of the gap for left-out ranks, in rows."""

LEAST_HEIGHT = 0.14
"""Least distance between two lines of small text, in inches."""

LONGEST_LABEL = 14
"""Most characters of the name of a host or role."""

LABELS = 2.0
"""Width of the row labels, in inches."""


class Row(Struct, frozen=True):
    """A rank and the position of its row."""

    rank: int
    place: float  # rows from the top
    skipped: int  # number of ranks left out above it


class RowGroup(Struct, frozen=True):
    """Neighbouring rows of one host or role."""

    first: int
    last: int
    name: str


def selected_rows(order: Sequence[int], keep: Sequence[int]) -> list[int]:
    """The ranks that have rows: all, or both ends, the middle and `keep`.

    Args:
        order: all ranks, the highest value first.
        keep: ranks to show in any case; only the first `HIGHEST` of them count.
    """
    if len(order) <= MOST_ROWS:
        return list(order)
    middle = order[len(order) // 2]
    selected = {*order[:HIGHEST], *order[-LOWEST:], middle, *keep[:HIGHEST]}
    return [rank for rank in order if rank in selected]


def spaced(order: Sequence[int], shown_ranks: Sequence[int]) -> list[Row]:
    """Rows for `shown_ranks`, with a gap wherever ranks of `order` are left out between them."""
    rows: list[Row] = []
    place, before = 0.0, -1
    for rank in shown_ranks:
        index = order.index(rank)
        skipped = index - before - 1
        place += GAP if skipped and rows else 0
        rows.append(Row(rank, place, skipped))
        place, before = place + 1, index
    return rows


def row_labels(
    axes: Axes,
    rows: Sequence[Row],
    groups: Sequence[str | None],
    stragglers: Sequence[int],
    theme: Theme,
) -> None:
    """Label the rows with rank and group, stragglers in bold, and gaps with the ranks left out.

    Args:
        groups: the host or role of each row; None: unknown.
    """
    names = [
        f"rank {row.rank}" + ("" if group is None else f" · {drawable(group, LONGEST_LABEL)}")
        for row, group in zip(rows, groups, strict=True)
    ]
    axes.set_yticks([row.place for row in rows], labels=names)
    axes.tick_params(axis="y", length=0)
    for row, label in zip(rows, axes.get_yticklabels(), strict=True):
        if row.rank in stragglers:
            label.set(weight="bold", color=theme.ink)
        if row.skipped:
            beside(
                axes, f"… {counted(row.skipped, 'rank')} between",
                (0, row.place - (1 + GAP) / 2), (-4, 0), xycoords=("axes fraction", "data"),
                ha="right", size=SMALL - 1, color=theme.muted,
            )  # fmt: skip


def of_all_ranks(axes: Axes, count: int, ends: tuple[str, str], order: str) -> None:
    """Set the x axis of a panel of all ranks, and name its ends and the order."""
    axes.margins(x=0)
    axes.set_xticks([0, count], labels=ends)
    for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
        label.set(horizontalalignment=side)
    axes.set_xlabel(f"all {counted(count, 'rank')}, {order}", labelpad=-6)
    axes.tick_params(length=2, pad=2)


def row_groups(names: Sequence[str | None]) -> list[RowGroup]:
    """Groups of neighbouring rows with the same name; rows without a name are in no group."""
    groups = []
    for name, places in groupby(range(len(names)), key=lambda place: names[place]):
        members = list(places)
        if name is not None:
            groups.append(RowGroup(members[0], members[-1], name))
    return groups


def bracket_width(groups: Sequence[RowGroup]) -> float:
    """Width of the brackets and names of groups, in inches."""
    names = {drawable(group.name, LONGEST_LABEL) for group in groups}
    return max(text_width(name, SMALL) for name in names) + 0.25


def heading(axes: Axes, text: str, points: float) -> None:
    """Write a word above the left edge of the rows; it ends `points` to the right of the edge."""
    beside(axes, text, (0, 1), (points, 4), xycoords="axes fraction", ha="right", va="bottom")


def bracket(
    axes: Axes, name: str, groups: Sequence[RowGroup], row_height: float, theme: Theme
) -> None:
    """Draw brackets for groups beside the rows.

    Args:
        axes: axes of width `bracket_width`, with the y axis of the rows.
    """
    axes.set_axis_off()
    width = bracket_width(groups)
    axes.set_xlim(-width, 0)
    heading(axes, name, 72 * width - 8)
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
            -0.12, middle, drawable(group.name, LONGEST_LABEL), ha="right", va="center",
            size=SMALL, color=theme.ink,
        )  # fmt: skip
    axes.add_collection(
        LineCollection(lines, colors=theme.muted, linewidths=0.9, clip_on=False, joinstyle="miter"),
        autolim=False,
    )


def rank_ticks(axes: Axes, labels: Sequence[str], row_height: float) -> None:
    """Label as many rows of `axes` as there is room for; `row_height` is in inches."""
    step = next(
        size
        for size in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2**20)
        if size * row_height >= LEAST_HEIGHT
    )
    places = range(0, len(labels), step)
    axes.set_yticks(list(places), labels=[labels[place] for place in places])
