"""Titles and footers of pictures: the finding, and the data behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rankscope.compare.comparison import Comparison
from rankscope.compare.verdict.phrases import plural, who
from rankscope.compare.verdict.sentences import when
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.output.plots.style import drawable
from rankscope.output.quantities import milliseconds
from rankscope.output.text_tables import run_line

LONGEST_TITLE, USUAL_TITLE = 160, 110
"""Most characters of a title. A longer sentence is cut after a whole clause, at `USUAL_TITLE`."""

LONGEST_NAME = 60
"""Most characters of the ranks or hosts in a title."""

CLAUSE = re.compile(r"[,;:] ")
"""The end of a clause."""

LONGEST_FOOTER = 600
"""Most characters of each line of the footer, before it is wrapped."""

VERBS = {
    "load": ("loads", "load", ""),
    "forward": ("takes", "take", " in forward"),
    "backward": ("takes", "take", " in backward"),
    "optimizer": ("takes", "take", " in the optimizer"),
}
"""Cause → verb for one rank, verb for several ranks, and the phase in words."""


def finding(verdict: Verdict, count: int) -> str:
    """The verdict as a title: that of its class in `TITLES`, or else its sentence's beginning.

    Args:
        verdict: the verdict of the run.
        count: the number of iterations that were compared.
    """
    title = TITLES.get(verdict.kind, _from_sentence)
    return drawable(title(verdict, count), LONGEST_TITLE)


def _straggler(verdict: Verdict, count: int) -> str:
    """The slow ranks, their excess, its phase and its iterations."""
    if not verdict.ranks or verdict.excess_ns is None:
        return _from_sentence(verdict, count)
    several = len(verdict.hosts or verdict.ranks) > 1
    name = drawable(who(verdict.ranks, {}, verdict.hosts), LONGEST_NAME)
    one, many, where = VERBS.get(verdict.cause or "", ("works", "work", ""))
    share = verdict.cause_share if verdict.cause in VERBS else None
    excess = verdict.excess_ns * (1.0 if share is None else share)
    verb = many if several else one
    return f"{name} {verb} {milliseconds(excess)} ms longer{where} {when(verdict, count)}"


def _from_sentence(verdict: Verdict, count: int) -> str:
    """The beginning of the verdict's sentence, as many clauses as fit into a title."""
    del count
    first = verdict.sentence.partition(". ")[0].rstrip(".")
    if len(first) <= USUAL_TITLE:
        return first
    ends = [found.start() for found in CLAUSE.finditer(first[:USUAL_TITLE]) if found.start() > 40]
    return first[: ends[-1]] if ends else first


TITLES: Mapping[VerdictKind, Callable[[Verdict, int], str]] = {
    VerdictKind.PERSISTENT: _straggler,
    VerdictKind.TRANSIENT: _straggler,
    VerdictKind.PERIODIC: _straggler,
}
"""Verdict class → a function of the verdict and the number of iterations that gives the title. The
title of another class is the beginning of its sentence."""


def verdict_title(comparison: Comparison) -> str:
    """The title of a picture of the whole run: its finding."""
    return finding(comparison.verdict, len(comparison.selection.numbers))


def footer(comparison: Comparison, *notes: str) -> str:
    """The run, its ranks, iterations and clock; below them notes and warnings.

    Args:
        comparison: the comparison that is drawn.
        notes: what the picture leaves out or summarises.
    """
    facts = comparison.facts
    first = drawable(f"{facts.name} · {run_line(facts)}", LONGEST_FOOTER)
    warnings = [problem.message for problem in comparison.warnings]
    more = [] if len(warnings) < 3 else [f"and {plural(len(warnings) - 2, 'more warning')}"]
    remarks = [*notes, *(f"warning: {text}" for text in warnings[:2]), *more]
    second = [drawable(" · ".join(remarks), LONGEST_FOOTER)] if remarks else []
    return "\n".join([first, *second])
