"""Titles and footers of pictures: the finding, and the data behind it."""

import re

import polars as pl

from rankscope.compare.comparison import Comparison
from rankscope.judge.levels import LEAST_GAIN
from rankscope.judge.phrases import when, who
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Verdict
from rankscope.output.plots.style import drawable
from rankscope.output.text_tables import run_line
from rankscope.util.wording import counted, milliseconds, ms, percent

LONGEST_TITLE, USUAL_TITLE = 160, 110
"""Most characters of a title. A longer sentence is cut after a whole clause, at `USUAL_TITLE`."""

LONGEST_NAME = 60
"""Most characters of the ranks or hosts in a title."""

MOST_NAMED = 2
"""Most ranks in the title of a picture of means."""

STRAGGLERS = frozenset({VerdictKind.PERSISTENT, VerdictKind.TRANSIENT, VerdictKind.PERIODIC})

CLAUSE = re.compile(r"[;:] ")
"""The end of a clause; a comma may stand in a list, or before "or"."""

LONGEST_FOOTER = 600
"""Most characters of each line of the footer, before it is wrapped."""


def finding(verdict: Verdict, count: int, *, of_captures: bool = False) -> str:
    """The verdict as a title: who is slow and when, or else the beginning of its sentence.

    Args:
        of_captures: whether each capture is one iteration.
    """
    if not verdict.ranks or verdict.excess_ns is None or verdict.kind not in STRAGGLERS:
        return drawable(_from_sentence(verdict), LONGEST_TITLE)
    verb = "need" if len(verdict.hosts or verdict.ranks) > 1 else "needs"
    name = drawable(who(verdict.ranks, {}, verdict.hosts), LONGEST_NAME)
    share = percent(verdict.cause_share)
    phase = "" if verdict.cause is None else f", {share} of it in {verdict.cause}"
    then = when(verdict, count, of_captures=of_captures, exactly=False)
    return drawable(f"{name} {verb} {ms(verdict.excess_ns)} more {then}{phase}", LONGEST_TITLE)


def _from_sentence(verdict: Verdict) -> str:
    """The beginning of the verdict's sentence, as many clauses as fit into a title."""
    first = verdict.sentence.partition(". ")[0].rstrip(".")
    if len(first) <= USUAL_TITLE:
        return first
    ends = [match.start() for match in CLAUSE.finditer(first[:USUAL_TITLE]) if match.start() > 40]
    return first[: ends[-1]] if ends else first


def verdict_title(comparison: Comparison) -> str:
    """The finding of the run, as the title of a picture that shows it."""
    count = len(comparison.selection.numbers)
    return finding(comparison.verdict, count, of_captures=comparison.of_captures)


def subtitle(comparison: Comparison, shown: str, title: str = "") -> str:
    """The content of a picture, and below it the verdict and further findings."""
    verdict = verdict_title(comparison)
    others = [each.sentence.removesuffix(".") for each in comparison.verdict.also]
    lines = others if verdict == title else [f"Verdict: {verdict}", *others]
    more = drawable(". ".join(lines), LONGEST_FOOTER)
    return f"{shown}\n{more}." if lines else shown


def median_name(comparison: Comparison) -> str:
    """The reference that a rank is compared with, in words."""
    return "the median rank" if len({*comparison.roles.of.values()}) < 2 else "its role's median"


def averaged(comparison: Comparison) -> str:
    """`on average`, or the iteration if there is only one."""
    numbers = comparison.selection.numbers
    return "on average" if len(numbers) > 1 else f"in iteration {numbers[0]}"


def on_average(comparison: Comparison, excess: pl.DataFrame, *, of_work: bool) -> str:
    """The ranks that work longest on average, as the title of a picture of means.

    Where the verdict names ranks, it is about these alone; it is the verdict, if they work no
    longer on average.

    Args:
        of_work: whether `excess` is of work alone; else waiting is in it.
        excess: a row per rank: rank, excess_ns (of its mean, above the median of its role) and
            median_ns.
    """
    ranked = excess.drop_nulls().sort("excess_ns", "rank", descending=[True, False])
    large = ranked.filter(pl.col("excess_ns") >= LEAST_GAIN * pl.col("median_ns"))
    if named := comparison.verdict.named:
        large = large.filter(pl.col("rank").is_in(named))
        if large.is_empty():
            return verdict_title(comparison)
    than, when_ = median_name(comparison), averaged(comparison)
    verb, when_ = ("works", when_) if of_work else ("takes", f"{when_} (waiting included)")
    if large.is_empty():
        most = ranked.row(0, named=True)
        return (
            f"No rank {verb} {percent(LEAST_GAIN)} longer than {than} {when_}: at most "
            f"{milliseconds(most['excess_ns'])} of {milliseconds(most['median_ns'])} ms"
        )
    (first, amount), *others = large.head(MOST_NAMED).select("rank", "excess_ns").iter_rows()
    more = [f"rank {rank} {milliseconds(ns)} ms" for rank, ns in others]
    more += [counted(large.height - MOST_NAMED, "more rank")] if large.height > MOST_NAMED else []
    title = f"Rank {first} {verb} {milliseconds(amount)} ms longer than {than} {when_}"
    return ", ".join([title, *more])


def footer(comparison: Comparison, *notes: str) -> str:
    """The run, its ranks, iterations and clock; below them notes and warnings."""
    facts = comparison.facts
    first = drawable(f"{facts.name} · {run_line(facts)}", LONGEST_FOOTER)
    warnings = [problem.message for problem in comparison.warnings]
    more = [] if len(warnings) < 3 else [f"and {counted(len(warnings) - 2, 'more warning')}"]
    remarks = [*notes, *(f"warning: {text}" for text in warnings[:2]), *more]
    second = [drawable(" · ".join(remarks), LONGEST_FOOTER)] if remarks else []
    return "\n".join([first, *second])
