"""The output of `plot`, `report` and `export` about the file that they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rankscope_cli import console
from rankscope_cli.options import Format

if TYPE_CHECKING:
    from rankscope.api import Run
    from rankscope.compare.comparison import Comparison
    from rankscope.model.reports import RunWarning
    from rankscope.output.documents.common import Answer


class Written(Struct, frozen=True):
    """A file that was written.

    Attributes:
        shape: the class of its JSON document.
        title: of its table in Markdown.
        facts: keys of the document, and columns of the table.
        lines: the same facts in words.
        problems: warnings about it, besides those of the comparison.
    """

    shape: type[Answer]
    title: str
    facts: dict[str, object]
    lines: Sequence[str]
    problems: tuple[RunWarning, ...] = ()

    def show(
        self, run: Run, comparison: Comparison, output: Format, quiet: bool, verbose: bool
    ) -> None:
        """Print it, and the warnings about the comparison that it shows."""
        import polars as pl

        from rankscope.output.documents.written import written
        from rankscope.output.frame_table import frame_text
        from rankscope.output.text_tables import run_line

        if output is Format.JSON:
            console.write_document(
                written(self.shape, run.db, comparison, self.problems, **self.facts)
            )
            return
        console.warn_of_run(run, [*comparison.warnings, *self.problems], quiet, verbose)
        if output is Format.TABLE:
            for line in self.lines:
                console.write(line)
        else:
            frame = pl.DataFrame([self.facts])
            console.write(frame_text(frame, self.title, is_csv=output is Format.CSV))
        if verbose:
            console.say(f"rankscope: {run_line(comparison.facts)}")
