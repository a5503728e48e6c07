"""The words of pictures: what was found, and what stands behind it."""

from __future__ import annotations

import re

from rankscope.compare.comparison import Analysis
from rankscope.compare.verdict.phrases import plural, who
from rankscope.compare.verdict.sentences import when
from rankscope.model.results import Verdict
from rankscope.output.plots.style import shown
from rankscope.output.quantities import milliseconds
from rankscope.output.text_tables import run_line

LONGEST_TITLE, USUAL_TITLE = 160, 110
"""Letters; a longer one ends with its last whole clause."""

LONGEST_NAME = 60

CLAUSE = re.compile(r"[,;:] ")

LONGEST_FOOTER = 600

VERBS = {
    "load": ("loads", "load", ""),
    "forward": ("takes", "take", " in forward"),
    "backward": ("takes", "take", " in backward"),
    "optimizer": ("takes", "take", " in the optimizer"),
}
"""Cause → what one rank does, what several do, and in what."""


def finding(verdict: Verdict, count: int) -> str:
    """The verdict as a title: who is slow, by how much, in what, when.

    Args:
        verdict: of the run.
        count: how many iterations it is about.
    """
    if not verdict.ranks or verdict.excess_ns is None:
        return shown(_beginning(verdict.sentence), LONGEST_TITLE)
    several = len(verdict.hosts or verdict.ranks) > 1
    name = shown(who(verdict.ranks, {}, verdict.hosts), LONGEST_NAME)
    one, many, where = VERBS.get(verdict.cause or "", ("works", "work", ""))
    share = verdict.cause_share if verdict.cause in VERBS else None
    excess = verdict.excess_ns * (1.0 if share is None else share)
    verb = many if several else one
    return f"{name} {verb} {milliseconds(excess)} ms longer{where} {when(verdict, count)}"


def _beginning(sentence: str) -> str:
    """As many clauses of a sentence as a title may have."""
    first = sentence.partition("; ")[0].rstrip(".")
    if len(first) <= USUAL_TITLE:
        return first
    ends = [found.start() for found in CLAUSE.finditer(first[:USUAL_TITLE]) if found.start() > 40]
    return first[: ends[-1]] if ends else first


def verdict_title(analysis: Analysis) -> str:
    """The title of a picture that is about the whole run."""
    return finding(analysis.verdict, len(analysis.selection.numbers))


def footer(analysis: Analysis, *notes: str) -> str:
    """Run, ranks, iterations and clock; then what a reader must know beside the picture.

    Args:
        analysis: what is drawn.
        notes: what the picture itself leaves out or sums up.
    """
    facts = analysis.facts
    first = shown(f"{facts.name} · {run_line(facts)}", LONGEST_FOOTER)
    warnings = [problem.message for problem in analysis.problems]
    more = [] if len(warnings) < 3 else [f"and {plural(len(warnings) - 2, 'more warning')}"]
    told = [*notes, *(f"warning: {text}" for text in warnings[:2]), *more]
    return "\n".join([first, *([shown(" · ".join(told), LONGEST_FOOTER)] if told else [])])
