"""Checks of the rows that workers of a cluster send back: another program may have sent them."""

from contextlib import closing

import polars as pl

from rankscope.errors import RankscopeError, ToolError
from rankscope.ingestion.workers import Results
from rankscope.model.columns import out_of_bounds
from rankscope.model.reports import RankRows, ReportFile, ReportRows
from rankscope.model.tables import PER_RANK, TABLES


def received(results: Results) -> Results:
    """Reports with their rows or errors; anything else becomes an error of the worker."""
    with closing(results):
        for file, result in results:
            yield file, result if isinstance(result, RankscopeError) else _checked(file, result)


def _checked(file: ReportFile, rows: object) -> ReportRows | ToolError:
    """The rows of a report, or the error of a worker that sent something else."""
    try:
        wrong = _foreign(file, rows)
    except (AttributeError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError) as error:
        wrong = type(error).__name__
    if wrong is None and isinstance(rows, ReportRows):
        return rows
    return ToolError(
        f"{file.path}: a worker sent something else than its rows ({wrong})",
        hint="install the same rankscope on all workers, or read the reports here: --jobs 1",
    )


def _foreign(file: ReportFile, rows: object) -> str | None:
    """The fault of something that should be the rows of a report."""
    if not isinstance(rows, ReportRows):
        return f"a {type(rows).__name__}"
    if rows.file.path != file.path:
        return f"rows of {rows.file.path}"
    parts = ((part, name) for part in rows.ranks for name in PER_RANK)
    return next((wrong for part, name in parts if (wrong := _wrong(part, name))), None)


def _wrong(part: RankRows, name: str) -> str | None:
    """The fault of a rank's rows of a table."""
    frame, described = getattr(part, name), TABLES[name]
    if {**frame.schema} != {**described.schema}:
        return f"columns of {name}"
    if frame.filter(pl.col("rank") != part.rank.identity.rank).height:
        return f"another rank in {name}"
    if frame.select(described.key).is_duplicated().any():
        return f"{name} with the same key"
    if not frame["iteration"].unique().is_in(part.iterations["iteration"].implode()).all():
        return f"iterations in {name} that are none"
    return out_of_bounds(name, frame, described)
