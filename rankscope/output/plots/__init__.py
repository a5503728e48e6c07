"""Pictures of a comparison: one module per kind of plot; the modules do not import each other.

To add a kind, write a module with `draw(comparison, options) -> Figure` and add a row to `KINDS`.
The module draws with matplotlib's objects, without pyplot and global state. Its figure has the
verdict as its title (`captions.verdict_title`) unless it shows a single iteration, units in its
axis labels, and `captions.footer` below. matplotlib, whose import takes 1.5 s, is imported when the
first picture is drawn.
"""

from __future__ import annotations

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UsageError
from rankscope.output.palette import THEMES
from rankscope.util.atomic_io import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from rankscope.compare.comparison import Comparison

KINDS = {
    "heatmap": "ranks × iterations: excess over the median of the role",
    "phases": "phases of each rank's iteration; waiting is shown beside the work",
    "timeline": "the picked ranks in one iteration on one clock, with the last arrival",
    "arrivals": "how late each rank arrives at the collectives, as distributions",
    "why": "what the slow rank's device or training thread did, beside the median rank",
}
"""Name of each kind of plot → what it shows."""

PICKING = ("phases", "timeline", "arrivals")
"""Kinds that show the picked ranks."""

FORMATS = ("png", "svg", "pdf")
"""Formats of picture files, which are also the endings of their names."""

DOTS_PER_INCH = 150
"""Resolution of PNG files, and of images inside SVG and PDF files."""


class PlotOptions(Struct, frozen=True):
    """What a picture shows, and its theme. Each kind of plot uses the fields that concern it.

    Attributes:
        metric: the metric of a heat map; None: `work`, or the first known default.
        iteration: the number of the iteration of a timeline, or of the one to explain.
        ranks: ranks that are shown in any case, each with its label (the picks).
        theme: `light` or `dark`.
        only: the ranks to show, and no others except those that arrive last; empty: all.
    """

    metric: str | None = None
    iteration: int | None = None
    ranks: tuple[tuple[int, str], ...] = ()
    theme: str = "light"
    only: tuple[int, ...] = ()


def check_kind(kind: str) -> None:
    """Raise `UsageError` unless there is such a kind of plot."""
    if kind not in KINDS:
        raise UsageError(
            f"plot {kind}: there is no such kind",
            hint=f"one of {', '.join(KINDS)}; of many runs: rankscope fleet --html FILE",
        )


def draw(kind: str, comparison: Comparison, options: PlotOptions | None = None) -> Figure:
    """A matplotlib figure of one kind of plot, which can be changed before it is saved.

    Raises:
        UsageError: the kind or the theme does not exist, or there is nothing to draw.
    """
    options = options or PlotOptions()
    check_kind(kind)
    if options.theme not in THEMES:
        raise UsageError(
            f"--theme {options.theme}: there is no such theme", hint=f"one of {', '.join(THEMES)}"
        )
    from rankscope.output.plots.style import styled

    with styled(options.theme):
        module = import_module(f"rankscope.output.plots.{kind}")
        figure: Figure = module.draw(comparison, options)
        return figure


class Picture(Struct, frozen=True):
    """A picture, which a notebook shows; `os.fspath` of it is its file.

    Attributes:
        figure: matplotlib's figure, which can be changed before it is saved.
        theme: light or dark.
        path: the file; None if it was not written.
    """

    figure: Figure
    theme: str = "light"
    path: Path | None = None

    @property
    def title(self) -> str:
        """The title of the picture, on one line."""
        return " ".join(self.figure.get_suptitle().split())

    def save(self, path: str | Path) -> Picture:
        """Write the picture as PNG, SVG or PDF, and return it with its file.

        Raises:
            UsageError: the ending is not one of `FORMATS`, or the file cannot be written.
        """
        target = Path(path)
        write_whole(target, self._encoded(format_of(target)))
        return replace(self, path=target)

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError("this picture was not written: Picture.save(path)")
        return str(self.path)

    def __repr__(self) -> str:
        return f"<Picture {self.path or 'in memory'}: {self.title}>"

    def _repr_png_(self) -> bytes:
        """The picture as a notebook shows it."""
        return self._encoded("png")

    def _encoded(self, ending: str) -> bytes:
        """The content of a file of one of `FORMATS`."""
        from rankscope.output.plots.style import styled

        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
        content = BytesIO()
        with styled(self.theme):
            self.figure.savefig(
                content,
                format=ending,
                dpi=DOTS_PER_INCH,
                metadata={"Title": self.title, **dates.get(ending, {})},
            )
        return content.getvalue()


def format_of(path: Path) -> str:
    """The picture format that the ending of a file name selects.

    Raises:
        UsageError: the ending is not one of `FORMATS`.
    """
    ending = path.suffix.lower().removeprefix(".")
    if ending not in FORMATS:
        raise UsageError(
            f"-o {path}: pictures are written as .png, .svg or .pdf",
            hint=f"-o {path.with_suffix('.png') if path.name else 'picture.png'}",
        )
    return ending


def view_of(
    kind: str,
    comparison: Comparison,
    metric: str | None,
    iteration: int | None = None,
    theme: str = "light",
    ranks: Sequence[int] | None = None,
) -> PlotOptions:
    """The default content of a picture: the picked ranks, in their worst iteration.

    Args:
        metric: the metric of a heat map, or the one by which ranks are picked.
        iteration: that of a timeline, or the one to explain.

    Raises:
        UsageError: the metric does not exist, or the run lacks one of the ranks.
    """
    from rankscope.compare.picks import picks_of
    from rankscope.model.metrics import check_metrics
    from rankscope.util.rank_list import few

    comparison.check_ranks(ranks or ())
    few([] if iteration is None else [iteration], "iteration")
    if kind not in PICKING:
        check_metrics([] if metric is None else [metric])
        return PlotOptions(metric, iteration, theme=theme, only=tuple(ranks or ()))
    picks = picks_of(comparison, metric).picks
    several = comparison.tables.ranks.height > 1
    labels = {pick.rank: pick.title if several else "" for pick in picks}
    shown = [*labels] if ranks is None else [*dict.fromkeys(ranks)]
    return PlotOptions(
        metric=metric,
        iteration=picks[0].worst.iteration if iteration is None else iteration,
        ranks=tuple((rank, labels.get(rank, "")) for rank in shown),
        theme=theme,
        only=tuple(ranks or ()),
    )
