"""Could chance have made these ranks slow? Ranks are exchanged within an iteration.

See METHOD.md#verdict.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import NormalDist

import numpy as np

from rankscope.judge.levels import ALPHA, FEW, NOISE, RARE, SHUFFLES
from rankscope.model.intervals import Flags, Floats, Index

MOST_SHUFFLED = 20_000_000
"""Most cells that are shuffled in all. Of a larger table the sums are drawn from a normal
distribution, because they add many cells."""


def chance_of_sets(
    parts: Sequence[Floats],
    roles: Index,
    sets: Sequence[tuple[int, Index]],
) -> Floats:
    """How likely such sums over iterations are if no rank in particular is slow.

    A permutation test: in every iteration by itself, the ranks of a role are exchanged at random.
    The sum of a set of k ranks is compared with those of the k largest ranks. The largest of the
    standardised sums over all sizes k and all parts counts, so that trying many makes nobody slow
    (Westfall and Young, Resampling-Based Multiple Testing, 1993, single step).

    Args:
        parts: rank by iteration, of each part of the excess that is tested. The ranks of all parts
            are exchanged together.
        roles: the role of each rank; ranks are exchanged within it.
        sets: the part, and ranks (rows).

    Returns:
        For each set the probability that shuffled ranks reach what it has.
    """
    own = [parts[part][rows].sum() for part, rows in sets]
    which, last = np.array([(part, len(rows) - 1) for part, rows in sets]).T
    cells = np.stack(parts)
    order = np.lexsort((*cells.sum(axis=2), roles))  # the order of ranks changes nothing
    cells, roles = cells[:, order], roles[order]
    draw = np.random.default_rng(1)
    exact = cells.size * SHUFFLES <= MOST_SHUFFLED
    groups = [np.flatnonzero(roles == role) for role in np.unique(roles)]
    mean, spread = np.empty(cells.shape[:2]), np.empty(cells.shape[:2])
    for members in groups:
        mean[:, members] = cells[:, members].mean(axis=1).sum(axis=1)[:, None]
        spread[:, members] = np.sqrt(cells[:, members].var(axis=1).sum(axis=1))[:, None]
    shuffled = np.empty((SHUFFLES, len(own)))
    for shuffle in range(SHUFFLES):
        if exact:
            sums = np.empty(cells.shape[:2])
            for members in groups:
                order = draw.random((len(members), cells.shape[2])).argsort(axis=0)
                exchanged = np.take_along_axis(cells[:, members], order[None], axis=1)
                sums[:, members] = exchanged.sum(axis=2)
        else:
            sums = mean + spread * draw.standard_normal(mean.shape)
        shuffled[shuffle] = np.sort(sums, axis=1)[:, ::-1].cumsum(axis=1)[which, last]
    middle = shuffled.mean(axis=0)
    deviation = np.maximum(shuffled.std(axis=0), 1e-9 * np.abs(middle) + 1e-300)
    observed = (np.array(own) - middle) / deviation
    extremes = ((shuffled - middle) / deviation).max(axis=1)
    reached = (extremes[:, None] >= observed - 1e-6).sum(axis=0)  # sums differ in their last digits
    return np.asarray((1 + reached) / (1 + SHUFFLES))


def chance_of_last(cells: Floats, roles: Index, rows: Index) -> float:
    """How likely chance makes the last of some ranks that slow, beside those that are not of them.

    Args:
        cells: rank by iteration.
        roles: the role of each rank.
        rows: the ranks.
    """
    beside = np.setdiff1d(np.arange(len(roles)), rows[:-1])
    last = np.flatnonzero(beside == rows[-1])
    return float(chance_of_sets([cells[beside]], roles[beside], [(0, last)])[0])


def chance_of_levels(
    cells: Floats,
    roles: Index,
    hosts: Index,
    rows: Index,
    suspects: Index,
    then: Flags | None = None,
    changes: bool = False,
    nature: float = 0.0,
) -> float:
    """How likely noise that lasts, or that a host's ranks share, lifts ranks as far as these are.

    Where a rank that is slow in one iteration is slow in the next one, too, these are no
    independent evidence; nor are ranks of a host that are slow together. The ranks' level is
    compared with how far the others' levels scatter, by the blocks of iterations and the groups of
    ranks that are independent. So are the highest of as many normal levels.

    Args:
        cells: rank by iteration.
        roles: the role of each rank; ranks are compared within it.
        hosts: the host of each rank.
        rows: the ranks. The chance is 0 where they have no two other ranks of a role.
        suspects: the ranks and others that may be slow. Their levels tell nothing of noise.
        then: the iterations in which the ranks are slow; None: all.
        changes: whether the cells are changes of ranks. The chance is 1 where all other ranks are
            on one host, and some of these on another: nobody knows how hosts change.
        nature: how far ranks differ although none is slow; 0: nobody knows. Where levels of others
            on the same hosts scatter by more, and are constant, this is the noise, as a standard
            deviation. Where they scatter by less than half of it, `FEW` further ranks count that
            scatter by half, if the chance is smaller then (Smyth, Stat. Appl. Genet. Mol. Biol.
            2004: the moderated t-test).
    """
    others = np.isin(roles, roles[rows])
    ranks, on_hosts = int(others.sum()), np.unique(hosts[others], return_inverse=True)[1]
    others[suspects] = False
    known, count = len(np.unique(roles[others])), int(others.sum())
    if count - known < 1:
        return 0.0
    elsewhere = np.setdiff1d(hosts[rows], hosts[others])
    if changes and len(elsewhere) and len(np.unique(hosts[others])) == 1:
        return 1.0
    cells = cells.copy()
    for role in np.unique(roles[others]):
        cells[roles == role] -= cells[(roles == role) & others].mean(axis=0)
    level = float(cells[rows].mean())
    calm, beside = cells[others], cells[suspects]
    scatter = sqrt(float((calm * calm).mean()))
    if scatter > nature > 0 and not len(elsewhere) and _are_constant(calm):
        levels = np.random.default_rng(1).standard_normal((SHUFFLES, ranks))
        return float((_lead(levels, len(rows), count) * nature >= level).mean())
    beside = beside - beside.mean(axis=1, keepdims=True)
    if then is not None and not then.all():
        for some in (then, ~then):
            part = cells[np.ix_(rows, some)]
            beside[np.ix_(np.isin(suspects, rows), some)] = part - part.mean(axis=1, keepdims=True)
    both = np.append(np.flatnonzero(others), suspects)
    reached = 0
    # what the suspects do beside their levels may be noise that lasts longer
    for noise, of in ((calm, both[:count]), (np.vstack([calm, beside]), both)):
        # one in (1 + r) / (1 - r) iterations of a first-order autoregressive process is independent
        length, square = noise.shape[1], float((noise * noise).sum())
        product = float((noise[:, :-1] * noise[:, 1:]).sum()) * length / max(length - 1, 1)
        r = max(product / square, 0.0) if square > 0 else 0.0
        blocks = max(1, round(length * (1 - r) / (1 + r)))
        # and of the ranks of a host one in `alike`
        common = in_common(noise - mean_of(noise, roles[of]), roles[of], hosts[of])
        alike = 1 + (ranks / (on_hosts.max() + 1) - 1) * common
        # degrees of freedom: of the others' levels, and within the ranks
        free = max(count - known * alike, 0.0)
        degrees = max(len(noise) - len(np.unique(roles[of])) * alike, 0.0) * (blocks - 1)
        if free + degrees <= 0:
            return 1.0
        error = square / length / (free + degrees)
        draw = np.random.default_rng(1)
        levels = sqrt(1 - common) * draw.standard_normal((SHUFFLES, ranks))
        within = 2 * alike * draw.standard_gamma(degrees / alike / 2, SHUFFLES)  # perhaps 0
        levels += sqrt(common) * draw.standard_normal((SHUFFLES, ranks))[:, on_hosts]
        lead = _lead(levels, len(rows), count)
        squares = levels[:, :count].var(axis=1) * count / max(count - alike, 1) * free + within
        counts = []
        for further in (0, FEW)[: 1 + (error <= (nature / 2) ** 2)]:
            all_free = free + degrees + further
            variance = (error * (free + degrees) + (nature / 2) ** 2 * further) / all_free
            drawn = (squares + 2 * draw.standard_gamma(further / 2, SHUFFLES)) / all_free
            counts.append(int((lead / np.sqrt(drawn) * sqrt(variance) >= level).sum()))
        reached = max(reached, min(counts))
    return reached / SHUFFLES


def _lead(levels: Floats, most: int, least: int) -> Floats:
    """How far the mean of the `most` highest of each row lies above that of the `least` lowest.

    The rows are sorted in place.
    """
    levels.sort(axis=1)
    return np.asarray(levels[:, -most:].mean(axis=1) - levels[:, :least].mean(axis=1))


def _are_constant(cells: Floats) -> bool:
    """Whether the levels of ranks hardly change from the first half to the second.

    Args:
        cells: rank by iteration.
    """
    if cells.shape[1] < 2:
        return False
    first, second = (each.mean(axis=1) for each in np.array_split(cells, 2, axis=1))
    return bool(np.abs(second - first).mean() <= RARE * np.abs(first + second).mean() / 2)


def in_common(noise: Floats, roles: Index, hosts: Index) -> float:
    """The share of the variance that ranks of a host have in common, from 0 to 1.

    The intraclass correlation of a one-way analysis of variance in each iteration (Shrout, Fleiss,
    Psychol. Bull. 1979: ICC(1)). 0 where no role is on several hosts, or no host has several ranks.

    Args:
        noise: rank by iteration, around the mean of the role.
        roles: of the ranks.
        hosts: of the ranks.
    """
    groups = np.unique(np.stack((roles, hosts)), axis=1, return_inverse=True)[1].ravel()
    ranks, count = len(groups), int(groups.max()) + 1
    free, size = count - len(np.unique(roles)), ranks / count
    if free < 1 or ranks == count:
        return 0.0
    shared = float((mean_of(noise, groups) ** 2).sum())
    rest = max(float((noise**2).sum()) - shared, 0.0) / (ranks - count)
    shared /= free
    whole = shared + (size - 1) * rest
    return max((shared - rest) / whole, 0.0) if whole > 0 else 0.0


def mean_of(values: Floats, groups: Index) -> Floats:
    """The mean of each row's group of rows, by column."""
    means = np.empty_like(values)
    for group in np.unique(groups):
        means[groups == group] = values[groups == group].mean(axis=0)
    return means


