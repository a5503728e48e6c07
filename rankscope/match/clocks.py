"""Offset and drift of every rank's clock, from the ends of collectives that ranks share.

All participants of an all-reduce leave it at nearly the same time. The differences of their ends
are therefore the offset of their clocks, and the slope of these differences is the drift.
Communicators of any size link ranks into a graph; a rank is tied to the lowest rank over one or
more links. See METHOD.md#clocks.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from msgspec.structs import replace
from numpy.typing import NDArray

from rankscope.errors import ReportError
from rankscope.match.records import ClockFit, Clocks
from rankscope.model.intervals import Floats, Times
from rankscope.util.numbers import ROBUST
from rankscope.util.wording import counted

DRIFT_SPREADS = 3
"""Drift counts if it moves the clocks by this many spreads over the run; else it is jitter."""

LEAST_INSTANCES = 4
"""Fewest shared instances that measure a drift and a spread; fewer give only an offset."""

MOST_INSTANCES = 2000
"""Shared instances that suffice to fit a clock: of twice as many, every second one is used."""

ASSUMED_DRIFT_PPM = 50.0
"""Largest drift between two clocks, assumed where too few instances measure it."""

ASSUMED_SPREAD_NS = 100_000
"""Spread of the ends of shared instances, assumed where too few instances measure it."""

SESSION_START_ERROR_NS = 1_000_000
"""Assumed error of two sessions' UTC starts on one host, ns, where no collective measures it."""

OTHER_UNIT = 0.5
"""Least drift that, if clear, means different units or steps: no clock drifts so much."""

FITTED = 32
"""Clocks that are fitted at once; bounds memory."""

SORTED = 256
"""Longest row that numpy sorts sooner than it finds its middle."""

ROUNDS = 2
"""Number of refinements of all clocks against the consensus of ends."""


class Group(NamedTuple):
    """The shared instances of one communicator's members."""

    ranks: tuple[int, ...]
    ends: Times  # on each rank's own axis, ns; shape (instances, ranks), ascending
    starts: tuple[int, ...]  # UTC by each rank's own clock of the 0 of its axis, ns
    error: float = 0.0  # of the ends, alike in all instances; ns

    def since(self, place: int, moment: int) -> Times:
        """The ends of the rank at that place by its own clock, in ns since a moment on UTC."""
        return np.asarray(self.ends[:, place] + (self.starts[place] - moment), dtype=np.int64)


def aligned(clocks: Clocks, column: str, utc_starts: dict[int, int | None]) -> pl.Expr:
    """Times of `column`, given on the axis of each rank's report, as ns since `middle_ns`.

    Null for ranks that are not tied. Times of tied ranks agree to their residuals.

    Args:
        column: the times.
        utc_starts: rank → UTC of its report's time 0.
    """
    ranks = [*clocks.fits]
    shifts, slopes, _ = Aligner(clocks, utc_starts).lines(ranks)
    moved = pl.col(column) + _per_rank(ranks, shifts)
    if not slopes.any():
        return moved
    return moved + (moved * _per_rank(ranks, slopes)).round().cast(pl.Int64)


class Aligner:
    """Converts times of reports' own axes to ns since the middle of the run."""

    def __init__(self, clocks: Clocks, utc_starts: dict[int, int | None]) -> None:
        self._clocks = clocks
        self._utc_starts = utc_starts

    def each(self, ranks: NDArray[np.integer[Any]], times: Times) -> Times:
        """The times of tied ranks, converted; `ranks` holds the rank of each."""
        distinct = np.unique(ranks)
        shifts, slopes, _ = self.lines(distinct.tolist())
        place = np.searchsorted(distinct, ranks)
        return _moved(times, shifts[place], slopes[place])

    def many(self, ranks: Sequence[int], times: Times) -> Times:
        """The times of several ranks, a row each, converted; 0 for ranks that are not tied."""
        shifts, slopes, tied = self.lines(ranks)
        moved = _moved(times, shifts[:, None], slopes[:, None])
        moved[~tied] = 0
        return moved

    def lines(self, ranks: Sequence[int]) -> tuple[Times, Floats, NDArray[np.bool_]]:
        """Shift (ns) and slope of each rank's clock, and whether it is tied."""
        fits = [self._clocks.fits.get(rank) for rank in ranks]
        starts = [
            0 if fit is None else (self._utc_starts.get(rank) or 0) + fit.offset_ns
            for rank, fit in zip(ranks, fits, strict=True)
        ]
        slopes = np.array([0.0 if fit is None else fit.drift_ppm * 1e-6 for fit in fits])
        shifts = np.array(starts, dtype=np.int64) - self._clocks.middle_ns
        return shifts, slopes, np.array([fit is not None for fit in fits], dtype=np.bool_)


