"""A verdict that changed as a line of text, as JSON, for another program, and for node_exporter."""

from __future__ import annotations

import json

from rankscope.model.kinds import VerdictKind
from rankscope.output import json_documents
from rankscope.output.fleet_documents import moment
from rankscope.output.json_documents import Document
from rankscope.output.prometheus import gauge, labels
from rankscope.output.quantities import counted, short_path
from rankscope.util.sanitize import sanitized
from rankscope.watch.watcher import Announcement, Watcher
from rankscope.watch.windows import Essence

PREFIX = "rankscope_watch_"
"""Beginning of the names of metrics for node_exporter."""

LONGEST = 2000
"""Most characters of a sentence."""


def line(announcement: Announcement) -> str:
    """One line: when, which window, and its verdict."""
    comparison = announcement.comparison
    facts = comparison.facts
    ranks = counted(len(facts.ranks), "rank")
    if facts.missing_ranks:
        ranks = f"{len(facts.ranks)} of {facts.world_size} ranks"
    same = "" if announcement.changed else "unchanged, "
    text = (
        f"{moment(announcement.time_ns)} window {announcement.window} "
        f"({short_path(announcement.db)}, {ranks}): {same}{comparison.verdict.kind}: "
        f"{comparison.verdict.sentence}"
    )
    return sanitized(text, LONGEST)


def document(announcement: Announcement) -> Document:
    """The JSON object of a verdict that changed."""
    comparison = announcement.comparison
    own = {
        "time": moment(announcement.time_ns),
        "window": announcement.window,
        "changed": announcement.changed,
        "previous": _essence(announcement.previous),
        "verdict": json_documents.verdict(comparison.verdict),
    }
    return json_documents.document(
        "watch", announcement.db, comparison.facts, comparison.warnings, own
    )


def one_line(whole: Document) -> str:
    """A JSON object on one line, in ASCII."""
    return json.dumps(whole, allow_nan=False)


def variables(announcement: Announcement) -> dict[str, str]:
    """The environment variables of the command of `--exec`.

    `RANKSCOPE_DB` is the default of `--db`, so that commands of rankscope find the window.
    """
    verdict = announcement.comparison.verdict
    return {
        "RANKSCOPE_DB": str(announcement.db.resolve()),
        "RANKSCOPE_WINDOW": str(announcement.window),
        "RANKSCOPE_VERDICT": verdict.kind.value,
        "RANKSCOPE_RANKS": ",".join(map(str, verdict.ranks)),
        "RANKSCOPE_CAUSE": verdict.cause or "",
        "RANKSCOPE_SENTENCE": sanitized(verdict.sentence, LONGEST),
    }


def _essence(essence: Essence | None) -> Document | None:
    if essence is None:
        return None
    return {
        "class": essence.kind,
        "ranks": list(essence.ranks),
        "hosts": list(essence.hosts),
        "roles": list(essence.roles),
        "cause": essence.cause,
    }


def prometheus(watcher: Watcher) -> str:
    """The state of a watch, and the verdict of its last window, for node_exporter."""
    windows = [*watcher.windows]
    lines = [
        *gauge(f"{PREFIX}windows", "Windows that have reports.", [("", len(windows))]),
        *gauge(f"{PREFIX}unusable_reports", "Reports that cannot be used.", [("", watcher.failed)]),
    ]
    latest = watcher.latest()
    if latest is not None:
        window, comparison = latest
        facts, verdict = comparison.facts, comparison.verdict
        hosts = dict(comparison.tables.ranks.select("rank", "host").iter_rows())
        slow = [
            (labels(rank=str(rank), host=sanitized(hosts.get(rank) or "", LONGEST)), 1)
            for rank in verdict.ranks
        ]
        kinds = [
            (labels(**{"class": kind.value}), int(kind is verdict.kind)) for kind in VerdictKind
        ]
        starts = [each.capture.start_ns for each in window.taken.values()]
        start = min((each for each in starts if each is not None), default=None)
        for name, meaning, value in (
            ("window", "Number of the last window.", window.number),
            ("window_ranks", "Ranks of the last window.", len(facts.ranks)),
            (
                "window_missing_ranks",
                "Ranks of the job without a report.",
                len(facts.missing_ranks),
            ),
            (
                "window_start_timestamp_seconds",
                "Start of the last window.",
                None if start is None else start / 1e9,
            ),
            (
                "gain_seconds",
                "Time that a repair would save in the window.",
                None if verdict.gain_ns is None else verdict.gain_ns / 1e9,
            ),
            ("gain_ratio", "The same as a share of the time of the window.", verdict.gain),
        ):
            lines += gauge(f"{PREFIX}{name}", meaning, [] if value is None else [("", value)])
        lines += gauge(f"{PREFIX}verdict", "Whether this is the class of the verdict.", kinds)
        lines += gauge(f"{PREFIX}slow_rank", "A rank that the verdict names.", slow)
    return "\n".join(lines) + "\n"
