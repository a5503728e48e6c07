"""The texts of a page: key figures, data quality, commands."""

import shlex
from pathlib import Path

from msgspec import Struct

from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import Picks
from rankscope.judge.phrases import ordinal
from rankscope.match.selection import range_text
from rankscope.model.options import Options
from rankscope.model.results import Imbalance, RunFacts
from rankscope.output.nsys_view import open_command
from rankscope.output.quantities import total
from rankscope.util.wording import agreeing, counted, milliseconds, percent, span

Figure = tuple[str, str, str]
"""Term, value, note."""


class Origin(Struct, frozen=True):
    """The source of a page, for the commands and the last line of its text."""

    db: Path  # the database
    target: Path  # the file of the page
    program: str  # name and version
    picked: tuple[str, ...] = ()  # the options that choose the picks
    is_served: bool = False  # by `rankscope view`, which answers questions of the page


def precision(nanoseconds: int) -> str:
    """A precision as `0.68 ms` or `2 µs`, so that it is never rounded to 0."""
    return (
        f"{milliseconds(nanoseconds)} ms"
        if nanoseconds >= 100_000
        else f"{nanoseconds / 1e3:.0f} µs"
    )


def figures(result: Imbalance) -> list[Figure]:
    """Key figures: the numbers of the verdict, and means of the main metrics."""
    verdict, count = result.verdict, result.iterations.height
    known = {each.metric: each for each in result.metrics}
    at_most = " at most" if verdict.gain_is_bound else ""
    entries: list[Figure] = []
    if verdict.excess_ns is not None:
        excess = f"{milliseconds(verdict.excess_ns)} ms"
        entries.append(("Excess when flagged", excess, "above the median rank"))
    if verdict.iterations:
        period = "" if verdict.period is None else f", every {ordinal(verdict.period)}"
        entries.append(("Flagged", f"{len(verdict.iterations)} of {count}", f"iterations{period}"))
    if verdict.cause is not None:
        entries.append(
            ("Mostly in", verdict.cause, f"{percent(verdict.cause_share)} of the excess")
        )
    for term, gain_ns, gain in (
        ("Fixing it saves", verdict.gain_ns, verdict.gain),
        ("All imbalance costs", verdict.gain_all_ns, verdict.gain_all),
    ):
        if gain_ns is not None:
            entries.append((f"{term}{at_most}", total(gain_ns), _share(gain_ns, gain)))
    if result.efficiency is not None:
        pop = result.efficiency
        balance, communication = percent(pop.load_balance), percent(pop.communication)
        factors = f"load balance {balance} × communication {communication}"
        entries.append(("Parallel efficiency", percent(pop.parallel), factors))
    for metric, term in (("iteration", "Iteration"), ("work", "Work"), ("wait", "Waiting")):
        summary = known.get(metric)
        if summary is not None and summary.mean is not None:
            imbalance = f", imbalance {percent(summary.imbalance)}" if metric == "work" else ""
            iterations = counted(count, "iteration")
            base = f"mean over ranks, {result.statistic} over {iterations}{imbalance}"
            entries.append((term, f"{milliseconds(summary.mean)} ms", base))
    return entries


def _share(amount: int | None, share: float | None) -> str:
    """A share of the time, and how long that is: `23 % of the time (746.1 ms)`."""
    whole = f" ({total(amount / share)})" if amount and share else ""
    return f"{percent(share)} of the time{whole}"


def quality(
    comparison: Comparison, facts: RunFacts, unit_ns: int, flagged: int
) -> list[tuple[str, str]]:
    """Facts about the quality of the data: term and value.

    Args:
        unit_ns: the resolution of the cells of the map.
        flagged: number of flagged cells.
    """
    world = f" of {facts.world_size}" if facts.world_size else ""
    missing = span(facts.missing_ranks) if facts.missing_ranks else "none"
    left_out = f"{agreeing(len(facts.warmup), 'iteration')} {span(facts.warmup)} (warm-up)"
    residual = facts.residual_ns
    alignment = (
        f"aligned by {facts.clock_method}, to {precision(residual)}; smaller differences between "
        "ranks are not meaningful"
        if facts.clocks_aligned and residual is not None
        else f"not all aligned ({facts.clock_method})"
    )
    matched = comparison.matching.summary
    unmatched = int(matched.unmatched["count"].sum())
    cells = f"{counted(flagged, 'cell')} of {len(facts.ranks) * len(facts.iterations):,}"
    values = {
        "Ranks": f"{len(facts.ranks)}{world}, from {counted(facts.reports, 'report')}",
        "Ranks without a report": missing,
        "Iterations": f"{len(facts.iterations)}: {span(facts.iterations)}",
        "Iterations left out": left_out if facts.warmup else "none",
        "Roles": facts.roles,
        "Iterations matched by": facts.matched_by,
        "Clock of the times": f"{facts.clock} clock ({facts.clock_reason})",
        "Clocks of the ranks": alignment,
        "Collectives": f"{counted(matched.calls, 'call')} matched, {unmatched:,} not matched",
        "Flagged": cells,
        "Resolution of the cells": precision(unit_ns),
    }
    return [*values.items()]


def commands(comparison: Comparison, picks: Picks, origin: Origin) -> list[tuple[str, str]]:
    """Purpose and shell line of commands that make this page, and further ones."""
    options = _option_arguments(comparison.options)
    db = str(origin.db)
    selection = ["--db", db, *options]
    picked = [*selection, *origin.picked]
    lines = [
        ("Show the verdict in the terminal", ["rankscope", "imbalance", *selection]),
        ("Name the reports to open side by side", ["rankscope", "pick-reports", *picked]),
        ("Make this page", ["rankscope", "report", *picked, "-o", str(origin.target)]),
    ]
    shell_lines = [(purpose, shlex.join(line)) for purpose, line in lines]
    if picks.in_gui:
        shell_lines.append(("Open the picked reports in the GUI", open_command(picks.files)))
    return shell_lines


def _option_arguments(options: Options) -> list[str]:
    """The options of the command line that correspond to `options`."""
    words: list[str] = []
    if options.iter_range is not None:
        words.append(f"--iter-range={range_text(options.iter_range)}")
    if options.clock != "auto":
        words += ["--clock", options.clock]
    if options.roles is not None:
        words += ["--roles", options.roles]
    if options.include_warmup:
        words.append("--include-warmup")
    return words