def _moved(times: Times, shifts: Times, slopes: Floats) -> Times:
    """Times of an own axis as ns since the middle of the run."""
    moved = times + shifts
    if slopes.any():
        moved += np.rint(moved * slopes).astype(np.int64)
    return np.asarray(moved, dtype=np.int64)


def solve_clocks(
    groups: list[Group], lowest: int, spans: dict[int, tuple[int, int]] | None = None
) -> Clocks:
    """Offset and drift of every rank that the groups tie to `lowest`.

    Clocks are first fitted along the shortest links, group by group. Then all are refined together:
    each rank is fitted to the median of the corrected ends of its collectives.

    Args:
        groups: the shared instances.
        lowest: the rank with the reference clock.
        spans: rank → its first and last moment on its own UTC, ns; else those in `groups` count.

    Raises:
        ReportError: the times of a rank are in another unit.
    """
    groups = [group for group in groups if len(group.ends)]
    spans = _spans(groups) if spans is None else spans
    ends_of_lowest = [
        group.since(group.ranks.index(lowest), 0)[[0, -1]]
        for group in groups
        if lowest in group.ranks
    ]
    if not ends_of_lowest:
        return Clocks({lowest: ClockFit(0, 0.0, 0)}, 0, "none")
    middle = (
        min(int(ends[0]) for ends in ends_of_lowest) + max(int(ends[-1]) for ends in ends_of_lowest)
    ) // 2
    lines = {lowest: _Line(0.0, 0.0, 0.0)}
    waiting = groups
    while reachable := _next(waiting, lines):
        for group in reachable:
            _tie(group, middle, lines)
        taken = {id(group) for group in reachable}
        waiting = [group for group in waiting if id(group) not in taken]
    _check_units(
        lines, lowest, max(abs(moment - middle) for each in ends_of_lowest for moment in each)
    )
    for _ in range(ROUNDS):
        _refine(groups, middle, lines, lowest)
    fits = {}
    for rank, line in sorted(lines.items()):
        reached = (moment - middle + line.level for moment in spans.get(rank, ()))
        error = max((line.error(moment) for moment in reached), default=line.spread)
        fits[rank] = ClockFit(round(line.level), line.slope * 1e6, round(error))
    pairs = sum(group.error > 0 for group in groups)
    several = counted(len(groups) - pairs, "communicator")
    ways = [f"ends of shared collectives ({several})"] if pairs < len(groups) else []
    ways += [f"messages both ways ({counted(pairs, 'pair')} of ranks)"] if pairs else []
    return Clocks(fits, middle, "; ".join(ways))


def with_hosts(clocks: Clocks, hosts: dict[int, str | None], paths: dict[int, str]) -> Clocks:
    """The clocks, extended to ranks that share a report or a host with a tied rank.

    Args:
        clocks: the clocks that collectives tie.
        hosts: rank → host, None where unknown; all ranks.
        paths: rank → its report.
    """
    fits = dict(clocks.fits)
    one_report: dict[str, int] = {}
    for rank in sorted(fits):
        leader = one_report.setdefault(paths[rank], rank)
        spread = max(fits[rank].spread_ns, fits[leader].spread_ns)
        fits[rank] = replace(fits[leader], spread_ns=spread)
    shared = _by_best_of_host(fits, hosts)
    for rank in sorted(hosts):
        if rank in fits:
            continue
        neighbour = one_report.get(paths[rank])
        if neighbour is not None:
            fits[rank] = fits[neighbour]
        elif hosts[rank] is not None and (same := _on_host(fits, hosts, rank)):
            fits[rank] = replace(same, spread_ns=same.spread_ns + SESSION_START_ERROR_NS)
        else:
            continue
        shared.append(rank)
    if not shared:
        return replace(clocks, fits=fits)
    by_host = "one host's clock"
    method = by_host if len(clocks.fits) < 2 else f"{clocks.method}; {by_host}"
    return replace(clocks, fits=dict(sorted(fits.items())), method=method)


