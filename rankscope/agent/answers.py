"""The answers of the tools: the documents of CONTRACT.md."""

from collections.abc import Callable

import polars as pl
from msgspec.structs import replace

from rankscope import api, capture
from rankscope.agent import questions
from rankscope.agent.folders import Folders
from rankscope.compare.breakdowns import rows_by
from rankscope.compare.comparison import Comparison, Stage
from rankscope.compare.picks import picks_of
from rankscope.compare.report_files import files_of
from rankscope.errors import ReportError
from rankscope.ingestion.check import check
from rankscope.model.metrics import check_metrics, column_of, leading_metrics
from rankscope.model.options import Options, ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.model.results import Imbalance
from rankscope.output import check_report, explain
from rankscope.output.documents import capture as capture_document
from rankscope.output.documents import explain as explain_document
from rankscope.output.documents import imbalance as imbalance_document
from rankscope.output.documents import pick_reports as picks_document
from rankscope.output.documents import reports as report_documents
from rankscope.output.documents import timeline as timeline_document
from rankscope.output.nsys_view import open_command
from rankscope.sources.moved import located

Progress = Callable[[int, int], None]
"""Called with the number of reports that are done, and of all."""

SCRIPT = "./profile.sh"
"""How the usage line of a launch script calls it."""


class Answers:
    """Answers about what lies below some folders. All methods raise `RankscopeError`."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders

    def check(self, question: questions.Check, progress: Progress) -> report_documents.Check:
        """Whether reports are sufficient; those with problems come first."""
        options = ShapingOptions.of(question.iteration, question.phases)
        paths = self._folders.reports(question.paths)
        checked = check(paths, options, None, question.run, *_counting(progress))
        worst = sorted(checked, key=lambda each: (each.usable, not each.problems))
        return report_documents.check(worst, check_report.warnings(checked))

    def ingest(self, question: questions.Ingest, progress: Progress) -> report_documents.Ingest:
        """Reports in a database; those that were left out come first."""
        started, done = _counting(progress)
        run = api.ingest(
            self._folders.reports(question.paths),
            self._folders.database(question.db),
            iteration=question.iteration,
            phases=question.phases,
            on_error="skip" if question.skip_bad else "fail",
            run=question.run,
            started=started,
            progress=done,
        )
        did = run.ingested
        assert did is not None
        outcomes = sorted(did.outcomes, key=lambda each: each.status != "skipped")
        matched = run.compare(until=Stage.MATCH)
        return report_documents.ingest(run.db, matched, outcomes, did.seconds, did.events)

    def imbalance(self, question: questions.Imbalance, _: Progress) -> imbalance_document.Imbalance:
        """The verdict; of ranks, the named ones come first, then those with most work."""
        names = check_metrics([*question.metrics]) or leading_metrics()
        with api.reading(self._folders.database(question.db)) as run:
            comparison = run.compare(_options(question.iter_range))
            result = comparison.imbalance(names)
            rows = (
                pl.DataFrame() if question.by is None else rows_by(question.by, comparison, result)
            )
            return imbalance_document.imbalance(
                run.db, comparison, _relevant_first(result, names), rows
            )

    def explain(self, question: questions.Explain, _: Progress) -> explain_document.Explain:
        """The meaning of a word."""
        return explain_document.explain(question.term, explain.explain(question.term))

    def pick_reports(
        self, question: questions.PickReports, _: Progress
    ) -> picks_document.PickReports:
        """The reports to open side by side."""
        with api.reading(self._folders.database(question.db)) as run:
            comparison = run.compare(_options(question.iter_range), until=Stage.VERDICT)
            picks = picks_of(comparison, question.metric)
            command = open_command(picks.files) if picks.in_gui else None
            return picks_document.pick_reports(
                run.db, comparison, comparison.warnings, picks, command
            )

    def timeline(self, question: questions.Timeline, _: Progress) -> timeline_document.Timeline:
        """Ranks in iterations; their reports are read again, so they must lie in the folders."""
        with api.reading(self._folders.database(question.db)) as run:
            comparison = run.compare(until=Stage.VERDICT)
            ranks, iterations = question.ranks, question.iterations
            if not (ranks and iterations):
                picks = picks_of(comparison, None)
                ranks = ranks or tuple(each.rank for each in picks.picks)
                iterations = iterations or (picks.looks[0].iteration,)
            self._refuse_outside(comparison, ranks)
            return timeline_document.timeline(run.db, comparison, run.timeline(ranks, iterations))

    def next_capture(
        self, question: questions.NextCapture, _: Progress
    ) -> capture_document.Capture:
        """The launch script of the smallest capture that settles what a run left open."""
        with api.reading(self._folders.database(question.db)) as run:
            following = run.next_capture()
        scheduler = question.scheduler.value
        config = following.config(capture.default_trace(scheduler))
        return capture_document.capture(
            capture.wrapper(scheduler, config, SCRIPT),
            None,
            capture.usage(scheduler, SCRIPT),
            following,
        )

    def _refuse_outside(self, comparison: Comparison, ranks: tuple[int, ...]) -> None:
        """Raise an error if a rank's report lies outside: others may have set its path."""
        reports = files_of(comparison.tables.ranks, comparison.tables.reports)
        for rank in ranks:
            for stored in reports[rank].paths if rank in reports else ():
                path = located(stored, comparison.tables.database)
                if not self._folders.holds(path.resolve()):
                    raise ReportError(
                        f"{path}: lies outside the folders of this server",
                        hint="rankscope mcp FOLDER... must name the folder of the reports, too",
                    )


def _options(iter_range: str | None) -> Options:
    """How to compare, with the range of iterations of the question."""
    return api.options_of({"iter_range": iter_range} if iter_range else {})


def _counting(
    progress: Progress,
) -> tuple[Callable[[list[ReportFile]], None], Callable[[ReportFile, int], None]]:
    """The functions that `ingest` calls with all reports and after each; they report counts."""
    done, count = 0, 0

    def started(files: list[ReportFile]) -> None:
        nonlocal count
        count = len(files)
        progress(0, count)

    def advance(_: ReportFile, _events: int) -> None:
        nonlocal done
        done += 1
        progress(done, count)

    return started, advance


def _relevant_first(result: Imbalance, names: list[str]) -> Imbalance:
    """The result, with the most relevant ranks and iterations first."""
    first = column_of(names[0])
    named = pl.col("rank").is_in(result.verdict.named)
    spread = next(name for name in ("spread_ns", "spread") if name in result.iterations)
    return replace(
        result,
        ranks=result.ranks.sort(named, first, descending=True, nulls_last=True),
        iterations=result.iterations.sort(spread, descending=True, nulls_last=True),
    )
