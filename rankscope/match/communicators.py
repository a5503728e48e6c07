"""The communicators of a run: by name in the metadata, else inferred from the ends."""

from collections.abc import Callable
from functools import reduce

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.clocks import ASSUMED_DRIFT_PPM, medians
from rankscope.measure.collectives import NAMED
from rankscope.model.intervals import Floats
from rankscope.util.numbers import ROBUST

STREAM = ["rank", "place", "communicator"]
"""Columns that identify a stream of a run."""

SHARPEST_NS, LARGEST_NS = 2_000, 100_000
"""Bounds, ns, on the agreement of ends within one communicator."""

NEIGHBOURS = 3
"""Members' ends agree within this many times the spread between a rank and its nearest partner."""

LATENESS_SHARE = 0.2
"""Ends of members that agree less well still agree this many times better than their arrivals."""

LEAST_SAMPLES = 5
"""Fewest instances that tell how well ends agree."""

FEWEST_SAMPLES = 3
"""Fewest instances whose ends tell groups of one size apart, if they agree each time."""

SPLITTABLE = ("all_gather", "all_reduce", "all_to_all", "barrier", "reduce_scatter")
"""Operations that no rank can leave before all ranks have arrived, ascending."""

ROOTED = "rooted"
"""Operations that a rank leaves once those have arrived from which its data comes."""

MATCHED = (*SPLITTABLE, ROOTED)
"""Operations whose calls are matched."""

EQUAL_SIZES = ("all_reduce", "all_gather", "reduce_scatter")
"""Operations whose message has the same size on all participants."""

SAMPLES = 64
"""Number of pairs of instances compared between two ranks."""

Middle = Callable[[list[int], int], pl.DataFrame]
"""`Calls.middle`; operations are places in SPLITTABLE."""


def labelled(streams: pl.DataFrame) -> pl.DataFrame:
    """stream, rank, place, communicator, label (text, the same on every rank).

    Args:
        streams: the result of `Calls.streams`. A stream is a rank's calls with the same `place`
            and `communicator` of COLLECTIVES.
    """
    named = pl.col("communicator").str.starts_with(f"{NAMED} ")
    host = pl.col("place") == "host"
    return (
        streams.with_columns(
            pl.col("rank").cast(pl.Int64), pl.col("place", "communicator").cast(pl.String)
        )
        .sort("rank", "place", "first", "communicator")
        .with_columns(nth=pl.int_range(pl.len()).over("rank", "place", "habit"))
        .select(
            "stream",
            *STREAM,
            label=pl.when(named | host)
            .then("communicator")
            .otherwise(pl.format("{} {} {}", "place", "habit", "nth")),
        )
    )


def communicators(streams: pl.DataFrame, calls: Middle, pipelined: bool) -> pl.DataFrame:
    """The communicator of each rank's stream (or kind of host call).

    A stream number is private to a rank. Streams that carry the same operations equally often
    per iteration are candidates for one communicator, the n-th such stream of a rank for the
    n-th; within the candidates, members of one communicator leave its collectives together.

    Args:
        streams: the result of `labelled`.
        calls: `Calls.middle`.
        pipelined: whether ranks also send to and receive from each other.

    Returns:
        `streams` with `group` (a number, unique per label and set of members) and `sure` (whether
        more than the sequence of calls tells who its members are).
    """
    labels = streams.filter(pl.col("place") == "device")["label"].n_unique()
    spanning = labels == 1 and not pipelined
    parts = []
    for (label, place), part in sorted(
        streams.partition_by("label", "place", as_dict=True).items()
    ):
        group, sure = pl.lit(0, pl.Int64), True
        # All ranks of a job are linked, so a single candidate must be the communicator that links
        # them. Ends of host calls depend on the scheduler and prove nothing.
        if place == "device" and not spanning and not str(label).startswith(NAMED):
            group_of = _groups(calls, part.select("stream", "rank"))
            sure = group_of is not None
            if group_of is not None:
                group = pl.col("rank").replace_strict(group_of, return_dtype=pl.Int64)
        parts.append(part.with_columns(group=group, sure=pl.lit(sure)))
    if not parts:
        return streams.with_columns(group=pl.lit(None, pl.Int64), sure=pl.lit(True))
    return pl.concat(parts).with_columns(
        group=pl.struct("place", "label", "group").rank("dense").cast(pl.Int64) - 1
    )


