"""Two runs compared, as text tables."""

from __future__ import annotations

from dataclasses import asdict

import polars as pl

from rankscope.compare.diff.compare import largest_first
from rankscope.compare.diff.shifts import Change
from rankscope.model.metrics import METRICS
from rankscope.output.quantities import UNKNOWN, in_unit, signed_percent
from rankscope.output.table_layout import Table


def changes_frame(changes: tuple[Change, ...]) -> pl.DataFrame:
    """Changes as a frame with a column per field of `Change`; rank is null for means over ranks."""
    return pl.DataFrame([asdict(each) for each in changes], infer_schema_length=None)


def changes_table(changes: tuple[Change, ...]) -> Table:
    """Each metric of two runs, before and after."""
    return Table(
        title="Before and after (mean over ranks, ms)",
        columns=("metric", "before", "after", "change", "95 % interval", "certain"),
        numeric=frozenset(("before", "after", "change", "95 % interval")),
        drop_first=("95 % interval",),
        notes=(("certain", _certain_note(changes)),),
        rows=tuple(
            (_named(each), *_before_after(each)) for each in changes if each.before_ns is not None
        ),
    )


def movers_table(changes: tuple[Change, ...], every: bool) -> Table:
    """The ranks and metrics that certainly changed, the largest change first.

    Args:
        changes: changes of single ranks.
        every: show all changes.
    """
    moved = [each for each in changes if each.before_ns is not None and (every or each.certain)]
    moved.sort(key=largest_first)
    return Table(
        title="Ranks that changed" if moved else "No rank changed beyond noise",
        columns=("rank", "metric", "before", "after", "change", "95 % interval", "certain"),
        numeric=frozenset(("rank", "before", "after", "change", "95 % interval")),
        drop_first=("95 % interval",),
        rows=tuple((str(each.rank), _named(each), *_before_after(each)) for each in moved),
    )


def _certain_note(changes: tuple[Change, ...]) -> str:
    """The meaning of the column `certain`."""
    only_times = all(METRICS[each.metric].is_time for each in changes)
    other = "" if only_times else "; for a metric that is not a time, of the metric"
    return f"beyond noise and 1 % of the iteration{other}"


def _named(change: Change) -> str:
    """The metric of a change, with its unit unless it is a time."""
    metric = METRICS[change.metric]
    return metric.name if metric.is_time else f"{metric.name} ({metric.unit})"


def _before_after(each: Change) -> tuple[str, ...]:
    certainly = f"{signed_percent(each.low)} to {signed_percent(each.high)}"
    unit = METRICS[each.metric].unit
    return (
        in_unit(each.before_ns, unit),
        in_unit(each.after_ns, unit),
        signed_percent(each.change),
        UNKNOWN if each.low is None else certainly,
        "yes" if each.certain else "no",
    )
