"""The documents that say what was written: of `plot`, `report` and `export`."""

from __future__ import annotations

from typing import Annotated, Literal

from rankscope.output.documents.common import Answer, says


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