def _per_rank(ranks: list[int], values: Times | Floats) -> pl.Expr:
    return pl.col("rank").replace_strict(ranks, pl.Series(values), default=None)


class _Line(NamedTuple):
    """A correction: level + slope * (reference's time since the middle); ns.

    It errs by `spread` at the moment `tied`, and by `loose` more per ns before and after it.
    """

    level: float
    slope: float
    spread: float
    loose: float = 0.0
    tied: float = 0.0

    def corrected(self, ends: Times) -> Floats:
        moved = ends + self.level
        return moved + self.slope * moved

    def error(self, moment: float) -> float:
        return self.spread + self.loose * abs(moment - self.tied)


def _spans(groups: list[Group]) -> dict[int, tuple[int, int]]:
    """The first and last end of each rank."""
    spans: dict[int, tuple[int, int]] = {}
    for group in groups:
        for place, rank in enumerate(group.ranks):
            ends = group.since(place, 0)
            low, high = spans.get(rank, (int(ends[0]), int(ends[-1])))
            spans[rank] = min(low, int(ends.min())), max(high, int(ends.max()))
    return spans


def _next(waiting: list[Group], lines: dict[int, _Line]) -> list[Group]:
    """The groups to tie next: all that measure a drift, else the one with most instances."""
    near = [group for group in waiting if any(rank in lines for rank in group.ranks)]
    sure = [group for group in near if len(group.ends) >= LEAST_INSTANCES]
    return sure or sorted(near, key=lambda group: -len(group.ends))[:1]


def _by_best_of_host(fits: dict[int, ClockFit], hosts: dict[int, str | None]) -> list[int]:
    """Ranks that get, in place, the clock of the best tied rank of their host: it errs less."""
    best: dict[str | None, ClockFit] = {}
    for rank, fit in sorted(fits.items()):
        known = best.setdefault(hosts[rank], fit)
        best[hosts[rank]] = min(known, fit, key=lambda each: each.spread_ns)
    better = []
    for rank, fit in sorted(fits.items()):
        same = fit if hosts[rank] is None else best[hosts[rank]]
        spread = same.spread_ns + SESSION_START_ERROR_NS
        # Offsets that differ by more than they err are not of one clock, whatever the host's name.
        apart = abs(same.offset_ns - fit.offset_ns)
        if spread < fit.spread_ns and apart <= spread + fit.spread_ns:
            fits[rank] = replace(same, spread_ns=spread)
            better.append(rank)
    return better


def _on_host(fits: dict[int, ClockFit], hosts: dict[int, str | None], rank: int) -> ClockFit | None:
    return next((fits[other] for other in sorted(fits) if hosts[other] == hosts[rank]), None)


