"""The results of `check` as tables."""

import os
import re

import polars as pl

from rankscope.model.reports import Abilities, CheckedReport, RunWarning
from rankscope.output.table_layout import Table
from rankscope.util.grouping import grouped
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import UNKNOWN, agreeing, and_more, counted, ranks_text, span

ABILITIES = Abilities.__struct_fields__
"""Names of the fields of `Abilities`."""

MOST_LINES = 20
"""Above this number of reports, the table has a row per group of similar reports."""

DOUBTFUL = ("records-missing", "report-cut", "device-clock-wrong", "launches-missing")
"""Codes of warnings that make all numbers doubtful."""

ANOTHER_RUN = "another-run"
"""The code of the warning that reports are of several runs."""

NOTHING = "nothing to do"
"""The beginning of a remedy that requires nothing."""

SHARE = re.compile(r" \([\d.,]+ %[^)]*\)")
"""A share in brackets, which may be in the middle of a clause."""

MOST_ALIKE = 3
"""Above this number of similar lines or names, the rest is only counted."""

LONGEST_PATH = 200
"""Most characters of a path."""


def warnings(reports: tuple[CheckedReport, ...]) -> list[RunWarning]:
    """Each problem once, as a warning for the ranks that have it."""
    ranks: dict[tuple[str, str], set[int]] = {}
    for report in reports:
        for problem in report.problems:
            ranks.setdefault((problem.code, problem.message), set()).update(report.ranks)
    return [
        RunWarning(code, text, tuple(sorted(affected))) for (code, text), affected in ranks.items()
    ]


def reports_frame(reports: tuple[CheckedReport, ...]) -> pl.DataFrame:
    """A row per report.

    Returns:
        path, ranks (list), usable, iterations (their number), a Boolean column per other member
        of `ABILITIES`, problems (list of codes).
    """
    return pl.DataFrame(
        [
            {
                "path": str(report.path),
                "ranks": list(report.ranks),
                "usable": report.usable,
                "iterations": report.iterations,
                **{name: getattr(report.can, name) for name in ABILITIES[1:]},
                "problems": list(_codes(report)),
            }
            for report in reports
        ],
        schema_overrides={"ranks": pl.List(pl.Int64), "problems": pl.List(pl.String)},
    )


def sentence(reports: tuple[CheckedReport, ...]) -> str:
    """The number of usable reports, their ranks, and the questions that the verdict will answer."""
    usable = [report for report in reports if report.usable]
    if not usable:
        if len(reports) == 1:
            return "The report cannot be used."
        return f"None of the {counted(len(reports), 'report')} can be used."
    by_run = _by_run(usable)
    runs = f"; they are of {counted(len(by_run), 'run')}" if len(by_run) > 1 else ""
    runs_by_verdict = grouped((_expected_verdict(each), number) for number, each in by_run.items())
    can = "read" if any("nothing-to-compare" in _codes(each) for each in usable) else "used"
    count = f"{len(usable)} of {counted(len(reports), 'report')} can be {can} ({_ranks(usable)})"
    if len(runs_by_verdict) == 1:
        each = " of each" if len(by_run) > 1 else ""
        return f"{count}{runs}. The verdict{each} {next(iter(runs_by_verdict))}."
    verdicts = [
        f"The verdict of {agreeing(len(numbers), 'run', 'runs')} {span(numbers)} {text}."
        for text, numbers in runs_by_verdict.items()
    ]
    return " ".join([f"{count}{runs}.", *verdicts])


def _expected_verdict(usable: list[CheckedReport]) -> str:
    """The questions that the verdict will answer, by the content of the reports."""
    communicating = {rank for report in usable if report.can.collectives for rank in report.ranks}
    codes = {problem.code for report in usable for problem in report.problems}
    on_gpu = all(report.clock == "gpu" for report in usable)
    if len({rank for report in usable for rank in report.ranks}) < 2:
        return "will be inconclusive, because only one rank has a report"
    if "nothing-to-compare" in codes:
        return "is impossible: no iteration is complete on every rank"
    if len(communicating) < 2:
        gloo = "" if any(report.can.gpu for report in usable) else " (gloo's need a range)"
        return f"will be inconclusive, because collectives are not recorded{gloo}"
    if not on_gpu and not all(report.work_known for report in usable):
        if not any(report.can.phases for report in usable):
            return "will be inconclusive, because the work of the ranks is unknown"
        return (
            "will be about loading only, on the host clock: later phases include waits for other "
            "ranks"
        )
    answers = ["which rank is slow"]
    answers += ["when"] * all(report.can.iterations for report in usable)
    answers += ["in which phase"] * all(report.can.phases for report in usable)
    joined = " and ".join(filter(None, [", ".join(answers[:-1]), answers[-1]]))
    text = f"can say {joined}, on the {'gpu' if on_gpu else 'host'} clock"
    if "missing-ranks" in codes:
        text += "; the slowest rank may be among those without a report"
    return text


