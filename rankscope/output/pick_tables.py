"""Picked reports, and where to look in them, as text tables."""

from __future__ import annotations

from rankscope.compare.picks import Moment, Picks
from rankscope.model.metrics import METRICS
from rankscope.output.columns import names_in
from rankscope.output.quantities import UNKNOWN, in_unit, seconds, short_path, shown_unit
from rankscope.output.table_layout import Table
from rankscope.util.sanitize import sanitized


def picks_table(picks: Picks) -> Table:
    """A row per pick: the rank, its host, pid, value and report."""
    unit = METRICS[picks.metric].unit
    unit_shown = shown_unit(unit)
    return Table(
        title=f"Reports to open side by side, picked by {picks.metric} ({unit_shown})",
        columns=("pick", "rank", "host", "pid", unit_shown, "report"),
        numeric=frozenset(("rank", "pid", unit_shown)),
        drop_first=("pid", "host"),
        shorten=names_in(["host", "report"]),
        rows=tuple(
            (
                each.title,
                str(each.rank),
                UNKNOWN if each.host is None else sanitized(each.host, 40),
                str(each.pid),
                in_unit(each.value, unit),
                short_path(each.report),
            )
            for each in picks.picks
        ),
    )


def windows_table(picks: Picks, look: Moment) -> Table:
    """Where to look in the picked reports, on their own axes and on the shared one.

    The axis of a timeline of several reports is that of the first report.

    Args:
        picks: the picks.
        look: the iteration.
    """
    shared = f"on one timeline (axis of rank {picks.picks[0].rank})"
    return Table(
        title=look.title,
        columns=("rank", "in its own report", shared),
        numeric=frozenset(("rank",)),
        drop_first=(shared,),
        rows=tuple(
            (
                str(each.rank),
                _interval(moment.start_ns, moment.end_ns),
                UNKNOWN
                if moment.shared_start_ns is None or moment.shared_end_ns is None
                else _interval(moment.shared_start_ns, moment.shared_end_ns),
            )
            for each, moment in zip(picks.picks, look.windows, strict=True)
        ),
    )


def _interval(start_ns: int, end_ns: int) -> str:
    return f"{seconds(start_ns)} – {seconds(end_ns)}"
