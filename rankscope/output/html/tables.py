"""Frames as the page's sortable tables: columns of raw numbers, each with its kind and meaning."""

from collections.abc import Mapping

import polars as pl
from msgspec.structs import asdict

from rankscope.compare import breakdowns
from rankscope.compare.collective_rows import by_collective
from rankscope.compare.comparison import Comparison
from rankscope.model.metrics import METRICS, Unit
from rankscope.model.results import Imbalance, MetricSummary, RunFacts
from rankscope.output import columns
from rankscope.output.documents.common import Document
from rankscope.output.text_tables import cost_note, worthwhile
from rankscope.util.wording import span

MOST_ROWS = 1000
"""Most rows of a table of cells or collectives; the least important rows are left out."""


def sortable_table(
    name: str,
    title: str,
    frame: pl.DataFrame,
    place: str = "numbers",
    note: str = "",
    labels: Mapping[str, str] | None = None,
    sorted_by: str | None = None,
) -> Document:
    """A table of the page, column by column.

    Args:
        frame: the rows; its columns are described in `output/columns.py`. Lists become text.
        labels: column → heading, where it differs from that in `output/columns.py`.
        sorted_by: the column by which the table is sorted at first.
    """
    flat = frame.with_columns(
        pl.col(column).map_elements(lambda each: span(sorted(each)), pl.String)
        for column, dtype in frame.schema.items()
        if isinstance(dtype, pl.List)
    )
    flat = flat.with_columns(
        pl.col(column) / 1e9
        for column in flat.columns
        if columns.shown(column) is columns.Shown.GIGABYTES
    )
    return {
        "id": name,
        "title": title,
        "note": note,
        "place": place,
        "sorted_by": sorted_by,
        "columns": [_column(column, flat.schema[column], labels or {}) for column in flat.columns],
        "values": [flat[column].to_list() for column in flat.columns],
    }


def _column(name: str, dtype: pl.DataType, labels: Mapping[str, str]) -> Document:
    kind = columns.shown(name)
    plain = kind in (columns.Shown.PLAIN, columns.Shown.GIGABYTES)
    return {
        "name": name,
        "label": labels.get(name, columns.label(name)),
        "kind": ("number" if dtype.is_numeric() else "text") if plain else kind.value,
        "meaning": columns.meaning(name),
    }


def number_tables(
    comparison: Comparison, result: Imbalance, flagged_cells: pl.DataFrame
) -> list[Document]:
    """Tables across ranks, by rank, iteration, host and collective, and of flagged cells.

    Args:
        flagged_cells: the result of `flagged`.
    """
    ranks = result.ranks.select(
        pl.exclude("^.*_z$", "report"), *(["work_z"] if "work_z" in result.ranks.columns else [])
    )
    chosen = comparison.selection.numbers
    collectives = by_collective(comparison.collectives(chosen), chosen)
    several = comparison.tables.ranks["host"].n_unique() > 1
    last, says = (each("last_arriver_share") for each in (columns.label, columns.meaning))
    many = flagged_cells.height > MOST_ROWS
    of_flagged = f"the {MOST_ROWS:,} largest of {flagged_cells.height:,}" if many else ""
    return [
        *_metrics(result),
        sortable_table(
            "ranks",
            "Ranks",
            _known(ranks),
            note=f"{_scores(result)}; {last}: {says}; cost: {cost_note(result)}; "
            "avoidable: what of it ends if this rank alone arrives in time (What if plays the run "
            "again)",
            labels={"gain_ns": "avoidable", "work_z": "z of work"},
            sorted_by="work_ns",
        ),
        *_also(result),
        *_what_if(result),
        sortable_table("flagged", "Flagged cells", flagged_cells.head(MOST_ROWS), note=of_flagged),
        *_findings(result),
        sortable_table(
            "iterations",
            "Iterations",
            result.iterations,
            note="length on the median rank; spread of work across ranks",
            labels={"iteration_ns": "length"},
        ),
        *(
            [sortable_table("hosts", "Hosts", breakdowns.by_host(comparison.rows()))]
            if several
            else []
        ),
        sortable_table(
            "collectives",
            "Collectives",
            collectives.head(MOST_ROWS),
            note="transfer and wait: mean per rank and call",
            labels={"last_rank": "most often last", "last_share": "how often"},
        ),
    ]


def quality_tables(comparison: Comparison, facts: RunFacts) -> list[Document]:
    """Tables of the ranks' clocks and of the reports."""
    clocks = comparison.tables.ranks.select("rank", "host").sort("rank")
    drift = {rank: round(ppm, 4) for rank, ppm in facts.drift_ppm.items()}
    reports = comparison.tables.ranks.select(
        "rank", "host", "pid", "evidence", "convention", report="path"
    )
    tables = [sortable_table("reports", "Reports", reports.sort("rank"), "quality")]
    if facts.offsets_ns:
        fitted = clocks.with_columns(
            offset_ns=pl.col("rank").replace_strict(
                facts.offsets_ns, default=None, return_dtype=pl.Int64
            ),
            drift_ppm=pl.col("rank").replace_strict(drift, default=None, return_dtype=pl.Float64),
        )
        tables.insert(0, sortable_table("clocks", "Clocks", fitted, "quality"))
    return tables


