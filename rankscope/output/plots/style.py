"""How pictures look: colours for light and dark pages, and a page with title and footer.

Phases have the colours of Okabe and Ito, which people with any of the usual kinds of colour
blindness tell apart; excess runs from blue (less) over the page's colour to orange (more).
Waiting is hatched: it is time in which nothing is done.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from matplotlib import rc_context, rcdefaults
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import FT2Font

from rankscope.util.sanitize import sanitized

FONT = "DejaVu Sans"
"""Comes with matplotlib, so that a picture looks the same everywhere."""

MARGIN = 0.25
"""Inches around everything."""

TITLE, SUBTITLE, BODY, SMALL = 13.0, 9.5, 9.0, 7.5
"""Sizes of text in points."""

LINE = 1.35
"""Height of a line as a share of the text's size."""

HATCH = "/////"
"""For what is not there: unknown cells, and time spent waiting."""

PHASE_COLORS = {
    "load": "#E69F00",
    "forward": "#0072B2",
    "backward": "#56B4E9",
    "optimizer": "#009E73",
    "other": "#8C8C8C",
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one kind of page."""

    page: str
    ink: str
    muted: str
    faint: str
    wait: str
    transfer: str
    late: str
    excess: tuple[str, ...]  # least to most

    @property
    def map(self) -> LinearSegmentedColormap:
        """The diverging scale of excess."""
        return LinearSegmentedColormap.from_list("excess", self.excess)

    @property
    def parts(self) -> dict[str, str]:
        """Colour of each part of an iteration, in the order they are stacked."""
        return {
            **PHASE_COLORS,
            "wait": self.wait,
            "transfer": self.transfer,
            "exposed_communication": self.transfer,
        }


THEMES = {
    "light": Theme(
        page="#FFFFFF", ink="#1B1F24", muted="#57606A", faint="#D5DAE0", wait="#E3E6EA",
        transfer="#CC79A7", late="#D55E00",
        excess=("#08306B", "#3F8FC5", "#A9CFE5", "#F4F4F2", "#F6B26B", "#DD6B20", "#8A2D04"),
    ),
    "dark": Theme(
        page="#14171C", ink="#E8EBEF", muted="#A3ACB8", faint="#3A424D", wait="#343B45",
        transfer="#CC79A7", late="#FF8A3D",
        excess=("#A8D4FF", "#4A9BE0", "#2A5F8F", "#22272E", "#9A5420", "#E8853A", "#FFD0A3"),
    ),
}  # fmt: skip


@contextmanager
def styled(theme: str) -> Iterator[Theme]:
    """matplotlib set for one theme, whatever the user's own settings are."""
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
        "text.parse_math": False,  # a `$` in a host's name is a dollar
        "svg.fonttype": "none",  # text stays text: small, searchable, read aloud
        "svg.hashsalt": "rankscope",  # the same picture is the same file
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


@dataclass(frozen=True, slots=True)
class Caption:
    """What a picture says in words."""

    title: str  # the finding
    subtitle: str  # what is drawn
    footer: str  # run, clock, iterations, ranks, what is missing


@dataclass(frozen=True, slots=True)
class Page:
    """A figure with its words on it, and room for axes between them."""

    figure: Figure
    floor: float  # inches from the lower edge to the body

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes at a place of the body, all in inches from its lower left corner."""
        wide, high = self.figure.get_size_inches()
        return self.figure.add_axes(
            (left / wide, (bottom + self.floor) / high, width / wide, height / high)
        )

    def text(self, left: float, bottom: float, text: str) -> None:
        """A line of small text at a place of the body."""
        wide, high = self.figure.get_size_inches()
        self.figure.text(left / wide, (bottom + self.floor) / high, text, size=BODY - 0.5)


def page(width: float, height: float, caption: Caption, theme: Theme) -> Page:
    """A page whose body is `width` by `height` inches, as high as its words need."""
    title = _lines(caption.title, TITLE, width, "bold")
    subtitle = _lines(caption.subtitle, SUBTITLE, width)
    footer = _lines(caption.footer, SMALL, width)
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
    return Page(figure, floor)


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Inches that a line of text takes."""
    font = _font(weight)
    font.set_size(size, 72)
    font.set_text(text)
    return float(font.get_width_height()[0]) / 64 / 72


def with_sign(value: float) -> str:
    """`+1.5`, `0`: a difference on an axis."""
    return f"{value:+g}".replace("-", "−") if value else "0"


def signed_ms(milliseconds: float) -> str:
    """`+1.50`, `+12.3`: a difference in ms, with the digits that matter."""
    return f"{milliseconds:+.{2 if abs(milliseconds) < 9.995 else 1}f}".replace("-", "−")


def shown(text: str, longest: int = 80) -> str:
    """A name that came from a report, as far as the font can show it.

    Control characters, and what the font has no letters for, become visible code points.
    """
    letters = _letters()
    written = "".join(
        char if ord(char) in letters else f"<U+{ord(char):04X}>"
        for char in sanitized(text, longest)
    )
    return written if len(written) <= longest else written[: longest - 1] + "…"


@cache
def _letters() -> frozenset[int]:
    """Code points that the font can draw."""
    return frozenset(_font("normal").get_charmap())


@cache
def _font(weight: str) -> FT2Font:
    return get_font(findfont(FontProperties(family=FONT, weight=weight)))


def _lines(text: str, size: float, width: float, weight: str = "normal") -> list[str]:
    """`text` in lines that fit a page of so many inches."""
    found: list[str] = []
    for part in text.splitlines():
        letter = text_width(part, size, weight) / max(len(part), 1)
        fitting = max(20, int((width - 2 * MARGIN) * 0.97 / max(letter, 1e-3)))
        found += textwrap.wrap(part, fitting)
    return found or [""]
