"""The style of pictures: matplotlib's settings, and a sheet with title, subtitle and footer."""

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.patches import Patch
from msgspec import Struct

from rankscope.output.palette import THEMES, Theme, part_name
from rankscope.util.sanitize import sanitized

FONT = "DejaVu Sans"
"""The font of all text. It comes with matplotlib, so pictures look the same everywhere."""

MARGIN = 0.25
"""Inches between the edge of the sheet and everything on it."""

TITLE, SUBTITLE, BODY, SMALL = 13.0, 9.5, 9.0, 7.5
"""Sizes of text in points."""

LINE = 1.35
"""Height of a line, as a multiple of the text's size."""

HATCH = "/////"
"""Hatching of unknown cells and of time spent waiting."""

UNSPLIT_HATCH = "\\\\\\"
"""Hatching of communication that is not split into waiting and transfer."""

HATCHES = {"wait": HATCH, "exposed_communication": UNSPLIT_HATCH}
"""Hatching of parts of an iteration; the other parts are plain."""


def excess_colors(theme: Theme) -> LinearSegmentedColormap:
    """The diverging colour scale of excess."""
    return LinearSegmentedColormap.from_list("excess", theme.excess)


def part_look(part: str, theme: Theme) -> dict[str, Any]:
    """Colour and hatching of a part of an iteration, as arguments of a matplotlib patch."""
    color = theme.parts[part]
    hatch = HATCHES.get(part)
    if hatch is not None:
        return {"facecolor": color, "edgecolor": theme.muted, "hatch": hatch, "linewidth": 0.0}
    return {"facecolor": color, "edgecolor": theme.page, "linewidth": 0.5}


def legend_above(
    axes: Axes, handles: Sequence[Patch], columns: int | None = None, *, right: bool = False
) -> None:
    """A legend above a picture, on one line without `columns`.

    Args:
        right: the legend ends at the right edge, instead of beginning at the left one.
    """
    axes.legend(
        handles=handles,
        loc="lower right" if right else "lower left",
        bbox_to_anchor=(int(right), 1),
        ncols=columns or max(len(handles), 1),
        borderpad=0,
        borderaxespad=0.4,
        handlelength=1.1,
        handletextpad=0.4,
        columnspacing=1.0,
    )


def beside(
    axes: Axes, text: str, place: tuple[float, float], points: tuple[float, float], **look: Any
) -> None:
    """Write small text beside a place, at a distance in points."""
    whole: dict[str, Any] = {"size": SMALL, "va": "center"} | look
    axes.annotate(text, place, xytext=points, textcoords="offset points", **whole)


def parts_legend(
    axes: Axes,
    parts: Sequence[str],
    theme: Theme,
    columns: int | None = None,
    *,
    right: bool = False,
) -> None:
    """A legend of parts of an iteration; see `legend_above`."""
    handles = [Patch(label=part_name(part), **part_look(part, theme)) for part in parts]
    legend_above(axes, handles, columns, right=right)


@contextmanager
def styled(theme: str) -> Iterator[Theme]:
    """Apply matplotlib's settings for a theme within it; the user's settings are restored."""
    colors = THEMES[theme]
    with rc_context():
        rcdefaults()
        with rc_context(cast(Any, _settings(colors))):
            yield colors


def _settings(theme: Theme) -> dict[str, object]:
    inks = ("axes.labelcolor", "axes.titlecolor", "text.color", "legend.labelcolor")
    mutes = ("xtick.labelcolor", "ytick.labelcolor", "xtick.color", "ytick.color")
    return {
        "font.family": [FONT],
        "font.size": BODY,
        "text.parse_math": False,  # a `$` in the name of a host is a dollar sign
        "svg.fonttype": "none",  # text stays text: small, searchable, readable by screen readers
        "svg.hashsalt": "rankscope",  # equal pictures give equal files
        "pdf.fonttype": 42,
        "figure.facecolor": theme.page,
        "savefig.facecolor": theme.page,
        "axes.facecolor": theme.page,
        "axes.edgecolor": theme.faint,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": theme.faint,
        "grid.linewidth": 0.6,
        "hatch.linewidth": 0.6,
        "hatch.color": theme.muted,
        "legend.frameon": False,
        "legend.fontsize": SMALL + 0.5,
        "xtick.labelsize": SMALL + 0.5,
        "ytick.labelsize": SMALL + 0.5,
        "axes.labelsize": BODY - 0.5,
        **dict.fromkeys(inks, theme.ink),
        **dict.fromkeys(mutes, theme.muted),
    }


