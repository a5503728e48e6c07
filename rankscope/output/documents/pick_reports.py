"""The document of `pick-reports`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import Picks
from rankscope.model.metrics import METRICS
from rankscope.model.reports import RunWarning
from rankscope.model.results import Window
from rankscope.output.documents.common import Answer, run_of, struct_of
from rankscope.util.meaning import says


class RankWindow(Window, frozen=True, kw_only=True):
    """Where to look in the report of a picked rank."""

    rank: Annotated[int, says("a picked rank")]


class Windows(Struct, kw_only=True):
    """Where to look in a report."""

    worst: Annotated[Window, says("the first of `looks`")]
    typical: Annotated[Window, says("the last of `looks`")]


class Pick(Struct, kw_only=True):
    """A report to open, and where to look in it."""

    label: Annotated[
        Literal["min", "median", "max", "slow", "leads"],
        says(
            "of none of the others: `slow` if the verdict names the rank (`culprit` in 0.1.0), "
            "`leads` if it names nobody, and the rank is in `leading`, a holder or a member"
        ),
    ]
    rank: Annotated[int, says("the rank")]
    report: Annotated[str, says("its report")]
    host: Annotated[str | None, says("its host")]
    pid: Annotated[int, says("its process")]
    value_ns: Annotated[int | UnsetType | None, says("its score of a time")] = UNSET
    value: Annotated[float | UnsetType | None, says("its score of another unit")] = UNSET
    slow: Annotated[bool, says("whether the verdict names the rank, whatever its label is")]
    windows: Annotated[Windows, says("where to look in its report")]


class Look(Struct, kw_only=True):
    """An iteration to look at, and why."""

    title: Annotated[
        str,
        says(
            "where to look and why, in words; the verdict's ranks come first, then those of "
            "`also`, then a typical iteration"
        ),
    ]
    ranks: Annotated[
        tuple[int, ...], says("who is slow or takes longest there; empty: nobody in particular")
    ]
    iterations: Annotated[tuple[int, ...], says("all iterations in which they do so")]
    windows: Annotated[tuple[RankWindow, ...], says("where it is in each picked report")]


class PickReports(Answer, kw_only=True, tag="rankscope/pick-reports/1"):
    """The reports to open side by side, and where to look in them."""

    metric: Annotated[str, says("the metric that ranks are picked by")]
    picks: Annotated[tuple[Pick, ...], says("the picked reports")]
    looks: Annotated[tuple[Look, ...], says("the iterations to look at")]
    command: Annotated[str | None, says("the shell line that opens the reports")]
    view: Annotated[str | None, says("the view document that was written")]
    rsync: Annotated[str | None, says("the shell line that fetches the copies of the reports")]
    total_bytes: Annotated[int, says("size of the picked reports")]


def pick_reports(
    db: Path | None,
    comparison: Comparison,
    problems: Iterable[RunWarning],
    picks: Picks,
    command: str | None,
    *,
    view: Path | None = None,
    rsync: str | None = None,
) -> PickReports:
    """The document of `pick-reports`."""
    key = METRICS[picks.metric].key("value")
    return PickReports(
        run=run_of(db, comparison.facts),
        warnings=tuple(problems),
        metric=picks.metric,
        picks=tuple(
            struct_of(
                Pick,
                each,
                report=str(each.report),
                windows=Windows(worst=each.worst, typical=each.typical),
                **{"value_ns": UNSET, "value": UNSET, key: each.value},
            )
            for each in picks.picks
        ),
        looks=tuple(
            struct_of(
                Look,
                look,
                windows=tuple(
                    struct_of(RankWindow, window, rank=pick.rank)
                    for pick, window in zip(picks.picks, look.windows, strict=True)
                ),
            )
            for look in picks.looks
        ),
        command=command,
        view=None if view is None else str(view),
        rsync=rsync,
        total_bytes=picks.total_bytes,
    )
