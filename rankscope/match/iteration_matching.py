"""Matching of iterations without numbers across ranks. See METHOD.md#iterations."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.errors import Unpaired
from rankscope.match.calls import Calls
from rankscope.match.clocks import ASSUMED_DRIFT_PPM, aligned
from rankscope.match.communicators import EQUAL_SIZES, SPLITTABLE, STREAM, labelled
from rankscope.match.records import Clocks
from rankscope.match.renumbering import with_shifts
from rankscope.model.intervals import Times
from rankscope.model.reports import RunWarning
from rankscope.store.tables import narrowed
from rankscope.util.grouping import grouped
from rankscope.util.wording import MOST_LISTED, and_more, ranks_text

FURTHEST = 50
"""Largest shift between two captures that is searched, in steps."""

LEAST_OVERLAP = 4
"""Fewest steps that two captures must share."""

LEAST_PART = 0.25
"""Least part of the shorter capture that they must share, too; a few steps agree by chance."""

ODD_SHARE = 0.05
"""Share of the steps whose collectives may differ between two ranks."""

CUT = -1
"""Placeholder for the collectives of a step that may be cut."""

FAR, FEWEST_FAR = 1.5, 2
"""Distance, in usual lengths, beyond which iterations are not the same step, and the number of such
iterations that contradicts a pairing by counting."""

OTHER_STEP = 0.5
"""Ends of collectives that are further apart than this part of a usual step are of two steps."""

OTHER_LENGTH = 0.1
"""Of too few steps for that, lengths that differ by more than this part are of different steps."""

ONE_EACH = (
    "each rank has one iteration without a number: that they are of the same steps is assumed"
)

NUMBER_ALIKE = "number the steps alike on every rank; ingest takes each capture as one iteration"

SHARPER = 4
"""A shift is accepted if its ends agree this many times better than those of any other."""

ENOUGH = 16
"""Number of steps whose lengths agree by chance as rarely as clocks do."""

NEAR = 0.25
"""Clocks agree where the ends of a step are less than this part of a step apart."""


def pair_iterations(
    iterations: pl.DataFrame,
    collectives: Callable[[], pl.DataFrame],
    utc_starts: dict[int, int | None],
    unnumbered: list[int],
) -> tuple[dict[int, int], list[RunWarning]]:
    """The shift of each rank's counted iterations after which equal numbers mean equal steps.

    Two kinds of evidence are used: the sequence of collectives, where iterations differ; and the
    ends of the last collectives of iterations, whose differences between two ranks vary little
    only if the same steps are compared. Only collectives in which both ranks take part count:
    ranks at the ends of a chain have fewer communicators than those in the middle. Where nothing
    contradicts, iterations are paired by counting. A rank whose detected steps are one more or one
    fewer than those of another cannot be paired: its collectives then belong to other steps.

    Args:
        iterations: RANK_ITERATIONS.
        collectives: gives COLLECTIVES.
        utc_starts: rank → UTC of its report's time 0.
        unnumbered: ranks whose iterations carry no numbers.

    Returns:
        rank → shift (0 is left out), and the warnings.

    Raises:
        Unpaired: the sequences of two ranks match at no shift, or nothing tells at which, or the
            ends contradict the shift; or numbers that reports give do not tell which iterations
            are the same.
    """
    if not unnumbered:
        return _pair_numbered(iterations, collectives, utc_starts)
    if iterations["rank"].n_unique() < 2:
        return {}, []
    complete = iterations.filter("complete")
    if complete.height == complete["rank"].n_unique():
        return {}, [RunWarning("matched-by-ordinal", ONE_EACH)]
    steps = _Steps(complete, collectives(), utc_starts)
    reference = max(steps.counts, key=lambda rank: (steps.counts[rank], -rank))
    shift_of: dict[int, int] = {}
    unsure: list[int] = []
    for rank in steps.counts:
        if rank == reference:
            shift_of[rank] = 0
            continue
        own, other = steps.of_both(rank, reference)
        fits = _fits(own.sequence, other.sequence)
        if not fits:
            raise _unpaired(rank, reference, "match at no shift")
        clocks = None not in (utc_starts[rank], utc_starts[reference])
        proofs = (_sharpest(own, other, row, fits, clocks) for row in range(len(own.ends)))
        row, sharpest = next(filter(None, proofs), (0, None))
        if sharpest is None:
            unsure.append(rank)
            if fits[0]:
                raise _unpaired(rank, reference, "do not match at 0, and prove no other shift")
        shift_of[rank] = fits[0] if sharpest is None else sharpest
        if of_other_steps(own.ends[row], other.ends[row], shift_of[rank]):
            raise _unpaired(rank, reference, "end in different iterations")
    lowest = min(shift_of.values())
    shifts = {rank: shift - lowest for rank, shift in shift_of.items() if shift != lowest}
    return shifts, _problems(shifts, unsure)


def _check_epochs(iterations: pl.DataFrame) -> None:
    """Raises `Unpaired` if the numbers that reports give start over at different steps."""
    complete = iterations.filter("complete").group_by("iteration")
    bounds = complete.agg(low=pl.min("number"), high=pl.max("number"))
    apart = bounds.filter(pl.col("low") < pl.col("high")).sort("iteration")
    if not apart.is_empty():
        low, high = apart.select("low", "high").row(0)
        raise Unpaired(
            f"the numbers of steps do not start over at the same step on every rank: {low} on one "
            f"is {high} on another",
            hint="number the steps on; ingest takes each capture as one iteration",
        )


def _pair_numbered(
    iterations: pl.DataFrame,
    collectives: Callable[[], pl.DataFrame],
    utc_starts: dict[int, int | None],
) -> tuple[dict[int, int], list[RunWarning]]:
    """The shifts of the numbers that reports give, and warnings.

    Ranks that share no number of an iteration, but were recorded at one time, count from different
    numbers. They are paired by their collectives, as if they had no numbers.

    Args:
        iterations: RANK_ITERATIONS.
        collectives: gives COLLECTIVES.
        utc_starts: rank → UTC of its report's time 0.

    Raises:
        Unpaired: the numbers start over at different steps, or their collectives do not tell.
    """
    _check_epochs(iterations)
    complete = iterations.filter("complete")
    ranks = complete["rank"].n_unique()
    holders = complete.group_by("iteration").agg(pl.col("rank").n_unique())["rank"]
    if ranks < 2 or (holders == ranks).any():
        return {}, []
    by_rank = complete.group_by("rank").agg(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        first=pl.col("iteration").min(),
        gaps=pl.col("iteration").max() - pl.col("iteration").min() >= pl.len(),
    )
    spans = [
        (start + first, start + last)
        for rank, first, last, *_ in by_rank.iter_rows()
        if (start := utc_starts[rank]) is not None
    ]
    together = max(first for first, _ in spans) < min(last for _, last in spans) if spans else False
    if not together or len(spans) < ranks:
        return {}, []
    first_of = dict(by_rank.select("rank", "first").iter_rows())
    from_first = {rank: -first for rank, first in first_of.items()}
    if complete.height > ranks and not by_rank["gaps"].any():  # one iteration each proves nothing
        shifts, problems = pair_iterations(
            with_shifts(iterations, from_first),
            lambda: with_shifts(collectives(), from_first),
            utc_starts,
            [*first_of],
        )
        if not any(each.code == "matched-by-ordinal" and each.ranks for each in problems):
            return most_unchanged(
                {rank: shifts.get(rank, 0) - first for rank, first in first_of.items()}
            )
    raise Unpaired(
        "the reports share no number of an iteration, but were recorded at one time",
        hint=NUMBER_ALIKE,
    )


def most_unchanged(shifts: dict[int, int]) -> tuple[dict[int, int], list[RunWarning]]:
    """Shifts of all ranks' numbers as `pair_iterations` gives them: most ranks keep their numbers.

    Args:
        shifts: rank → shift; only the differences between ranks count.
    """
    usual = Counter(shifts[rank] for rank in sorted(shifts)).most_common(1)[0][0]
    changed = {rank: by - usual for rank, by in sorted(shifts.items()) if by != usual}
    if not changed:
        return {}, []
    return changed, [_shifted("ranks count their steps from different numbers", changed)]


def _shifted(why: str, shifts: dict[int, int]) -> RunWarning:
    """The warning that numbers of ranks were shifted."""
    by_shift = grouped((shift, rank) for rank, shift in sorted(shifts.items()))
    moved = [f"{ranks_text(ranks, MOST_LISTED)} by {by}" for by, ranks in by_shift.items()]
    text = f"{why}; shifted by their collectives: {and_more(moved, MOST_LISTED)}"
    return RunWarning("windows-shifted", text, tuple(sorted(shifts)))


def check_pairing(
    iterations: pl.DataFrame,
    collectives: Callable[[], pl.DataFrame],
    clocks: Clocks,
    utc: dict[int, int | None],
) -> None:
    """Raises `Unpaired` if paired iterations lie far apart on the aligned clocks.

    Ranks that train together are never several iterations apart. A host may be, where it stalls or
    launches ahead: then the ends of its last collectives decide, which all members leave together,
    if every rank has some.

    Args:
        iterations: RANK_ITERATIONS, paired by counting or by shifts of their numbers.
        collectives: gives rank, iteration and end_ns of COLLECTIVES.
        clocks: of the ranks.
        utc: rank → UTC of its report's time 0.
    """
    complete = iterations.filter("complete").select("rank", "iteration", "end_ns")
    if (found := _far_apart(complete, clocks, utc)) is None:
        return
    calls = collectives().join(complete, on=["rank", "iteration"], how="semi")
    last = calls.group_by("rank", "iteration").agg(pl.col("end_ns").max()).sort("iteration", "rank")
    if {*complete["rank"]} == {*last["rank"]}:
        found = _far_apart(last, clocks, utc)
    if found is None:
        return
    rank, number, by = found
    raise Unpaired(
        f"iteration {number} of rank {rank} lies {by / 1e6:.0f} ms away from that of the others, "
        "and no numbers prove that it is the same step",
        hint="number the ranges ('step 12'), or --iteration whole",
    )


def _far_apart(
    ends: pl.DataFrame, clocks: Clocks, utc: dict[int, int | None]
) -> tuple[int, int, float] | None:
    """A rank, an iteration that ends far from that of the others, and by how much (ns).

    None unless there are `FEWEST_FAR` such iterations.

    Args:
        ends: rank, iteration, end_ns.
        clocks: of the ranks.
        utc: rank → UTC of its report's time 0.
    """
    tied = ends.filter(pl.col("rank").is_in([*clocks.fits])).select(
        pl.col("rank", "iteration").cast(pl.Int64), end=aligned(clocks, "end_ns", utc)
    )
    if tied["rank"].n_unique() < 2:
        return None
    # Not the length of the ranges: some only mark the ends of iterations.
    by_rank = tied.sort("rank", "iteration").select(pl.col("end").diff().over("rank"))
    usual = by_rank["end"].median()
    low, high = (
        pl.col("end").quantile(0.5, side).over("iteration") for side in ("lower", "higher")
    )  # differ where half of the ranks are apart from the others
    apart = pl.max_horizontal(pl.col("end") - low, high - pl.col("end"))
    far = tied.with_columns(apart=apart).filter(pl.col("apart") > FAR * pl.lit(usual))
    if far["iteration"].n_unique() < FEWEST_FAR:
        return None
    rank, number, _, by = far.row(0)
    return rank, number, by


def _unpaired(rank: int, reference: int, why: str) -> Unpaired:
    return Unpaired(
        f"iterations have no numbers, and the collectives of rank {rank} and rank {reference} "
        f"{why}: their iterations cannot be paired",
        hint="number the ranges ('step 12'), or capture the same steps on every rank",
    )


def _problems(shifts: dict[int, int], unsure: list[int]) -> list[RunWarning]:
    """The warnings that iterations were paired by counting, and which of them were shifted."""
    doubt = "; their collectives neither prove nor contradict this" if unsure else ""
    problems = [
        RunWarning(
            "matched-by-ordinal",
            "iterations have no numbers and are matched by counting" + doubt,
            tuple(unsure),
        )
    ]
    if shifts:
        problems.append(_shifted("captures start at different steps", shifts))
    return problems


class _Sequence(NamedTuple):
    """The iterations of a rank: a number for the collectives of each, how many, and UTC of ends.

    `ends` has a row for the last of all collectives, and one for the last of each kind: of these,
    two ranks leave those together that they share. Where there are none, it is -1. The collectives
    of the first and the last iteration are `CUT`, because their windows may begin or end elsewhere
    than on other ranks.
    """

    sequence: NDArray[np.int64]
    calls: NDArray[np.int64]
    ends: Times


class _Steps:
    """The iterations of all ranks, with their collectives.

    Args:
        iterations: RANK_ITERATIONS, complete ones.
        collectives: COLLECTIVES.
        utc_starts: rank → UTC of its report's time 0.
    """

    def __init__(
        self,
        iterations: pl.DataFrame,
        collectives: pl.DataFrame,
        utc_starts: dict[int, int | None],
    ) -> None:
        self._iterations = iterations.select("rank", "iteration").sort("rank", "iteration")
        self.counts = dict(self._iterations.group_by("rank").len().sort("rank").iter_rows())
        self._utc_starts = utc_starts
        calls = narrowed(collectives.filter(pl.col("operation").is_in(SPLITTABLE)))
        gathered = Calls([])
        gathered.add(calls)
        labels = narrowed(labelled(gathered.streams()))
        operation = pl.col("operation").cast(pl.String)
        sized = operation.is_in(EQUAL_SIZES) if calls["bytes"].null_count() == 0 else pl.lit(False)
        kind = pl.struct("place", "label", "operation")
        self._calls = (
            calls.select(*STREAM, "iteration", operation, "end_ns", "bytes", sized=sized)
            .group_by(*STREAM, "iteration", "operation")
            .agg(
                count=pl.len(),
                bytes=pl.when("sized").then("bytes").otherwise(0).cast(pl.Int64).sum(),
                end_ns=pl.col("end_ns").max(),
            )
            .join(labels, on=STREAM)
            .with_columns(pl.col("place").cast(pl.String))
            .with_columns(kind=kind.rank("dense"))
        )
        self._kinds = {
            rank: frozenset(kinds)
            for rank, kinds in self._calls.group_by("rank").agg(pl.col("kind").unique()).iter_rows()
        }
        self._sequences: dict[frozenset[int], dict[int, _Sequence]] = {}

    def of_both(self, rank: int, other: int) -> tuple[_Sequence, _Sequence]:
        """The iterations of two ranks, with the collectives in which both take part."""
        nothing: frozenset[int] = frozenset()
        kinds = self._kinds.get(rank, nothing) & self._kinds.get(other, nothing)
        if kinds not in self._sequences:
            self._sequences[kinds] = self._of_kinds(kinds)
        own, others = self._sequences[kinds][rank], self._sequences[kinds][other]
        return _known(own, others), _known(others, own)

    def _of_kinds(self, kinds: frozenset[int]) -> dict[int, _Sequence]:
        """rank → its iterations, with the collectives of some kinds."""
        calls = self._calls.filter(pl.col("kind").is_in(kinds)).sort("kind")
        each = calls.group_by("rank", "iteration", "kind").agg(pl.col("end_ns").max())
        of_kinds = each.pivot("kind", index=["rank", "iteration"], sort_columns=True)
        spelled = (
            calls.group_by("rank", "iteration", maintain_order=True)
            .agg(
                text=pl.format("{}*{}:{}", "kind", "count", "bytes").str.join(" "),
                calls=pl.col("count").cast(pl.Int64).sum(),
                last=pl.col("end_ns").max(),
            )
            .join(of_kinds, on=["rank", "iteration"])
            .with_columns(pl.col("rank", "iteration").cast(pl.Int64))
        )
        rows = self._iterations.join(
            spelled, on=["rank", "iteration"], how="left", maintain_order="left"
        ).with_columns(number=pl.col("text").fill_null("").rank("dense").cast(pl.Int64))
        sequences = {}
        for (rank,), frame in rows.partition_by("rank", as_dict=True).items():
            start = self._utc_starts.get(rank) or 0
            ends = (frame.select("last", *of_kinds.columns[2:]) + start).fill_null(-1)
            sequence = frame["number"].to_numpy().copy()
            if len(sequence) > LEAST_OVERLAP + 2:
                sequence[[0, -1]] = CUT
            called = frame["calls"].fill_null(0).to_numpy()
            sequences[rank] = _Sequence(sequence, called, ends.to_numpy().T)
        return sequences


def _known(own: _Sequence, others: _Sequence) -> _Sequence:
    """The iterations of a rank without those that lost records, as another rank shows.

    All members take part in a collective. A step whose collectives are those of no step of the
    other rank, and fewer than some step has there, tells nothing.
    """
    lost = (own.calls < others.calls.max()) & ~np.isin(own.sequence, [CUT, *others.sequence])
    sequence, ends = own.sequence.copy(), own.ends.copy()
    sequence[lost], ends[:, lost] = CUT, -1
    return _Sequence(sequence, own.calls, ends)


def _fits(own: NDArray[np.int64], reference: NDArray[np.int64]) -> list[int]:
    """Shifts at which at most `ODD_SHARE` of the steps differ; those that agree best come first.

    A step that differs counts as much as `1 / ODD_SHARE` steps that agree. At least half of the
    steps must be comparable.
    """
    shorter = min(len(own), len(reference))
    least = min(shorter, max(LEAST_OVERLAP, round(LEAST_PART * shorter)))
    low = max(least - len(own), -FURTHEST)
    high = min(len(reference) - least, FURTHEST)
    scores = {}
    for shift in range(low, high + 1):
        own_part, other_part = overlapping(own, reference, shift)
        compared = (own_part != CUT) & (other_part != CUT)
        count = np.count_nonzero(compared)
        mismatches = np.count_nonzero(compared & (own_part != other_part))
        if count >= max(least, len(compared) / 2 - 1) and mismatches <= ODD_SHARE * count:
            scores[shift] = count - mismatches - mismatches / ODD_SHARE
    return sorted(scores, key=lambda shift: (-scores[shift], abs(shift)))


def overlapping(own: Times, reference: Times, shift: int) -> tuple[Times, Times]:
    """The iterations of two ranks that a shift pairs."""
    first, last = max(0, -shift), min(len(own), len(reference) - shift)
    return own[first:last], reference[first + shift : last + shift]


def of_other_steps(own: Times, reference: Times, shift: int) -> bool:
    """Whether the collectives of paired iterations end so far apart that they are not the same.

    A rank that was preempted leaves a few of them late. Ends are -1 where unknown.
    """
    own_ends, other_ends = overlapping(own, reference, shift)
    known = np.flatnonzero((own_ends >= 0) & (other_ends >= 0))
    if len(known) < 2:
        return False
    other_ends = other_ends[known]
    usual = np.median(np.diff(other_ends) / np.diff(known))
    apart = own_ends[known] - other_ends
    if len(known) < LEAST_OVERLAP:
        return bool((np.abs(np.diff(apart)) > OTHER_LENGTH * usual).any())
    drift = ASSUMED_DRIFT_PPM * 1e-6 * np.abs(other_ends - np.median(other_ends))
    far = np.abs(apart - np.median(apart)) > OTHER_STEP * usual + drift
    return bool(np.count_nonzero(far) >= max(FEWEST_FAR, ODD_SHARE * len(known) + 1))


class Agreement(NamedTuple):
    """How well the ends of two ranks' steps agree at a shift."""

    apart: float  # mean change of their distance from one step to the next, ns
    near: bool  # by their clocks the same steps end within NEAR of a step
    chance: float  # how many times better than all others they must agree if clocks do not


