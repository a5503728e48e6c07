"""Two runs compared, as text tables."""

import polars as pl
from msgspec.structs import asdict, replace

from rankscope.history.diff.compare import is_phase, largest_first
from rankscope.history.diff.shifts import Change
from rankscope.model.metrics import METRICS
from rankscope.output.quantities import in_unit
from rankscope.output.table_layout import Table
from rankscope.util.wording import UNKNOWN, interval, relative


def changes_frame(changes: tuple[Change, ...]) -> pl.DataFrame:
    """Changes as a frame with a column per field of `Change`; rank is null for means over ranks."""
    return pl.DataFrame([asdict(each) for each in changes], infer_schema_length=None)


def changes_table(changes: tuple[Change, ...], clock: str = "", judged: bool = True) -> Table:
    """Each metric of two runs, before and after.

    Args:
        judged: whether changes can be certain; else there are no intervals.
    """
    on_clock = f", {clock} clock" if clock else ""
    known = [each for each in changes if each.before_ns is not None]
    table = replace(
        _table(known, judged),
        title=f"Before and after (mean over ranks, ms{on_clock})",
        notes=(("change", "×2.0 is twice"), ("certain", _certain_note(changes))),
    )
    return table.without(frozenset(("rank",)))


def movers_table(changes: tuple[Change, ...], show_all: bool, judged: bool = True) -> Table:
    """The ranks and metrics that certainly changed, phases and the largest change first.

    Args:
        judged: whether changes can be certain; else there are no intervals.
    """
    moved = [each for each in changes if each.before_ns is not None and (show_all or each.certain)]
    moved.sort(key=lambda each: (not is_phase(each), largest_first(each)))
    title = "Ranks that changed" if moved else "No rank changed beyond noise"
    if not judged:
        title = "By rank" if moved else "Changes of ranks are not judged"
    largest = tuple(range(len(moved)))
    return replace(_table(moved, judged), title=title, most_relevant=largest)


def _table(changes: list[Change], judged: bool) -> Table:
    """A row per change, without a title."""
    table = Table(
        title="",
        columns=("rank", "metric", "before", "after", "change", "interval", "certain"),
        numeric=frozenset(("rank", "before", "after", "change", "interval")),
        drop_first=("interval",),
        rows=tuple(
            (str(each.rank), METRICS[each.metric].with_unit, *_before_after(each))
            for each in changes
        ),
    )
    return table if judged else table.without(frozenset(("interval", "certain")))


def _certain_note(changes: tuple[Change, ...]) -> str:
    """The meaning of the column `certain`."""
    only_times = all(METRICS[each.metric].is_time for each in changes)
    other = "" if only_times else "; for a metric that is not a time, of the metric"
    return f"the interval is beyond 0, and the change at least 1 % of the iteration{other}"


def _before_after(each: Change) -> tuple[str, ...]:
    unit = METRICS[each.metric].unit
    return (
        in_unit(each.before_ns, unit),
        in_unit(each.after_ns, unit),
        relative(each.change),
        UNKNOWN if each.low is None or each.high is None else interval(each.low, each.high),
        "yes" if each.certain else "no",
    )