def chance_of_largest(
    amounts: Floats, others: Floats, noise: float, deviation: float = 0.0, free: float = inf
) -> float:
    """How likely it is that the largest values lie apart from all others as far as they do.

    What exceeds the noise is taken as a power law of unknown index. The logarithms of the ratios of
    successive values, times their place from the top, are then independent and exponential (Rényi).
    So the gap below the n largest compares with the sum of the m others over the noise (Hill's
    estimator) whatever the index is: (sum / (gap + sum)) ** m. As if `FEW` further values lay at
    the noise, because one or two tell nothing of the index. Where none exceeds the noise, the index
    is that of a normal distribution at `NOISE` deviations, which is NOISE ** 2. Where few values
    tell of the noise, the largest of as many values of Student's distribution may be as large.

    Args:
        amounts: the values in question.
        others: all others.
        noise: up to which they are noise.
        deviation: of the noise alone.
        free: its degrees of freedom.
    """
    tail = others[others > noise]
    largest = float(tail.max(initial=noise))
    if not len(amounts) or amounts.min() <= largest:
        return 1.0
    if not len(tail):
        chance = float((noise / amounts.min()) ** (len(amounts) * NOISE**2))
        if free >= NOISE**2:
            return chance
        drawn = np.random.default_rng(1).standard_t(free, (SHUFFLES, len(amounts) + others.size))
        reached = np.sort(drawn, axis=1)[:, -len(amounts)] * deviation >= amounts.min()
        return max(chance, float(reached.mean()))
    tail_sum = float(np.log(tail / (noise or tail.min())).sum())
    gap = len(amounts) * float(np.log(amounts.min() / largest))
    return float((tail_sum / (gap + tail_sum)) ** (len(tail) + FEW))


def iterations_to_settle(chance: float, count: int) -> int:
    """About how many iterations would bring a probability down to ALPHA, if all stays alike.

    0 where the chance is not rare: who leads then need not lead in more iterations. The distance
    from the mean, in standard deviations, grows with the square root of their number.

    Args:
        chance: of `count` iterations.
        count: of iterations.
    """
    if chance > RARE:
        return 0
    now, wanted = (NormalDist().inv_cdf(1 - max(each, 1e-9)) for each in (chance, ALPHA))
    return max(count + 1, int(np.ceil(count * (wanted / now) ** 2)))
