"""Collectives of many ranks as columns, made with numpy: no reports, only what matching is given.

Every rank is in a tensor-parallel group of neighbours and in a data-parallel one across them, so
that no communicator spans all ranks.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.match.collectives import Matched, joined, slices
from rankscope.match.wait_sums import Exposed
from rankscope.match.waits import WaitedCollectives, by_arrival, by_duration
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled

EPOCH_NS = 1_795_249_000_000_000_000
COMPUTE_NS = 4_000_000
TRANSFER_NS = 300_000
STREAMS = {"t": "stream 7", "d": "stream 13"}


@dataclass(frozen=True)
class World:
    """Collectives, and what is true of them.

    `offsets_ns` and `drifts` (a fraction) are how much each rank's clock is ahead of true time
    at true time 0, and how much faster it goes. `waited`: rank, true_ns (waits summed).
    """

    collectives: pl.DataFrame  # COLLECTIVES
    utc_starts: dict[int, int | None]
    offsets_ns: NDArray[np.float64]
    drifts: NDArray[np.float64]
    end_ns: float  # true time at which the run ends; it starts at 0
    waited: pl.DataFrame

    def correction(self, rank: int, utc_ns: int) -> float:
        """What to add to a rank's own UTC to get the lowest rank's when that one's is `utc_ns`."""
        moment = (utc_ns - EPOCH_NS - self.offsets_ns[0]) / (1 + self.drifts[0])
        apart = self.offsets_ns[0] - self.offsets_ns[rank]
        return float(apart + moment * (self.drifts[0] - self.drifts[rank]))


def world(
    ranks: int = 8,
    iterations: int = 30,
    seed: int = 0,
    *,
    tp: int = 2,
    calls: str = "ttdttd",
    skew_ns: float = 5_000,
    late_ns: float = 30_000,
    offset_s: float = 5.0,
    drift_ppm: float = 50.0,
    per_clock: int = 1,
    host_skew_ns: float = 0,
    slow_host_ns: float = 0,
    sizes: tuple[float, ...] = (1,),
    compute_ns: float = COMPUTE_NS,
) -> World:
    """A run of the calls `t` (tensor-parallel) and `d` (data-parallel), in every iteration.

    Args:
        ranks: number of ranks.
        iterations: number of iterations.
        seed: of everything random.
        tp: ranks of a tensor-parallel group.
        calls: what an iteration calls, in order.
        skew_ns: ends of one instance lie within this.
        late_ns: spread of how late a rank is to a call.
        offset_s: bound of the clocks' offsets.
        drift_ppm: bound of their drifts.
        per_clock: neighbours that share a clock.
        host_skew_ns: ends of one instance on different hosts lie within this, besides.
        slow_host_ns: the first `tp` ranks need so much longer before every second call.
        sizes: transfers of the calls of an iteration, in `TRANSFER_NS`, repeated.
        compute_ns: between two calls.
    """
    rng = np.random.default_rng(seed)
    clocks = -(-ranks // per_clock)
    offsets = np.repeat(rng.uniform(-offset_s, offset_s, clocks) * 1e9, per_clock)[:ranks]
    drifts = np.repeat(rng.uniform(-drift_ppm, drift_ppm, clocks) * 1e-6, per_clock)[:ranks]
    who = np.arange(ranks)
    groups = {"t": who // tp, "d": who % tp}
    now = np.zeros(ranks)
    arrivals = np.empty((iterations * len(calls), ranks))
    ends = np.empty_like(arrivals)
    waits = np.zeros(ranks)
    for call in range(len(arrivals)):
        now += compute_ns + np.abs(rng.normal(0, late_ns, ranks))
        now[:tp] += slow_host_ns * (call % 2)
        group = groups[calls[call % len(calls)]]
        last = np.zeros(group.max() + 1)
        np.maximum.at(last, group, now)
        waits += last[group] - now
        arrivals[call] = now
        now = last[group] + TRANSFER_NS * sizes[call % len(calls) % len(sizes)]
        now += rng.uniform(0, skew_ns, ranks)
        if host_skew_ns:
            now += rng.uniform(0, host_skew_ns, ranks)[who // (2 * tp)]
        ends[call] = now
    table = pl.DataFrame(
        {
            "place": ["device"] * len(calls),
            "communicator": [STREAMS[kind] for kind in calls],
            "operation": ["all_reduce"] * len(calls),
            "ordinal": [calls[:place].count(kind) for place, kind in enumerate(calls)],
            "gradient": [kind == "d" for kind in calls],
            "call": range(len(calls)),
        }
    )
    own = {"arrival_ns": arrivals * (1 + drifts), "end_ns": ends * (1 + drifts)}
    columns = {name: np.rint(times).T.ravel().astype(np.int64) for name, times in own.items()}
    rows = pl.DataFrame(
        {
            "rank": np.repeat(who, len(arrivals)),
            "iteration": np.tile(np.repeat(np.arange(iterations), len(calls)), ranks),
            "call": np.tile(np.arange(len(calls)), ranks * iterations),
            "start_ns": columns["arrival_ns"],
            **columns,
        }
    )
    return World(
        filled(rows.join(table, on="call", maintain_order="left"), COLLECTIVES),
        {rank: EPOCH_NS + round(offsets[rank]) for rank in range(ranks)},
        offsets,
        drifts,
        float(now.max()),
        pl.DataFrame({"rank": who, "true_ns": waits}),
    )


def instances_of(output: Matched | WaitedCollectives) -> pl.DataFrame:
    """Every call with all its columns."""
    return joined(output.rows, output.shared, output.streams)


def plain(instances: pl.DataFrame) -> pl.DataFrame:
    """Matched instances in the types of COLLECTIVES, with `duration_ns`."""
    dtypes = {name: COLLECTIVES[name] for name in instances.columns if name in COLLECTIVES}
    return instances.cast(dtypes).with_columns(
        pl.col("instance").cast(pl.Int64), duration_ns=pl.col("end_ns") - pl.col("arrival_ns")
    )


def all_exposed(instances: pl.DataFrame, last_ns: int | None = None) -> Exposed:
    """All communication, or the last so many ns of each call, as if nothing covered it."""
    start = pl.col("arrival_ns") if last_ns is None else pl.col("end_ns") - last_ns
    rows = instances.select("rank", "iteration", "end_ns", start_ns=start)
    return lambda ranks: rows.filter(pl.col("rank").is_in(ranks))


def both_ways(matched: Matched, utc_starts: dict[int, int | None]) -> pl.DataFrame:
    """The matched instances with by_duration and by_arrival, the waits either way."""
    rows = plain(instances_of(matched))
    members = dict(matched.groups.select("group", "members").iter_rows())
    parts = []
    for group, where in slices(rows["group"].to_numpy()):
        late = by_arrival(matched, rows[where], members[group], utc_starts)
        longer = by_duration(rows[where], members[group])[0]
        parts.append(
            rows[where].with_columns(
                by_duration=pl.Series(longer.ravel()), by_arrival=pl.Series(late.ravel())
            )
        )
    return pl.concat(parts)