class Caption(Struct, frozen=True):
    """The texts of a picture."""

    title: str  # the finding
    subtitle: str  # the quantity drawn
    footer: str  # run, clock, iterations, ranks, missing data


class Sheet(Struct, frozen=True):
    """A figure with its caption, and room for axes between title and footer."""

    figure: Figure
    floor: float  # inches from the lower edge of the sheet to the body

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes inside the body; all arguments are inches from its lower left corner."""
        sheet_width, sheet_height = self.figure.get_size_inches()
        return self.figure.add_axes(
            (
                left / sheet_width,
                (bottom + self.floor) / sheet_height,
                width / sheet_width,
                height / sheet_height,
            )
        )

    def text(self, left: float, bottom: float, text: str) -> None:
        """Write a line of small text inside the body; the position is in inches."""
        sheet_width, sheet_height = self.figure.get_size_inches()
        self.figure.text(
            left / sheet_width, (bottom + self.floor) / sheet_height, text, size=BODY - 0.5
        )


def new_sheet(width: float, height: float, caption: Caption, theme: Theme) -> Sheet:
    """A sheet with its caption; the body is `width` by `height` inches."""
    title = _wrapped(caption.title, TITLE, width, "bold")
    subtitle = _wrapped(caption.subtitle, SUBTITLE, width)
    footer = _wrapped(caption.footer, SMALL, width)
    head = (len(title) * TITLE + len(subtitle) * SUBTITLE) * LINE / 72 + MARGIN + 0.25
    floor = len(footer) * SMALL * LINE / 72 + MARGIN + 0.1
    total = head + height + floor
    figure = Figure(figsize=(width, total))
    left = MARGIN / width
    figure.suptitle(
        "\n".join(title), x=left, y=1 - MARGIN / total, ha="left", va="top", size=TITLE,
        weight="bold", linespacing=LINE - 0.1,
    )  # fmt: skip
    below = MARGIN + (len(title) * TITLE * LINE + 2) / 72
    figure.text(
        left, 1 - below / total, "\n".join(subtitle), size=SUBTITLE, color=theme.muted, va="top"
    )
    figure.text(
        left, MARGIN * 0.7 / total, "\n".join(footer), size=SMALL, color=theme.muted, va="bottom"
    )
    return Sheet(figure, floor)


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Width of a line of text in inches."""
    font = _font(weight)
    font.set_size(size, 72)
    font.set_text(text)
    return float(font.get_width_height()[0]) / 64 / 72


def with_sign(value: float) -> str:
    """A difference as the label of a tick: `+1.5`, `0`."""
    return f"{value:+g}".replace("-", "−") if value else "0"


def signed_ms(milliseconds: float) -> str:
    """A difference in ms: `+1.50` below 10 ms, `+12.3` above."""
    return f"{milliseconds:+.{2 if abs(milliseconds) < 9.995 else 1}f}".replace("-", "−")


def drawable(text: str, longest: int = 80) -> str:
    """A name from a report, safe to draw, cut to `longest` characters.

    Control characters and characters that the font lacks become visible code points.
    """
    letters = _letters()
    written = "".join(
        char if ord(char) in letters else f"<U+{ord(char):04X}>"
        for char in sanitized(text, longest)
    )
    return written if len(written) <= longest else written[: longest - 1] + "…"


@cache
def _letters() -> frozenset[int]:
    """Code points of the characters that the font can draw."""
    return frozenset(_font("normal").get_charmap())


@cache
def _font(weight: str) -> FT2Font:
    return get_font(findfont(FontProperties(family=FONT, weight=weight)))


def _wrapped(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """`text` as lines that fit on a sheet `width` inches wide."""
    lines: list[str] = []
    for part in text.splitlines():
        letter = text_width(part, size, weight) / max(len(part), 1)
        fitting = max(20, int((width - 2 * MARGIN) * 0.97 / max(letter, 1e-3)))
        lines += textwrap.wrap(part, fitting)
    return lines or [""]