def runs(reports: tuple[CheckedReport, ...]) -> list[str]:
    """The runs of the reports, if there are several, each with its commands."""
    by_hint = grouped(
        (problem.hint, report)
        for report in reports
        for problem in report.problems
        if problem.code == ANOTHER_RUN
    )
    return [
        f"run {members[0].run} ({counted(len(members), 'report')}, {_ranks(members)}, "
        f"{sanitized(_place(members), 1000)}) → {sanitized(hint, 1000)}"
        for hint, members in sorted(by_hint.items(), key=lambda each: each[1][0].run)
    ]


def _place(reports: list[CheckedReport]) -> str:
    """The folder of reports and the name of one of them."""
    folder = os.path.commonpath([each.path.parent for each in reports])
    return f"in {folder or '.'}, such as {reports[0].path.name}"


def advice(reports: tuple[CheckedReport, ...]) -> list[str]:
    """How to capture better reports: a line per remedy of a problem of reports that can be used."""
    by_hint: dict[str, tuple[str, list[CheckedReport]]] = {}
    usable = [report for report in reports if report.usable]
    for report in sorted(usable, key=lambda each: {*DOUBTFUL}.isdisjoint(_codes(each))):
        for problem in dict.fromkeys(report.problems):
            if problem.code != ANOTHER_RUN and not problem.hint.startswith(NOTHING):
                by_hint.setdefault(problem.hint, (problem.message, []))[1].append(report)
    lines = []
    for hint, (message, affected) in by_hint.items():
        clause = re.split(r"; | \(", SHARE.sub("", message), maxsplit=1)[0]
        whose = _ranks(affected)
        if len(_by_run(usable)) > 1:
            parts = [f"run {run} ({_ranks(of)})" for run, of in _by_run(affected).items()]
            whose = and_more(parts, MOST_ALIKE)
        lines.append(f"{whose}: {sanitized(clause, 300)} → {sanitized(hint, 1000)}")
    return lines


def causes_sentences(reports: tuple[CheckedReport, ...]) -> list[str]:
    """How many causes can be identified, and how to record the others; nothing if all can."""
    sentences = []
    for whose, known, lacking in _causes(reports):
        if lacking:
            count, whole = len(known), len(known) + sum(map(len, lacking.values()))
            sentences.append(
                f"Why a rank{whose} is slow: {count or 'none'} of {counted(whole, 'cause')} can be "
                f"identified; for {'the others' if count else 'them'}: {'; '.join(lacking)}."
            )
    return sentences


def causes_text(reports: tuple[CheckedReport, ...]) -> list[str]:
    """A line with the causes that can be identified, and one per capture that others need."""
    return [
        line
        for whose, known, lacking in _causes(reports)
        for line in (
            f"Causes{whose} that can be identified: {', '.join(known) or 'none'}.",
            *(
                f"Cannot be identified: {', '.join(causes)}; {capture}."
                for capture, causes in lacking.items()
            ),
        )
    ]


def _causes(
    reports: tuple[CheckedReport, ...],
) -> list[tuple[str, list[str], dict[str, list[str]]]]:
    """Of runs whose causes are alike: which runs, if not all; the causes that all their usable
    reports identify; and capture → the other causes that need it.
    """
    found: list[tuple[list[int], list[str], dict[str, list[str]]]] = []
    for run, usable in _by_run([report for report in reports if report.usable]).items():
        known: list[str] = []
        lacking: dict[str, list[str]] = {}
        for abilities in zip(*(report.causes for report in usable), strict=True):
            capture = next((each.capture for each in abilities if each.capture is not None), None)
            of = known if capture is None else lacking.setdefault(capture, [])
            of.append(abilities[0].cause)
        alike = next((runs for runs, *causes in found if causes == [known, lacking]), None)
        if alike is not None:
            alike.append(run)
        elif known or lacking:
            found.append(([run], known, lacking))
    whose = [f" of {agreeing(len(runs), 'run', 'runs')} {span(runs)}" for runs, *_ in found]
    several = len(found) > 1
    return [
        (of * several, known, lacking) for of, (_, known, lacking) in zip(whose, found, strict=True)
    ]


