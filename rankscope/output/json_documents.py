"""Results as the JSON documents of CONTRACT.md. Times are integers in ns, unknown is null."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from rankscope.compare.diff.compare import RunDiff
from rankscope.compare.diff.shifts import Change
from rankscope.compare.next_capture import NextCapture
from rankscope.compare.picks import Picks
from rankscope.model.metrics import METRICS, Metric
from rankscope.model.reports import ReportOutcome, RunWarning
from rankscope.model.results import Imbalance, MetricSummary, RunFacts, Score, Verdict

Document = dict[str, Any]
"""A JSON object."""


def dumps(document: Document) -> str:
    """The document as JSON text, in ASCII, so that names cannot control a terminal."""
    # without an indent `json` is compiled code
    return msgspec.json.format(json.dumps(document, allow_nan=False), indent=1)


def document(
    name: str,
    db: Path | None,
    facts: RunFacts | None,
    problems: Iterable[RunWarning],
    own: Document,
) -> Document:
    """A whole document: format, run, warnings, and the keys of the command.

    Args:
        name: the command.
        db: the database.
        facts: the facts of the run; None makes `run` null.
        problems: the warnings.
        own: the keys of the command.
    """
    return {
        "format": f"rankscope/{name}/1",
        "run": None if facts is None else _run(db, facts),
        "warnings": [
            {"code": each.code, "message": each.message, "ranks": list(each.ranks)}
            for each in problems
        ],
        **own,
    }


def next_capture(following: NextCapture | None) -> Document | None:
    """What the next capture records, and why; None without a run."""
    if following is None:
        return None
    return {
        "sentence": following.sentence,
        "ranks": [
            {"label": label, "rank": rank, "host": host} for label, rank, host in following.ranks
        ],
        "iterations": {"first": following.iterations[0], "last": following.iterations[1]},
        "delay_s": following.delay_s,
        "duration_s": following.duration_s,
        "options": [asdict(each) for each in following.needed],
    }


def _run(db: Path | None, facts: RunFacts) -> Document:
    chosen = facts.iterations
    return {
        "db": str(db),
        "name": facts.name,
        "ranks": list(facts.ranks),
        "world_size": facts.world_size,
        "missing_ranks": list(facts.missing_ranks),
        "reports": facts.reports,
        "clock": facts.clock,
        "clock_reason": facts.clock_reason,
        "iterations": {
            "first": chosen[0],
            "last": chosen[-1],
            "count": len(chosen),
            "excluded_warmup": list(facts.warmup),
            "included_warmup": list(facts.settling),
            "matched_by": facts.matched_by,
        },
        "clocks": {
            "aligned": facts.clocks_aligned,
            "method": facts.clock_method if facts.offsets_ns else None,
            "residual_ns": facts.residual_ns,
            "offsets_ns": {str(rank): offset for rank, offset in facts.offsets_ns.items()},
            "drift_ppm": {str(rank): drift for rank, drift in facts.drift_ppm.items()},
        },
    }


def outcomes(reports: tuple[ReportOutcome, ...]) -> list[Document]:
    """`reports` of `ingest`."""
    return [{**asdict(each), "path": str(each.path), "ranks": list(each.ranks)} for each in reports]


def metrics(summaries: tuple[MetricSummary, ...]) -> list[Document]:
    """`metrics` of `imbalance`."""
    return [
        {
            "metric": each.metric,
            "unit": metric.unit.value,
            "mean": each.mean,
            "min": _score(metric, each.min),
            "median": _score(metric, each.median),
            "max": _score(metric, each.max),
            "imbalance": each.imbalance,
            metric.key("lost"): each.lost,
        }
        for each, metric in ((each, METRICS[each.metric]) for each in summaries)
    ]


def _score(metric: Metric, score: Score | None) -> Document:
    """A rank and its score; both null where it is unknown."""
    return {
        "rank": None if score is None else score.rank,
        metric.key("value"): None if score is None else score.value,
    }


def ranks(result: Imbalance, only: Collection[int] | None = None) -> list[Document]:
    """`ranks` of `imbalance`, without those that are not in `only`."""
    names = [name.removesuffix("_z") for name in result.ranks.columns if name.endswith("_z")]
    return [
        {
            "rank": row["rank"],
            "host": row["host"],
            "role": row["role"],
            "report": row["report"],
            **_values(row, names),
            "z": {name: row[f"{name}_z"] for name in names},
            "last_arriver_share": row["last_arriver_share"],
            "cost_ns": row["cost_ns"],
            "gain_ns": row["gain_ns"],
        }
        for row in result.ranks.iter_rows(named=True)
        if only is None or row["rank"] in only
    ]


def _values(row: Document, names: list[str]) -> Document:
    """A rank's scores: times under `values_ns`, those in other units under `values`."""
    found: Document = {"values_ns": {}}
    for name in names:
        metric = METRICS[name]
        found.setdefault(metric.key("values"), {})[name] = row[metric.column]
    return found


def verdict(given: Verdict) -> Document:
    """`verdict` of `imbalance`."""
    return _classed(asdict(given)) | {"also": [_classed(asdict(each)) for each in given.also]}


def _classed(fields: Document) -> Document:
    """The fields of a verdict or of what else there is, with `class` for its kind."""
    return {
        "class": fields.pop("kind"),
        **{
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
        },
    }


def efficiency(given: Imbalance) -> Document | None:
    """`efficiency` of `imbalance`: POP's efficiencies, of work instead of useful computation."""
    return None if given.efficiency is None else asdict(given.efficiency)


def run_diff(given: RunDiff) -> Document:
    """The keys of `diff`, except for the verdicts."""
    return {
        "sentence": given.sentence,
        "clock": given.clock,
        "metrics": [_change(each) for each in given.metrics],
        "ranks": [{"rank": each.rank, **_change(each)} for each in given.ranks],
        "baseline": [{"db": str(db), "label": label} for db, label in given.baseline],
    }


def verdicts(before: Verdict, after: Verdict) -> Document:
    """`verdicts` of `diff`."""
    return {"verdicts": {"before": verdict(before), "after": verdict(after)}}


def _change(given: Change) -> Document:
    fields = asdict(given)
    fields.pop("rank")
    key = METRICS[given.metric].key
    return {
        key(name.removesuffix("_ns")) if name in ("before_ns", "after_ns") else name: value
        for name, value in fields.items()
    }


def rows(frame: pl.DataFrame) -> list[Document]:
    """A frame as a list of objects, one per row."""
    return frame.to_dicts()


def picks(given: Picks, command: str | None, view: Path | None, rsync: str | None) -> Document:
    """The keys of `pick-reports`.

    Args:
        given: the picks.
        command: the shell line that opens their reports, or None.
        view: the view document that was written, or None.
        rsync: the shell line that fetches the copies of the reports, or None.
    """
    return {
        "metric": given.metric,
        "picks": [
            {
                "label": each.label,
                "rank": each.rank,
                "report": str(each.report),
                "host": each.host,
                "pid": each.pid,
                METRICS[given.metric].key("value"): each.value,
                "slow": each.slow,
                "windows": {"worst": asdict(each.worst), "typical": asdict(each.typical)},
            }
            for each in given.picks
        ],
        "looks": [
            {
                "title": each.title,
                "ranks": list(each.ranks),
                "iterations": list(each.iterations),
                "windows": [
                    {"rank": pick.rank, **asdict(window)}
                    for pick, window in zip(given.picks, each.windows, strict=True)
                ],
            }
            for each in given.looks
        ],
        "command": command,
        "view": None if view is None else str(view),
        "rsync": rsync,
        "total_bytes": given.total_bytes,
    }
