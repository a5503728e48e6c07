"""A verdict that changed as a line of text, as JSON, for another program, and for node_exporter."""

from collections.abc import Iterable, Iterator
from typing import Annotated

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.model.kinds import VerdictKind
from rankscope.model.metrics import column_of
from rankscope.model.results import Verdict
from rankscope.output.documents.common import Answer, run_of
from rankscope.output.prometheus import gauge, labels
from rankscope.output.quantities import moment, short_path
from rankscope.util.meaning import says
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import counted
from rankscope.watch.watcher import Announcement, Watcher
from rankscope.watch.windows import VerdictKey

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
    verdict = comparison.verdict
    said = verdict.sentence.removeprefix(f"{verdict.kind.capitalize()}: ")
    text = (
        f"{moment(announcement.time_ns)} window {announcement.window} "
        f"({short_path(announcement.db)}, {ranks}): {same}{verdict.kind}: {said}"
    )
    return sanitized(text, LONGEST)


class Watch(Answer, kw_only=True, tag="rankscope/watch/1"):
    """A verdict of a window that is announced; a line each."""

    time: Annotated[str, says("now, in UTC")]
    window: Annotated[int, says("the number of the window; its database is `run.db`")]
    changed: Annotated[
        bool,
        says(
            "whether the verdict is another one than `previous`; then the program of `--exec` runs"
        ),
    ]
    previous: Annotated[
        VerdictKey | None,
        says(
            "the verdict that was announced before for this window, else for the one before it; "
            "null: none"
        ),
    ]
    verdict: Annotated[Verdict, says("as `verdict` of imbalance")]


def document(announcement: Announcement) -> Watch:
    """The JSON object of a verdict that changed."""
    comparison = announcement.comparison
    return Watch(
        run=run_of(announcement.db, comparison.facts),
        warnings=announcement.warnings,
        time=str(moment(announcement.time_ns)),
        window=announcement.window,
        changed=announcement.changed,
        previous=announcement.previous,
        verdict=comparison.verdict,
    )


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
        of_rank = {
            rank: labels(rank=str(rank), host=sanitized(host or "", LONGEST))
            for rank, host in comparison.tables.ranks.select("rank", "host").iter_rows()
        }
        slow = [(of_rank[rank], 1) for rank in verdict.ranks]
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
                "window_iterations",
                "Iterations of the last window that are compared.",
                len(comparison.selection.numbers),
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
        for name, meaning, values in _by_rank(comparison):
            samples = [(of_rank[rank], value) for rank, value in values if value is not None]
            lines += gauge(f"{PREFIX}{name}", meaning, samples)
    return "\n".join(lines) + "\n"


def _by_rank(
    comparison: Comparison,
) -> Iterator[tuple[str, str, Iterable[tuple[int, float | None]]]]:
    """Metrics with a value for each rank: name, meaning, and the values, None where unknown."""
    for metric, meaning in (
        ("work", "Mean work of a rank in an iteration."),
        ("wait", "Mean waiting of a rank in an iteration."),
    ):
        scores = comparison.scores.select("rank", pl.col(column_of(metric)) / 1e9).sort("rank")
        yield f"rank_{metric}_seconds", meaning, scores.iter_rows()
    flags = comparison.flags()
    if flags is not None:
        slow = flags.group_by("rank").agg(pl.col("flagged").sum()).sort("rank")
        yield "rank_slow_iterations", "Iterations in which a rank is slow.", slow.iter_rows()
