"""Comparisons → pictures: one module a kind, each knowing no other.

A kind's module has `draw(analysis, view) -> Figure`: it takes frames from the analysis, brings
them into the form that is drawn, and draws them with matplotlib's objects (no pyplot, no global
state). A new kind is a module and a row of `KINDS`. matplotlib loads when a picture is drawn.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from rankscope.errors import UsageError
from rankscope.output.plots.options import View
from rankscope.util.atomic_io import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rankscope.compare.comparison import Analysis

__all__ = ["FORMATS", "KINDS", "PICKING", "THEMES", "View", "draw", "format_of", "save", "title_of"]

KINDS = {
    "heatmap": "ranks × iterations: how much longer than the role's median each one took",
    "phases": "what each rank's iteration is made of, waiting apart from work",
    "timeline": "the picked ranks in one iteration, on one clock, and who arrives late",
    "arrivals": "how late each rank comes to the collectives, as distributions",
}
"""Name → what it shows."""

PICKING = ("phases", "timeline", "arrivals")
"""Kinds that show the picked ranks."""

FORMATS = ("png", "svg", "pdf")

THEMES = ("light", "dark")

DOTS_PER_INCH = 150


class Kind(Protocol):
    """What a kind's module offers."""

    def draw(self, analysis: Analysis, view: View) -> Figure: ...


def draw(kind: str, analysis: Analysis, view: View | None = None) -> Figure:
    """A matplotlib figure of one kind, to be saved or worked on.

    Args:
        kind: one of `KINDS`.
        analysis: the run and the way of looking at it.
        view: what of it to draw, and how.

    Raises:
        UsageError: an unknown kind or theme, or nothing to draw.
    """
    view = view or View()
    if kind not in KINDS:
        raise UsageError(f"plot {kind}: there is no such kind", hint=f"one of {', '.join(KINDS)}")
    if view.theme not in THEMES:
        raise UsageError(f"--theme {view.theme}", hint=f"one of {', '.join(THEMES)}")
    from rankscope.output.plots.style import styled

    module = cast(Kind, import_module(f"rankscope.output.plots.{kind}"))
    with styled(view.theme):
        return module.draw(analysis, view)


def save(figure: Figure, path: Path, theme: str = "light") -> None:
    """Write a figure as PNG, SVG or PDF, by the name of the file.

    Raises:
        UsageError: another ending, or a file that cannot be written.
    """
    from rankscope.output.plots.style import styled

    ending = format_of(path)
    dates: dict[str, dict[str, str | None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    about = {"Title": title_of(figure), **dates.get(ending, {})}
    content = BytesIO()
    with styled(theme):
        figure.savefig(content, format=ending, dpi=DOTS_PER_INCH, metadata=about)
    write_whole(path, content.getvalue())


def title_of(figure: Figure) -> str:
    """What a figure says, in one line."""
    return " ".join(figure.get_suptitle().split())


def format_of(path: Path) -> str:
    """The format that a file's name asks for.

    Raises:
        UsageError: none of `FORMATS`.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(
            f"-o {path}: pictures are written as .png, .svg or .pdf",
            hint=f"-o {path.with_suffix('.png') if path.name else 'picture.png'}",
        )
    return ending
