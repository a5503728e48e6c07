"""A page with everything about a run, in memory or as a file."""

from __future__ import annotations

from html import escape
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rankscope._version import __version__
from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import Picks
from rankscope.compare.timeline import timeline, with_last_to_arrive
from rankscope.errors import RankscopeError
from rankscope.output.html.lanes import ShownTimeline
from rankscope.output.html.page import render_page
from rankscope.output.html.page_text import Origin
from rankscope.util.atomic_io import write_whole

HEIGHT = 900
"""Height of a page inside a notebook, in pixels."""


class Page(Struct, frozen=True):
    """A page; `os.fspath` of it is its file.

    Attributes:
        content: the whole page.
        title: the verdict.
        path: the file; None if it was not written.
        no_timeline: the reason why there is no timeline; empty if there is one.
    """

    content: bytes
    title: str
    path: Path | None = None
    no_timeline: str = ""

    def save(self, path: Path) -> Page:
        """Write the page, and return it with its file."""
        write_whole(path, self.content)
        return replace(self, path=path)

    def __fspath__(self) -> str:
        if self.path is None:
            raise TypeError("this page was not written: Page.save(path)")
        return str(self.path)

    def __repr__(self) -> str:
        return f"<Page {self.path or 'in memory'}: {self.title}>"

    def _repr_html_(self) -> str:
        """The page in a frame, without access to the notebook around it."""
        return (
            f'<iframe sandbox="allow-scripts" width="100%" height="{HEIGHT}" '
            f'srcdoc="{escape(self.content.decode())}"></iframe>'
        )


def make_page(
    comparison: Comparison,
    picks: Picks,
    db: Path,
    target: Path,
    *,
    metric: str | None = None,
    ranks: str | None = None,
    is_served: bool = False,
) -> Page:
    """The page of a run.

    Args:
        db: its database.
        target: the file of the page.
        metric, ranks: the options that chose the picks, for the commands on the page.
        is_served: the page may ask its own server.
    """
    detail = _detail(comparison, picks)
    options = {"--metric": metric, "--ranks": ranks}
    picked = tuple(f"{option}={value}" for option, value in options.items() if value is not None)
    origin = Origin(db, target, f"rankscope {__version__}", picked, is_served)
    content = render_page(comparison, comparison.imbalance(), picks, detail, origin)
    return Page(content, comparison.verdict.sentence, None, detail.reason)


def _detail(comparison: Comparison, picks: Picks) -> ShownTimeline:
    """The timeline of the picked ranks and of those that arrive last, or why it is missing."""
    worst = [picks.picks[0].worst.iteration]
    ranks = with_last_to_arrive(comparison, [each.rank for each in picks.picks], worst)
    try:
        return ShownTimeline(timeline(comparison, ranks, worst))
    except RankscopeError as error:
        return ShownTimeline(None, error.message)