def _by_run(reports: list[CheckedReport]) -> dict[int, list[CheckedReport]]:
    """The reports of each run, in the order of the runs."""
    return grouped((each.run, each) for each in sorted(reports, key=lambda each: each.run))


def reports_table(reports: tuple[CheckedReport, ...], show_all: bool) -> Table:
    """A row per report, or per group of similar reports if there are many."""
    folder = _folder(reports)
    if show_all or len(reports) <= MOST_LINES:
        rows = [(_name(report, folder), *_answers([report])) for report in reports]
    else:
        groups = grouped(((*_answers([each])[1:], *_codes(each)), each) for each in reports)
        rows = [
            (
                _name(group[0], folder) + (f" and {len(group) - 1} like it" if group[1:] else ""),
                *_answers(group),
            )
            for group in groups.values()
        ]
    legend = "" if all(report.usable for report in reports) else " (✗: cannot be used)"
    return Table(
        title=f"In {sanitized(folder, LONGEST_PATH)}{legend}",
        columns=("report", "ranks", "iterations", "missing"),
        rows=tuple(rows),
        numeric=frozenset(("iterations",)),
    )


def problem_texts(reports: tuple[CheckedReport, ...], fatal: bool = False) -> list[tuple[str, str]]:
    """Problems and their remedies: fatal ones first, then those that make all numbers doubtful.

    Args:
        fatal: only problems that make a report unusable.

    Returns:
        Per remedy: the lines that name the reports or ranks and their problem, and the remedy.
    """
    folder = _folder(reports)
    by_remedy: dict[tuple[bool, bool, str], dict[str, list[CheckedReport]]] = {}
    for report in reports:
        for problem in dict.fromkeys(report.problems):
            if fatal and not problem.fatal:
                continue
            remedy = by_remedy.setdefault(
                (not problem.fatal, problem.code not in DOUBTFUL, problem.hint), {}
            )
            remedy.setdefault(problem.message, []).append(report)
    texts: list[tuple[str, str]] = []
    for (is_warning, _, hint), messages in sorted(by_remedy.items(), key=lambda each: each[0][:2]):
        lines = [
            f"{_ranks(having) if is_warning else and_more(_paths(having, folder), MOST_ALIKE)}: "
            f"{sanitized(message, 1000)}"
            for message, having in messages.items()
        ]
        more = [f"and {len(lines) - MOST_ALIKE} more like these"] if lines[MOST_ALIKE:] else []
        texts.append(("\n".join([*lines[:MOST_ALIKE], *more]), sanitized(hint, 1000)))
    return texts


def _folder(reports: tuple[CheckedReport, ...]) -> str:
    """The deepest folder that contains all reports."""
    parents = [report.path.parent for report in reports]
    if len({parent.is_absolute() for parent in parents}) > 1:
        parents = [parent.absolute() for parent in parents]
    return os.path.commonpath(parents) or "."


def _name(report: CheckedReport, folder: str) -> str:
    [name] = _paths([report], folder)
    return name if report.usable else f"✗\N{NO-BREAK SPACE}{name}"


def _paths(reports: list[CheckedReport], folder: str) -> list[str]:
    return [sanitized(os.path.relpath(report.path, folder), LONGEST_PATH) for report in reports]


def _answers(reports: list[CheckedReport]) -> tuple[str, str, str]:
    """Ranks, number of iterations and missing abilities of similar reports."""
    first = reports[0]
    missing = [name for name in ABILITIES if not getattr(first.can, name)]
    return (
        span(sorted({rank for report in reports for rank in report.ranks})) or UNKNOWN,
        str(first.iterations) if first.can.iterations else UNKNOWN,
        "everything" if missing == list(ABILITIES) else ", ".join(missing),
    )


def _codes(report: CheckedReport) -> tuple[str, ...]:
    return tuple(sorted({problem.code for problem in report.problems}))


def _ranks(reports: list[CheckedReport]) -> str:
    return ranks_text({rank for report in reports for rank in report.ranks})