def agreements(
    own: Times, reference: Times, shifts: Iterable[int], clocks: bool
) -> dict[int, Agreement]:
    """Shift → how well the ends agree, the best one first.

    Shifts at which too few ends are known are left out. The fewer steps, the more likely
    their lengths agree by chance.

    Args:
        own: the ends of one rank's steps, -1 where unknown.
        reference: those of the other.
        shifts: the shifts in question.
        clocks: whether the ends are of the clocks of UTC.
    """
    at_shift = {}
    for shift in shifts:
        own_ends, other_ends = overlapping(own, reference, shift)
        known = np.flatnonzero((own_ends >= 0) & (other_ends >= 0))
        if len(known) < LEAST_OVERLAP:
            continue
        distance = own_ends[known] - other_ends[known]
        step = float(np.median(np.diff(other_ends[known]) / np.diff(known)))
        at_shift[shift] = Agreement(
            float(np.abs(np.diff(distance)).mean()),
            clocks and abs(float(np.median(distance))) < NEAR * step,
            SHARPER ** (1 + ENOUGH / len(known)),
        )
    return dict(sorted(at_shift.items(), key=lambda item: item[1].apart))


def _sharpest(
    own: _Sequence, reference: _Sequence, row: int, fits: list[int], clocks: bool
) -> tuple[int, int] | None:
    """A row of ends and the shift at which these clearly agree best; None where none stands out."""
    at_shift = agreements(own.ends[row], reference.ends[row], fits, clocks)
    if len(at_shift) < min(len(fits), 2):
        return None
    (shift, best), *others = at_shift.items()
    if not others:  # steps that are alike fit wherever enough of them overlap
        own_part, other_part = overlapping(own.sequence, reference.sequence, shift)
        differ = np.ptp(own_part[(own_part != CUT) & (other_part != CUT)]) > 0
        return (row, shift) if best.near or differ else None
    least = SHARPER if best.near else best.chance
    return (row, shift) if least * best.apart < others[0][1].apart else None