def flagged(comparison: Comparison) -> pl.DataFrame:
    """The flagged cells, largest excess first: rank, iteration, cause, excess_ns."""
    schema = {"rank": pl.Int64, "iteration": pl.Int64, "cause": pl.String, "excess_ns": pl.Int64}
    flags = comparison.flags()
    if flags is None:
        return pl.DataFrame(schema=schema)
    order = ["excess_ns", "rank", "iteration"]
    cells = flags.filter("flagged").sort(order, descending=[True, False, False])
    return cells.select(*schema)


def _findings(result: Imbalance) -> list[Document]:
    """The table of the parts of the stragglers' excess, if they are known."""
    rows = [
        {
            "tables" if name == "evidence" else name: value  # elsewhere that is of a rank
            for name, value in asdict(each).items()
            if name not in ("suspect", "count")
        }
        for each in result.verdict.findings
    ]  # `suspect` repeats `kind`, and `name` says the count
    title, note = "Contents of the excess", "mean per flagged iteration"
    return [sortable_table("findings", title, pl.DataFrame(rows), note=note)] if rows else []


def _also(result: Imbalance) -> list[Document]:
    """The table of further findings that cost at least 1 %."""
    hosts = dict(result.ranks.select("rank", "host").iter_rows())
    rows: list[Document] = [
        {
            "rank": rank,
            "host": ", ".join(each.hosts) or hosts.get(rank),
            "iteration": each.iterations[0] if each.iterations else None,
            "iterations": [*each.iterations],
            "class": each.kind.value,
            "cause": each.cause,
            "excess_ns": each.excess_ns,
            "gain_ns": each.gain_ns,
        }
        for each in result.verdict.also
        for rank in each.ranks or (None,)
    ]
    if not rows:
        return []
    frame = pl.DataFrame(rows, infer_schema_length=None)
    note = "slow beside the ranks of the verdict; saves: in addition, once those are fixed"
    labels = {"iteration": "first iteration", "gain_ns": "saves"}
    return [sortable_table("also", "Also slow", frame, note=note, labels=labels)]


def _what_if(result: Imbalance) -> list[Document]:
    """The table of savings by repairs, the largest first, if the run can be replayed."""
    rows = worthwhile(result)
    if rows is None:
        return []
    rows = rows.select("kind", "name", "gain_ns", gain_share="gain")
    note = (
        f"time that the run would save{' at most' if result.verdict.gain_is_bound else ''} if one "
        "thing took as long as on its role's median rank, by replay"
    )
    labels = {"kind": "what", "name": "which", "gain_ns": "saves", "gain_share": "of the time"}
    return [
        sortable_table("whatif", "What if", rows, note=note, labels=labels, sorted_by="gain_ns")
    ]


def _scores(result: Imbalance) -> str:
    return f"{result.statistic} over the iterations"


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without columns that are unknown in all rows, except host and role."""
    empty = [name for name in frame.columns if frame[name].null_count() == frame.height]
    return frame.drop(set(empty) - {"host", "role"})


def _metrics(result: Imbalance) -> list[Document]:
    """Metrics across ranks: one table of the times, and one for each other unit."""
    known = [each for each in result.metrics if each.mean is not None]
    units = dict.fromkeys(METRICS[each.metric].unit for each in known)
    return [
        sortable_table(
            "metrics" if unit is Unit.NS else f"metrics-{unit.lower()}",
            "Across ranks" if unit is Unit.NS else f"Across ranks, {unit}",
            _summaries([each for each in known if METRICS[each.metric].unit is unit]),
            note=_scores(result),
            labels=dict.fromkeys(("min_rank", "median_rank", "max_rank"), "rank"),
        )
        for unit in units
    ]


def _summaries(summaries: list[MetricSummary]) -> pl.DataFrame:
    """Metrics of one unit: mean, lowest, middle and highest rank, imbalance."""
    rows: list[Document] = []
    for each in summaries:
        metric = METRICS[each.metric]
        row: Document = {"metric": metric.label}
        row[metric.key("mean")] = round(each.mean or 0) if metric.is_time else each.mean
        for end, score in (("min", each.min), ("median", each.median), ("max", each.max)):
            row[metric.key(end)] = score and score.value
            row[f"{end}_rank"] = score and score.rank
        rows.append({**row, "imbalance": each.imbalance, metric.key("lost"): each.lost})
    return pl.DataFrame(rows, infer_schema_length=None)