def _groups(calls: Middle, streams: pl.DataFrame) -> dict[int, int] | None:
    """rank → number of its group, by the agreement of ends; None with too few to measure it.

    Of fewer than LEAST_SAMPLES, all ends must agree, and the groups must have one size.

    The time between two ends is the same for all members, whatever the offsets of their clocks,
    where it is too short for drift. Ranks that only do the same wander apart meanwhile, the longer
    the more. Ends of other communicators may coincide as well. Only ranks whose ends agree closely
    are therefore taken for members at once.
    Ends that agree less closely count only where a rank waits for somebody outside its group.

    Args:
        calls: `Calls.middle`.
        streams: stream and rank of the candidates, one stream per rank.
    """
    ranks = streams["rank"].sort().to_list()
    common = (
        calls(streams["stream"].to_list(), SAMPLES)
        .with_columns(present=pl.len().over("operation", "iteration", "ordinal"))
        .filter(pl.col("present") == len(ranks))
        .sort("rank", "iteration", "operation", "ordinal")
    )
    count = common.height // max(len(ranks), 1)
    if count < FEWEST_SAMPLES:
        return None
    shape = (len(ranks), count)
    ends, arrivals = (
        common[name].to_numpy().reshape(shape)[:, : SAMPLES + 1].astype(np.float64)
        for name in ("end_ns", "arrival_ns")
    )
    lag = _steady_lag(ends)
    between = ends[:, lag:] - ends[:, :-lag]
    few = count < LEAST_SAMPLES
    apart = _furthest(between) if few else distances(between)
    if "bytes" in common.columns:
        apart[_other_sizes(common, shape)] = np.inf
    strangers = apart.copy()
    np.fill_diagonal(strangers, np.inf)
    nearest = float(np.median(strangers.min(axis=1)))
    del strangers
    close = float(np.clip(NEIGHBOURS * nearest, SHARPEST_NS, LARGEST_NS))
    group = _linked(apart <= close)
    if few:
        alike = len({*np.unique(group, return_counts=True)[1].tolist()}) == 1
        return dict(zip(ranks, np.array(ranks)[group].tolist(), strict=True)) if alike else None
    kinds = common.select(kind=pl.struct("operation", "ordinal").rank("dense"))["kind"]
    kind_numbers = kinds.head(ends.shape[1]).to_numpy()
    if np.unique(kind_numbers, return_counts=True)[1].max() < LEAST_SAMPLES:
        kind_numbers = np.zeros_like(kind_numbers)  # too few of a kind to know how long they take
    arrived = arrivals[:, lag:] - arrivals[:, :-lag]
    group = _completed(group, apart, arrived, ends - arrivals, kind_numbers)
    return {rank: ranks[first] for rank, first in zip(ranks, group.tolist(), strict=True)}


def _steady_lag(ends: Floats) -> int:
    """Over how many ends two clocks drift by less than a quarter of `SHARPEST_NS`.

    At most half of all.

    Args:
        ends: in ns; shape (ranks, instances).
    """
    own = ends[0]
    apart = [np.median(own[lag:] - own[:-lag]) for lag in range(1, len(own) // 2 + 1)]
    most = SHARPEST_NS / 4 * 1e6 / ASSUMED_DRIFT_PPM
    return max(sum(1 for each in apart if each <= most), 1)


def _other_sizes(common: pl.DataFrame, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Whether most messages of two ranks differ in size, where they cannot; shape (ranks, ranks).

    Args:
        common: operation and bytes (negative: unknown), instance by instance for each rank.
        shape: number of ranks and of instances.
    """
    operations = [SPLITTABLE.index(operation) for operation in EQUAL_SIZES]
    equal = common["operation"].head(shape[1]).is_in(operations).to_numpy()
    size = common["bytes"].to_numpy().reshape(shape)[:, equal][:, :SAMPLES]
    most = max(size.shape[1], 1) / 2
    return np.stack([((size != row) & (size >= 0) & (row >= 0)).sum(axis=1) > most for row in size])


def _linked(near: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first rank of each rank's group; ranks that are near each other share one.

    Args:
        near: whether two ranks are near, symmetric; shape (ranks, ranks).
    """
    group = np.full(len(near), -1)
    for first in range(len(near)):
        fresh = np.zeros(len(near), dtype=bool)
        fresh[first] = group[first] < 0
        while fresh.any():
            group[fresh] = first
            fresh = near[fresh].any(axis=0) & (group < 0)
    return group


def _completed(
    group: NDArray[np.int64],
    apart: Floats,
    arrived: Floats,
    durations: Floats,
    kinds: NDArray[np.uint32],
) -> NDArray[np.int64]:
    """The groups, each merged with its nearest ones until it is complete.

    In a complete group the last member waits for nobody, so that its call, the shortest, always
    takes about as long.

    Args:
        group: the first rank of each rank's group.
        apart: how far the ends of two ranks vary, ns.
        arrived: the time between two arrivals, over as many ends as `apart`, ns; a row a rank.
        durations: of the calls from arrival to end, ns; shape (ranks, instances).
        kinds: instances of one kind take equally long, if nobody is waited for.
    """
    limit: Floats | None = None
    while True:
        firsts = np.unique(group)
        shortest = np.stack([durations[group == first].min(axis=0) for first in firsts])
        for kind in np.unique(kinds):
            shortest[:, kinds == kind] -= np.median(shortest[:, kinds == kind], axis=1)[:, None]
        # A group that holds the last rank half of the time waits in the other half.
        low, high = np.quantile(shortest, (0.25, 0.75), axis=1)
        varies = ROBUST / 2 * (high - low)
        if not ((apart < varies.max()) & (group[:, None] != group)).any():
            return group  # whatever the limits: who waits varies by more than the ends do
        if limit is None:  # as costly as `apart`
            limit = LATENESS_SHARE * distances(arrived)
        waiting = varies[np.searchsorted(firsts, group)][:, None] > limit
        possible = (apart <= limit) & (group[:, None] != group)
        distance = np.where(possible & (waiting | waiting.T), apart, np.inf)
        joined = np.zeros(distance.shape, dtype=bool)
        for first in firsts:
            rows = distance[group == first]
            if np.isfinite(rows).any():
                joined[first, int(rows.argmin()) % len(group)] = True
        if not joined.any():
            return group
        group = _linked(joined | joined.T | (group[:, None] == group))


def _furthest(values: Floats) -> Floats:
    """The largest difference between any two rows; shape (n, n) of (n, m)."""
    differences = (np.abs(np.subtract.outer(column, column)) for column in values.T)
    return reduce(np.maximum, differences)


def distances(values: Floats) -> Floats:
    """Robust spread of the difference between any two rows; shape (n, n) of (n, m)."""
    spreads = np.zeros((len(values), len(values)))
    for place, row in enumerate(values):
        spreads[place, place:] = ROBUST * medians(np.abs(values[place:] - row))
    return np.maximum(spreads, spreads.T)
