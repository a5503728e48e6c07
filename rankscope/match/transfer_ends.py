"""Sends and receives that name no peers, each paired with its other side by when they end."""

from collections.abc import Collection
from itertools import chain
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.clocks import medians
from rankscope.match.communicators import (
    LARGEST_NS,
    LATENESS_SHARE,
    LEAST_SAMPLES,
    NEIGHBOURS,
    SAMPLES,
    SHARPEST_NS,
)
from rankscope.match.patterns import Numbers
from rankscope.match.point_to_point import EXCHANGE, SIDES
from rankscope.match.rank_axis import firsts
from rankscope.model.intervals import Floats, Times
from rankscope.store.tables import LONG
from rankscope.util.numbers import ROBUST

SEARCHED = 8
"""Iterations in which the calls of a side are searched among those of another."""

FARTHEST_NS = NEIGHBOURS * LARGEST_NS
"""Ends that differ by more belong to strangers, however much more it is."""


class Side(NamedTuple):
    """Calls of a rank in time order: their rows."""

    rank: int
    rows: Numbers


class Pair(NamedTuple):
    """Both sides of some transfers, which end together to `close` ns; None: unknown."""

    one: Side
    other: Side
    close: float
    sender: int | None = None
    receiver: int | None = None

    @property
    def label(self) -> str:
        """Who sends to whom; the same on both ranks."""
        if self.sender is not None:
            return f"rank {self.sender} to {self.receiver}"
        return "ranks {} and {}".format(*sorted((self.one.rank, self.other.rank)))


class Exchange(NamedTuple):
    """The calls of three ranks or more that send to each other, and end together."""

    sides: list[Side]
    label: str  # the same of all that make as many calls


def paired_by_ends(sent: pl.DataFrame, links: Collection[tuple[int, int]] = ()) -> pl.DataFrame:
    """Both sides of each transfer of which the reports name no peers, from when they end.

    A receive ends when its message has come. So the n-th calls of two streams that send to each
    other end at the same distance, but for those that came late: the streams are each other's
    nearest by far, and the ends agree better than the starts, as one waits for the other. Streams
    that start together as well, such as those of a tensor parallel group, tell nothing. Only if all
    streams with as many calls in each iteration find a partner are they paired: else the partner
    may have no report. Who leaves before the other came sends.

    Where a stage sends to both neighbours on one stream, the calls of the first and of the last
    stage are among those of another stream, at the same places of each iteration, and what is left
    of that one has a further partner. All that are left must find one.

    Streams that end together with as many others each, three or more in all, are an all-to-all.

    Args:
        sent: calls of COLLECTIVES on the device that send or receive, and name no peers.
        links: pairs of ranks that may send to each other, if known: starts need not vary then.

    Returns:
        As `named_transfers`; `sender` and `receiver` are null where both always end together. Of
        an all-to-all, they are null, `members` are more and `operation` is all_to_all.
    """
    rank, start = sent["rank"].to_numpy(), sent["start_ns"].to_numpy()
    stream = sent["communicator"].cast(LONG).to_physical().to_numpy()
    order = np.lexsort((start, stream, rank))
    edges = firsts(rank[order].astype(np.int64) << 32 | stream[order])
    ends = _Ends(sent, links)
    pairs, exchanges = ends.pairs(
        [Side(int(rank[rows[0]]), rows) for rows in np.split(order, edges[1:]) if len(rows)]
    )
    groups = [[each.one, each.other] for each in pairs] + [each.sides for each in exchanges]
    facts = pl.DataFrame(
        [
            *((each.sender, each.receiver, each.label, 2) for each in pairs),
            *((None, None, each.label, len(each.sides)) for each in exchanges),
        ],
        {**SIDES, "label": pl.String, "members": pl.Int64},
        orient="row",
    ).with_row_index("group")
    number = np.repeat(np.arange(len(groups)), [len(each) * len(each[0].rows) for each in groups])
    chosen = [side.rows for each in groups for side in each]
    nothing = np.empty(0, dtype=np.int64)
    return pl.concat(
        [sent[np.concatenate([*chosen, nothing])], facts[number]], how="horizontal"
    ).with_columns(
        pl.col("group").cast(pl.Int64),
        operation=pl.when(pl.col("members") > 2)
        .then(pl.lit("all_to_all", sent["operation"].dtype))
        .otherwise("operation"),
        ordinal=pl.Series(np.concatenate([*map(ends.ordinals, chosen), nothing])),
    )


