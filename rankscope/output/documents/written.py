"""The documents that say what was written: of `plot`, `report` and `export`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from rankscope.compare.comparison import Comparison
from rankscope.model.reports import RunWarning
from rankscope.output.documents.common import Answer, S, run_of
from rankscope.util.meaning import says


class Plot(Answer, kw_only=True, tag="rankscope/plot/1"):
    """A picture of a run."""

    kind: Annotated[str, says("the kind of the picture")]
    file: Annotated[str, says("the file of the picture")]
    title: Annotated[str, says("what was found: its title")]
    theme: Annotated[Literal["light", "dark"], says("its colours")]


class Report(Answer, kw_only=True, tag="rankscope/report/1"):
    """The page of a run."""

    output: Annotated[str, says("the file that was written")]
    bytes: Annotated[int, says("its size")]
    timeline: Annotated[bool, says("whether reports were there for a timeline")]


class Export(Answer, kw_only=True, tag="rankscope/export/1"):
    """A trace or a table of a run."""

    output: Annotated[str, says("the file that was written")]
    kind: Annotated[str, says("`trace`, or the name of the table")]
    rows: Annotated[int, says("its rows; of a trace: its events")]
    bytes: Annotated[int, says("its size")]
    ranks: Annotated[tuple[int, ...], says("the ranks in it")]
    iterations: Annotated[tuple[int, ...], says("the iterations in it")]


def written(
    shape: type[S],
    db: Path,
    comparison: Comparison,
    more: Iterable[RunWarning] = (),
    **facts: object,
) -> S:
    """The document of a file.

    Args:
        shape: its class.
        more: warnings beside those of the comparison.
        facts: its own keys.
    """
    warnings = (*comparison.warnings, *more)
    return shape(run=run_of(db, comparison.facts), warnings=warnings, **facts)