def _tie(group: Group, middle: int, lines: dict[int, _Line]) -> None:
    """Fit the members without a line against the member with the smallest residual."""
    when = float(group.since(0, middle)[len(group.ends) // 2])  # that of any clock is near enough
    tied = [rank for rank in group.ranks if rank in lines]
    leader = min(tied, key=lambda rank: lines[rank].error(when))
    few = len(group.ends) < LEAST_INSTANCES
    fresh = [column for column, rank in enumerate(group.ranks) if rank not in lines]
    if not fresh:
        return
    known = lines[leader]
    reference = known.corrected(group.since(group.ranks.index(leader), middle))
    for first in range(0, len(fresh), FITTED):
        columns = fresh[first : first + FITTED]
        difference = [reference - group.since(place, middle) for place in columns]
        level, slope, spread = _fit(reference, np.stack(difference), group.error)
        for column, index in enumerate(columns):
            line = known._replace(level=float(level[column]), slope=float(slope[column]))
            if few:
                error = float(np.hypot(ASSUMED_SPREAD_NS + group.error, known.error(when)))
                line = line._replace(spread=error, loose=ASSUMED_DRIFT_PPM * 1e-6, tied=when)
            else:
                line = line._replace(
                    spread=float(np.hypot(spread[column] + group.error, known.spread))
                )
            lines[group.ranks[index]] = line


def _check_units(lines: dict[int, _Line], lowest: int, longest: int) -> None:
    for rank, line in lines.items():
        clear = abs(line.slope) * longest > DRIFT_SPREADS**2 * line.spread
        if abs(line.slope) >= OTHER_UNIT and clear:
            raise ReportError(
                f"times of rank {rank} pass {1 - line.slope:.4g} times as fast as those of rank "
                f"{lowest}: they are in different units, or steps of equal number are not the same",
                hint="number the steps alike on every rank, record it again, or leave it out",
            )


def _refine(groups: list[Group], middle: int, lines: dict[int, _Line], lowest: int) -> None:
    """Refit every rank, in place, to the consensus of its collectives, which do not err."""
    shared: dict[int, list[tuple[Floats, Floats]]] = {rank: [] for rank in lines}
    for group in groups:
        places = [place for place, rank in enumerate(group.ranks) if rank in lines]
        if len(places) < 2 or group.error:
            continue
        ends = [lines[group.ranks[place]].corrected(group.since(place, middle)) for place in places]
        consensus = medians(np.stack(ends, axis=1))
        for place, own in zip(places, ends, strict=True):
            shared[group.ranks[place]].append((consensus, own))

    def refitted(parts: list[tuple[Floats, Floats]]) -> _Line:
        when, ends = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(when, kind="stable")
        level, slope, spread = _fit(when[order], (when - ends)[order][None])
        return _Line(float(level[0]), float(slope[0]), float(spread[0]))

    # one by one: these steps are so short that threads would wait for each other
    changes = {rank: refitted(parts) for rank, parts in shared.items() if parts}
    anchor = changes.get(lowest, _Line(0.0, 0.0, 0.0))
    for rank, change in changes.items():
        line = lines[rank]
        lines[rank] = line._replace(
            level=line.level + change.level - anchor.level,
            slope=line.slope + change.slope - anchor.slope,
            spread=max(line.spread, change.spread),
        )


def _fit(
    when: Times | Floats, difference: Times | Floats, error: float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """Level, slope and spread of each row of `difference` over `when`.

    Args:
        when: ns since the middle, ascending; shape (n,).
        difference: ns; shape (m, n).
        error: of each difference; ns.

    Returns:
        Three arrays of shape (m,); the slope is 0 where it is not distinguishable from jitter, or
        where there are fewer than `LEAST_INSTANCES`.
    """
    elapsed, values = when.astype(np.float64), difference.astype(np.float64)
    half = len(elapsed) // 2
    run = elapsed[half:] - elapsed[: len(elapsed) - half]
    rise = values[:, half:] - values[:, : len(elapsed) - half]
    apart = (run > 0) & (len(elapsed) >= LEAST_INSTANCES)
    slope = np.zeros(len(values))
    if apart.any():
        slope = medians(rise[:, apart] / run[apart])
    level, spread = _level(values - slope[:, None] * elapsed)
    moves = np.abs(slope) * float(elapsed[-1] - elapsed[0]) >= DRIFT_SPREADS * (spread + error)
    if not moves.all():
        level[~moves], spread[~moves] = _level(values[~moves])
    return level, np.where(moves, slope, 0.0), spread


def _level(values: Floats) -> tuple[Floats, Floats]:
    level = medians(values)
    return level, ROBUST * medians(np.abs(values - level[:, None]))


def medians(values: Floats | Times) -> Floats:
    """The median of each row, as of `np.median`, which takes 3 times as long."""
    count = values.shape[1]
    half = count // 2
    if count > SORTED:
        ordered = np.partition(values, half, axis=1)
        lower = ordered[:, half] if count % 2 else ordered[:, :half].max(axis=1)
    else:
        ordered = np.sort(values, axis=1)
        lower = ordered[:, (count - 1) // 2]
    return np.asarray((lower + ordered[:, half]) / 2)