class _Ends:
    """Pairs sides by when their calls end.

    Args:
        rows: the calls.
        links: the pairs of ranks that may be partners; none: any two.
    """

    def __init__(self, rows: pl.DataFrame, links: Collection[tuple[int, int]]) -> None:
        self._start, self._end = (rows[name].to_numpy() for name in ("start_ns", "end_ns"))
        self._iteration = rows["iteration"].to_numpy()
        self._links = np.array([(*each, *each[::-1]) for each in links]).reshape(-1, 2)

    def pairs(self, sides: list[Side]) -> tuple[list[Pair], list[Exchange]]:
        """The sides that belong together: two, and who of them sends; or more."""
        found: list[Pair] = []
        exchanges: list[Exchange] = []
        left: list[Side] = []
        groups = [*self._by_counts(sides).values()]
        for place, alike in enumerate(groups):
            pairs = self._directed(self._alike(alike, groups[:place] + groups[place + 1 :]))
            more = [] if pairs else self._exchanges(alike)
            found, exchanges = found + pairs, exchanges + more
            left += [] if pairs or more else alike
        return found + self._directed(self._parts(left)), exchanges

    def ordinals(self, rows: Numbers) -> Numbers:
        """The number of each of a side's calls within its iteration."""
        edges = firsts(self._iteration[rows])
        return np.arange(len(rows)) - np.repeat(edges, np.diff(edges, append=len(rows)))

    def _by_counts(self, sides: list[Side]) -> dict[bytes, list[Side]]:
        """The sides that have as many calls in each iteration, the fewest first."""
        alike: dict[bytes, list[Side]] = {}
        for side in sorted(sides, key=lambda each: len(each.rows)):
            alike.setdefault(self._iteration[side.rows].tobytes(), []).append(side)
        return alike

    def _alike(self, sides: list[Side], others: list[list[Side]]) -> list[Pair]:
        """Each side with its partner among them; all or none.

        None where a part of the calls of one side is nearer by far to another: the first and the
        last stage of a pipeline keep the same pace, but each ends with its neighbour.
        """
        partner, close = self._partners(sides, sides)
        if -1 in partner:
            return []
        whole = self._within(sides[0], [[sides[partner[0]]]])
        apart = LARGEST_NS if whole is None else whole[2]
        if apart > NEIGHBOURS * SHARPEST_NS:
            parts = self._within(sides[0], others), *(self._within(e[0], [sides]) for e in others)
            if any(part is not None and NEIGHBOURS * part[2] < apart for part in parts):
                return []
        pairs = [(one, other) for one, other in enumerate(partner) if one < other]
        return [Pair(sides[one], sides[other], close) for one, other in pairs]

    def _exchanges(self, sides: list[Side]) -> list[Exchange]:
        """The sides by who ends together, if all groups are of one size of at least three.

        The ends of members agree, those of others do not, and no two members start together.
        """
        if len(sides) < 3 or len(sides[0].rows) < LEAST_SAMPLES:
            return []
        apart, late = (
            _distances(*[_steps(times, sides)] * 2) for times in (self._end, self._start)
        )
        nearest = np.sort(apart, axis=1)[:, 1]  # but itself
        close = min(max(NEIGHBOURS * float(np.median(nearest)), SHARPEST_NS), LARGEST_NS)
        near = apart <= close
        groups, size = np.unique(near, axis=0), int(near[0].sum())
        if size < 3 or (near.sum(axis=1) != size).any() or len(groups) * size != len(sides):
            return []
        together = max(float(apart[near].max()), SHARPEST_NS)
        others = np.where(near, np.inf, apart).min()
        ready = late[near & ~np.eye(len(sides), dtype=np.bool_)].min()
        if others < NEIGHBOURS * together or together > LATENESS_SHARE * ready:
            return []
        count = round(len(sides[0].rows) / len(np.unique(self._iteration[sides[0].rows])))
        members = [[sides[each] for each in np.flatnonzero(of)] for of in groups]
        return [Exchange(of, f"{EXCHANGE}*{count}") for of in members]

    def _parts(self, sides: list[Side]) -> list[Pair]:
        """Each side with a part of another one's calls, whose rest is a side again; all or none."""
        found: list[Pair] = []
        while sides:
            few, *others = self._by_counts(sides).values()
            if pairs := self._alike(few, others):
                found, sides = found + pairs, [*chain(*others)]
                continue
            within = self._within(few[0], others)
            if within is None:
                return []
            number, places, _ = within
            parts = [self._split(each, places) for each in others[number]]
            partner, close = self._partners(few, [part for part, _ in parts])
            if partner[0] < 0:
                return []
            found += [
                Pair(few[one], parts[other][0], close)
                for one, other in enumerate(partner)
                if other >= 0
            ]
            rest = [
                parts[other][1] if other in partner else side
                for other, side in enumerate(others[number])
            ]
            alone = [few[one] for one, other in enumerate(partner) if other < 0]
            sides = [*alone, *rest, *chain(*others[:number], *others[number + 1 :])]
        return found

    def _by_iteration(self, side: Side) -> Numbers | None:
        """The rows of a side, a line for each iteration, if all have equally many."""
        counts = np.unique(self._iteration[side.rows], return_counts=True)[1]
        return side.rows.reshape(len(counts), -1) if len({*counts.tolist()}) == 1 else None

    def _split(self, side: Side, places: Numbers) -> tuple[Side, Side]:
        """The calls at these places of each iteration, and the others."""
        rows = side.rows.reshape(len(np.unique(self._iteration[side.rows])), -1)
        rest = np.delete(rows, places, axis=1)
        return Side(side.rank, rows[:, places].ravel()), Side(side.rank, rest.ravel())

    def _within(self, side: Side, others: list[list[Side]]) -> tuple[int, Numbers, float] | None:
        """Among which sides its partner is, the places of its calls, how far these end apart."""
        own, best, found = self._by_iteration(side), float(LARGEST_NS), None
        for number, alike in enumerate(others):
            linked = self._linked([side], alike)[0]
            for other in (alike[each] for each in np.flatnonzero(linked)):
                rows = self._by_iteration(other)
                if own is None or rows is None or len(rows) != len(own):
                    break
                chosen = np.unique(np.linspace(0, len(own) - 1, SEARCHED).astype(np.int64))
                places, apart = _places(self._end[own[chosen]], self._end[rows[chosen]])
                if apart < best:
                    best, found = apart, (number, places, apart)
        return found

    def _linked(self, sides: list[Side], others: list[Side]) -> NDArray[np.bool_]:
        """Whether two sides may be partners; shape (sides, others)."""
        one, other = (np.array([each.rank for each in of]) for of in (sides, others))
        if not len(self._links):
            return np.asarray(one[:, None] != other)
        most = 1 + max(one.max(), other.max(), self._links.max())
        linked: NDArray[np.bool_] = np.isin(one[:, None] * most + other, self._links @ [most, 1])
        return linked

    def _partners(self, sides: list[Side], others: list[Side]) -> tuple[list[int], float]:
        """The place of each side's partner among others (-1: nobody), and `Pair.close`.

        Args:
            sides: they have as many calls as the others.
            others: may be the same.
        """
        linked = self._linked(sides, others)
        if not linked.any() or len(sides[0].rows) < LEAST_SAMPLES:
            return [-1] * len(sides), 0.0
        apart = _distances(_steps(self._end, sides), _steps(self._end, others))
        apart[~linked] = np.inf
        nearest, places = apart.argmin(axis=1), np.arange(len(sides))
        least = apart[places, nearest]
        usual = float(np.median(least[least < FARTHEST_NS])) if least.min() < FARTHEST_NS else 0.0
        close = min(max(NEIGHBOURS * usual, SHARPEST_NS), LARGEST_NS)
        met = least <= close
        met &= apart[:, nearest].argmin(axis=0) == places
        beyond = apart.copy()
        beyond[places, nearest] = np.inf
        second = np.minimum(beyond.min(axis=1), beyond[:, nearest].min(axis=0))
        met &= second >= NEIGHBOURS * np.maximum(least, SHARPEST_NS)
        if not len(self._links):
            other_starts = _steps(self._start, [others[each] for each in nearest])
            late = ROBUST * medians(np.abs(_steps(self._start, sides) - other_starts))
            met &= least <= LATENESS_SHARE * late
        return np.where(met, nearest, -1).tolist(), close

    def _directed(self, pairs: list[Pair]) -> list[Pair]:
        """The pairs with who sends; none if both sides of one left before the other came."""
        directed = []
        for pair in pairs:
            one, other, close, *_ = pair
            between = _between(self._end[one.rows], self._end[other.rows])
            left = [
                bool((self._end[a.rows] + ahead + close < self._start[b.rows]).any())
                for a, b, ahead in ((one, other, between), (other, one, -between))
            ]
            if all(left):
                return []
            names = (one.rank, other.rank) if left[0] else (other.rank, one.rank)
            directed.append(Pair(one, other, close, *names) if any(left) else pair)
        return directed


