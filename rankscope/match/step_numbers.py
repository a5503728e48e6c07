"""Numbers of steps that collectives contradict: one rank counts from 0, another from 1.

No rank leaves a collective before all have arrived, so that the last collectives of a step end at
one time. See METHOD.md#iterations.
"""

import numpy as np
import polars as pl

from rankscope.errors import Unpaired
from rankscope.match.collectives import Matched
from rankscope.match.communicators import SPLITTABLE, STREAM
from rankscope.match.iteration_matching import (
    FEWEST_FAR,
    FURTHEST,
    LEAST_OVERLAP,
    NUMBER_ALIKE,
    OTHER_STEP,
    SHARPER,
    agreements,
    most_unchanged,
    of_other_steps,
)
from rankscope.match.records import Scope
from rankscope.model.intervals import Times
from rankscope.model.reports import RunWarning
from rankscope.util.wording import ranks_text

COMPARED = 200
"""Steps that are compared: those in the middle of a run."""

ANY = -1
"""Placeholder for a group: the last collective of all groups."""


def numbers_by_ends(scope: Scope, matched: Matched) -> tuple[dict[int, int], list[RunWarning]]:
    """The shifts of the step numbers of ranks that count differently from most, and warnings.

    Args:
        scope: ranks whose reports give numbers.
        matched: the collectives, matched by these numbers.

    Raises:
        Unpaired: the numbers are wrong, and nothing tells the right ones.
    """
    doubtful = _doubtful(scope, matched)
    if not doubtful:
        return {}, []
    reference = min({*scope.utc_starts} - doubtful or doubtful)
    ends = _ends(scope, matched, sorted({reference} | doubtful))
    shift_of, unsure = {reference: 0}, []
    for rank in sorted(doubtful - {reference}):
        shared = ends[rank].keys() & ends[reference].keys()
        steps = {group: np.count_nonzero(ends[rank][group] >= 0) for group in shared}
        most = max(shared, key=lambda group: (group != ANY, steps[group], group))
        own, others = (ends[each][most] for each in (rank, reference))
        clocks = None not in (scope.utc_starts[rank], scope.utc_starts[reference])
        shift_of[rank], sure = _shift(own, others, clocks)
        unsure += [rank] * (not sure)
        if shared > {ANY} and of_other_steps(own, others, shift_of[rank]):
            raise Unpaired(
                f"steps with one number are different steps on rank {rank} and on rank "
                f"{reference}, as the ends of their collectives show",
                hint=NUMBER_ALIKE,
            )
    shifts, problems = most_unchanged(dict.fromkeys(scope.utc_starts, 0) | shift_of)
    if unsure:
        text = (
            f"by their clocks, {ranks_text(unsure)} had other steps at the time than the others; "
            "either these clocks are wrong, or they count their steps from another number"
        )
        problems.append(RunWarning("steps-doubtful", text, tuple(unsure)))
    return shifts, problems


def _doubtful(scope: Scope, matched: Matched) -> set[int]:
    """Ranks whose numbers may be wrong.

    Their clocks are apart, and the lengths of their steps agree no better with those of the same
    number than with those of the next; or some of their steps end further from the others than
    most do.
    """
    doubtful: set[int] = set()
    for _, members, where, rows in matched.blocks():
        ranks = np.array(matched.ranks(rows, members))
        numbers = matched.shared["iteration"][where].to_numpy()
        last = np.flatnonzero(np.diff(numbers, append=-1))  # of each step, for each operation
        last = last[: np.argmax(np.diff(numbers[last], append=-1) < 0) + 1]
        if len(last) < 2:
            continue
        starts = np.array([[scope.utc_starts[rank] or 0] for rank in ranks.tolist()])
        ends = matched.rows["end_ns"][rows].to_numpy().reshape(members, -1)[:, last] + starts
        middle = _lower_median(ends)
        lengths = np.diff(middle)
        step = float(np.median(lengths / np.diff(numbers[last])))
        apart = ends - middle
        usual = _lower_median(apart.T)[:, None]
        jitter = np.abs(np.diff(lengths)).sum() / len(lengths)
        same_lengths = SHARPER * np.abs(np.diff(apart)).mean(axis=1) < jitter
        aside = np.abs(usual - _lower_median(usual))[:, 0] > OTHER_STEP * step
        lost = (np.abs(apart - usual) > OTHER_STEP * step).sum(axis=1) >= FEWEST_FAR
        doubtful |= {*ranks[aside & ~same_lengths | lost].tolist()}
    return doubtful


def _lower_median(values: Times) -> Times:
    """The median of each column, or the lower one of two."""
    place = (len(values) - 1) // 2
    return np.asarray(np.partition(values, place, axis=0)[place])


def _ends(scope: Scope, matched: Matched, ranks: list[int]) -> dict[int, dict[int, Times]]:
    """Rank → group → UTC (ns) of its last collective's end in each of some steps; -1 if unknown."""
    complete = scope.tables.iterations.filter("complete", pl.col("rank").is_in(ranks))
    numbers = complete["iteration"].unique().sort().to_list()
    first = numbers[max(0, (len(numbers) - COMPARED) // 2)]
    calls = scope.tables.read(
        "collectives",
        [*STREAM, "iteration", "operation", "end_ns"],
        ranks=ranks,
        iterations=range(first, first + COMPARED),
    )
    grouped = (
        calls.filter(pl.col("operation").is_in(SPLITTABLE))
        .join(complete.select("rank", "iteration"), on=["rank", "iteration"])
        .join(matched.streams.select(*STREAM, "group"), on=STREAM)
    )
    last = (
        pl.concat([grouped, grouped.with_columns(group=pl.lit(ANY, pl.Int64))])
        .group_by("rank", "group", "iteration")
        .agg(pl.col("end_ns").max())
    )
    ends_of: dict[int, dict[int, Times]] = {
        rank: {ANY: np.full(COMPARED, -1, np.int64)} for rank in ranks
    }
    for (rank, group), part in last.partition_by("rank", "group", as_dict=True).items():
        ends = ends_of[rank].setdefault(group, np.full(COMPARED, -1, np.int64))
        start = scope.utc_starts[rank] or 0
        ends[part["iteration"].to_numpy() - first] = part["end_ns"].to_numpy() + start
    return ends_of


def _shift(own: Times, reference: Times, clocks: bool) -> tuple[int, bool]:
    """The number to add to those of a rank, and whether clocks do not contradict it.

    Lengths of steps agree much better at the true shift than at the recorded numbers, unless they
    do not vary. The fewer steps, the better they must agree, if `clocks` do not as well.
    """
    furthest = min(FURTHEST, len(own) - LEAST_OVERLAP)
    at_shift = agreements(own, reference, range(-furthest, furthest + 1), clocks)
    near = [shift for shift in at_shift if at_shift[shift].near]
    if 0 not in at_shift:
        return 0, not near
    by_clock = [shift for shift in near if SHARPER * at_shift[shift].apart < at_shift[0].apart]
    if by_clock:
        return by_clock[0], True
    (best, first), *others = at_shift.items()
    if others and first.chance * first.apart < others[0][1].apart:
        return best, True
    return 0, at_shift[0].near or not near
