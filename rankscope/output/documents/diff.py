"""The document of `diff`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from rankscope.compare.comparison import Comparison
from rankscope.history.diff import compare, shifts
from rankscope.model.kinds import Clock
from rankscope.model.metrics import METRICS
from rankscope.model.reports import RunWarning
from rankscope.model.results import Verdict
from rankscope.output.documents.common import Answer, S, run_of, struct_of
from rankscope.util.meaning import says

Score = float | None | UnsetType


class Change(Struct, kw_only=True):
    """The mean of a metric over ranks, before and after."""

    metric: Annotated[str, says("the name of the metric")]
    before_ns: Annotated[Score, says("its score before, of a time")] = UNSET
    before: Annotated[Score, says("its score before, of another unit")] = UNSET
    after_ns: Annotated[Score, says("its score after, of a time")] = UNSET
    after: Annotated[Score, says("its score after, of another unit")] = UNSET
    change: Annotated[float | None, says("after / before - 1; null where there was nothing before")]
    low: Annotated[
        float | None,
        says(
            "lower end of the interval of the change, which holds for all rows at once in 98 of "
            "100 cases; null where nothing varies"
        ),
    ]
    high: Annotated[float | None, says("upper end of the interval of the change")]
    certain: Annotated[
        bool,
        says(
            "the interval does not include 0, and the change is at least 1 % of the iteration; "
            "never where the runs look like different jobs, or are too short"
        ),
    ]


class RankChange(Change, kw_only=True):
    """A metric of a rank, before and after."""

    rank: Annotated[int, says("the rank")]


class Verdicts(Struct, kw_only=True):
    """The verdicts of the runs."""

    before: Annotated[Verdict, says("as `verdict` of imbalance; of the latest run of a baseline")]
    after: Annotated[Verdict, says("as `verdict` of imbalance")]


class Earlier(Struct, kw_only=True):
    """A run of a baseline."""

    db: Annotated[str, says("the database of the run")]
    label: Annotated[str | None, says("what the run is, as `--label` of ingest said")]


class Diff(Answer, kw_only=True, tag="rankscope/diff/1"):
    """Which ranks and phases changed beyond noise; `run` is that of AFTER."""

    sentence: Annotated[str, says("the answer in words")]
    clock: Annotated[
        Clock, says("the clock of the numbers: `host` where the runs are on different clocks")
    ]
    metrics: Annotated[tuple[Change, ...], says("the changes of means over the ranks")]
    ranks: Annotated[tuple[RankChange, ...], says("the changes of each rank")]
    baseline: Annotated[
        tuple[Earlier, ...],
        says("the runs of a baseline, by start time; empty without one"),
    ]
    verdicts: Annotated[Verdicts, says("the verdicts of both runs")]


def diff(
    db: Path,
    after: Comparison,
    problems: Iterable[RunWarning],
    result: compare.RunDiff,
    before: Comparison,
) -> Diff:
    """The document of `diff`; `db` is the database of AFTER."""
    return struct_of(
        Diff,
        result,
        run=run_of(db, after.facts),
        warnings=tuple(problems),
        left_out=UNSET,
        metrics=tuple(_change(Change, each) for each in result.metrics),
        ranks=tuple(_change(RankChange, each) for each in result.ranks),
        baseline=tuple(Earlier(db=str(path), label=label) for path, label in result.baseline),
        verdicts=Verdicts(before=before.verdict, after=after.verdict),
    )


def _change(shape: type[S], change: shifts.Change) -> S:
    values: dict[str, object] = {}
    for name in ("before", "after"):
        key = METRICS[change.metric].key(name)
        values |= {name: UNSET, f"{name}_ns": UNSET, key: getattr(change, f"{name}_ns")}
    return struct_of(shape, change, **values)