def _between(one: Times, other: Times) -> Floats:
    """How far the clock of one side is ahead of the other's at the end of each call, ns.

    The clocks drift: half of the run is compared with the other half.
    """
    apart, half = (other - one).astype(np.float64), len(one) // 2
    drift = np.median((apart[-half:] - apart[:half]) / np.maximum(one[-half:] - one[:half], 1))
    drifted = drift * (one - one[0])
    return np.asarray(np.median(apart - drifted) + drifted)


def _steps(times: Times, sides: list[Side]) -> Floats:
    """The time from some calls of each side to the next ones, ns; shape (sides, SAMPLES)."""
    rows = np.stack([each.rows for each in sides])
    chosen = np.unique(np.linspace(0, rows.shape[1] - 2, SAMPLES).astype(np.int64))
    return (times[rows[:, chosen + 1]] - times[rows[:, chosen]]).astype(np.float64)


def _distances(steps: Floats, others: Floats) -> Floats:
    """Robust spread of the difference between rows, ns; inf beyond FARTHEST_NS.

    Shape (n, k) of (n, m) and (k, m).
    """
    apart = np.full((len(steps), len(others)), np.inf)
    for place, row in enumerate(steps):
        far = np.abs(others - row)
        near = np.flatnonzero(2 * (far < FARTHEST_NS).sum(axis=1) >= len(row))
        apart[place, near] = ROBUST * medians(far[near])
    return apart


def _places(ends: Times, others: Times) -> tuple[Numbers, float]:
    """The places among others' ends where ends are, and how far apart those of a place are, ns.

    Args:
        ends: a line for each iteration, as `others`, which have more in each.
    """
    count = others.shape[1]
    apart = 2 * (max(ends.max(), others.max()) - min(ends.min(), others.min()))
    line = np.arange(len(ends))[:, None] * apart  # searched in one row, iteration by iteration
    row = (others + line).ravel()
    best, found = np.inf, np.empty(0, dtype=np.int64)
    for first in range(count - ends.shape[1] + 1):
        wanted = ends + line + (others[:, first] - ends[:, 0])[:, None]
        after = np.clip(np.searchsorted(row, wanted), 1, len(row) - 1)
        nearest = after - (wanted - row[after - 1] < row[after] - wanted)
        far = float(np.median(np.abs(wanted - row[nearest]), axis=0).max())
        places = np.median(nearest - np.arange(len(ends))[:, None] * count, axis=0)
        inside = places[0] >= 0 and places[-1] < count and (np.diff(places) >= 1).all()
        if far < best and inside:
            best, found = far, places.astype(np.int64)
    return found, best
