"""Clocks of a whole run, solved over communicators of which none spans all ranks."""

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.match.clocks import (
    ASSUMED_DRIFT_PPM,
    ASSUMED_SPREAD_NS,
    SESSION_START_ERROR_NS,
    Group,
    aligned,
    solve_clocks,
    with_hosts,
)
from rankscope.match.collectives import Matched, match
from rankscope.match.records import ClockFit, Clocks
from rankscope.match.waits import with_waits
from rankscope.match.warnings import communication_warnings
from tests.match.worlds import World, both_ways, instances_of, world
from tests.support import MakeStored, mostly_nightly

SECOND = 1_000_000_000
SEEDS = range(6)
FIRST_COLLECTIVE_NS = 12 * SECOND
"""When, about, the simulator's jobs begin to train."""


def errors(made: World, clocks: Clocks, share: float) -> dict[int, float]:
    """rank → error of its aligned time, ns, at a share of the run."""
    middle = clocks.fits[0]
    assert (middle.offset_ns, middle.drift_ppm) == (0, 0)
    moment = share * made.end_ns
    reference = made.utc_starts[0] + moment * (1 + made.drifts[0])
    found = {}
    for rank, fit in clocks.fits.items():
        own = made.utc_starts[rank] + moment * (1 + made.drifts[rank])
        moved = own - clocks.middle_ns + fit.offset_ns
        output = clocks.middle_ns + moved + fit.drift_ppm * 1e-6 * moved
        found[rank] = abs(float(output - reference))
    return found


@pytest.mark.parametrize(("skew_ns", "late_ns"), [(5_000, 30_000), (20_000, 3e6)])
def test_errors_stay_within_the_stated_residual(skew_ns: float, late_ns: float) -> None:
    within = []
    for seed in SEEDS:
        made = world(16, 30, seed, tp=4, skew_ns=skew_ns, late_ns=late_ns)
        clocks = match(made.collectives, made.utc_starts).clocks
        assert {*clocks.fits} == {*range(16)}
        assert max(fit.spread_ns for fit in clocks.fits.values()) < 50_000
        for share in (0.02, 0.5, 1.0):
            output = errors(made, clocks, share)
            # floats of UTC are good to 256 ns
            within += [output[rank] <= clocks.fits[rank].spread_ns + 512 for rank in range(1, 16)]
        for rank, fit in clocks.fits.items():
            true = made.correction(rank, clocks.middle_ns)
            assert fit.offset_ns == pytest.approx(true, abs=max(fit.spread_ns, 512))
            drift = (made.drifts[0] - made.drifts[rank]) * 1e6
            unseen = 3 * max(fit.spread_ns, 1_000) / made.end_ns * 1e6
            assert fit.drift_ppm == pytest.approx(drift, abs=unseen)
    assert np.mean(within) >= 0.95


def chain(length: int, seed: int, count: int = 60) -> tuple[list[Group], np.ndarray]:
    """Pairs of neighbours only, ends within 10 µs; offsets of the clocks."""
    rng = np.random.default_rng(seed)
    offsets = rng.integers(-5 * SECOND, 5 * SECOND, length)
    moments = np.arange(count) * 30_000_000
    groups = []
    for one in range(length - 1):
        ends = moments + one * 400_000
        pair = [ends + offsets[rank] + rng.integers(0, 10_000, count) for rank in (one, one + 1)]
        groups.append(Group((one, one + 1), np.stack(pair, axis=1), (0, 0)))
    return groups, offsets


def test_errors_add_up_along_a_chain() -> None:
    right = []
    for seed in SEEDS:
        groups, offsets = chain(12, seed)
        clocks = solve_clocks(groups, 0)
        assert {*clocks.fits} == {*range(12)}
        assert clocks.fits[11].spread_ns > 2 * clocks.fits[1].spread_ns, "links add up"
        right += [
            abs(clocks.fits[rank].offset_ns - (offsets[0] - offsets[rank]))
            <= clocks.fits[rank].spread_ns
            for rank in range(1, 12)
        ]
    assert np.mean(right) >= 0.95


def test_clocks_that_agree_do_not_drift() -> None:
    jitter = np.random.default_rng(1).integers(-1500, 1501, (60, 2))
    ends = np.arange(60)[:, None] * 30_000_000 + jitter
    fit = solve_clocks([Group((0, 1), ends, (0, 0))], 0).fits[1]
    assert fit.drift_ppm == 0.0
    assert abs(fit.offset_ns) < 1_500
    assert 500 < fit.spread_ns < 3_000


def test_instances_at_one_moment_are_no_crash() -> None:
    together = Group((0, 1), np.array([[0, -9]] * 4), (0, 0))
    assert solve_clocks([together], 0).fits[1].offset_ns == 9


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_ends_that_come_late_do_not_move_clocks(share: float) -> None:
    """A host that wakes up late now and then: milliseconds on a few ends of one rank."""
    made = world(8, 30, 1, calls="ttdttd", offset_s=2)
    rng = np.random.default_rng(0)
    mine = (made.collectives["rank"] == 3).to_numpy()
    late = mine & (rng.random(len(mine)) < share)
    moved = made.collectives["end_ns"].to_numpy() + np.where(late, 4_000_000, 0)
    spoiled = made.collectives.with_columns(end_ns=pl.Series(moved))
    clocks = match(spoiled, made.utc_starts).clocks
    output = errors(made, clocks, 0.5)
    assert max(output.values()) < 20_000
    assert clocks.fits[3].spread_ns < 100_000


def islands() -> Matched:
    """Ranks 0 and 1 share a communicator, and so do 2 and 3; nothing links the two."""
    made = world(4, 20, 2)
    only = made.collectives.filter(pl.col("gradient").not_()).with_columns(
        communicator=pl.format("named tp{}", pl.col("rank") // 2)
    )
    return match(only, made.utc_starts)


def test_a_rank_tied_to_nobody_is_absent_and_said_to_be() -> None:
    output = islands()
    assert {*output.clocks.fits} == {0, 1}
    starts: dict[int, int | None] = dict.fromkeys(range(4), 0)
    ended = instances_of(output).select("rank", ended=aligned(output.clocks, "end_ns", starts))
    assert ended.filter(pl.col("rank") > 1)["ended"].null_count() == 160
    groups = with_waits(output, starts).groups
    assert groups["clock_error_ns"].null_count() == groups["apart_ns"].null_count() == 1
    assert {*groups.filter(pl.col("apart_ns").is_null())["shown"]} == {"duration"}
    problems = [*communication_warnings(output.summary, groups, [0, 1, 2, 3])]
    assert [(each.code, each.ranks) for each in problems] == [("clocks-unaligned", (2, 3))]


def test_one_host_has_one_clock() -> None:
    output = islands().clocks
    hosts: dict[int, str | None] = {0: "a", 1: "b", 2: "b", 3: None}
    paths = {rank: f"{rank}.sqlite" for rank in range(4)}
    shared = with_hosts(output, hosts, paths)
    assert {*shared.fits} == {0, 1, 2}, "a host unknown is no host shared"
    assert shared.fits[2].offset_ns == output.fits[1].offset_ns
    assert shared.fits[2].spread_ns == output.fits[1].spread_ns + SESSION_START_ERROR_NS
    assert "one host's clock" in shared.method


def test_ranks_of_one_report_share_a_clock() -> None:
    fits = {0: ClockFit(0, 0.0, 0), 1: ClockFit(700, 3.0, 2_000), 2: ClockFit(9, 1.0, 4_000)}
    clocks = Clocks(fits, 0, "ends of shared collectives (1 communicators)")
    paths = {0: "a", 1: "b", 2: "b", 3: "b"}
    shared = with_hosts(clocks, dict.fromkeys(range(4), None), paths).fits
    assert {(shared[rank].offset_ns, shared[rank].drift_ppm) for rank in (1, 2, 3)} == {(700, 3.0)}
    assert shared[2].spread_ns == 4_000, "what remains between them is the larger residual"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_one_shared_collective_ties_clocks(count: int, seed: int) -> None:
    """Nine ranks on three hosts leave it together; before and after it drifts are unknown."""
    made = world(9, 40, seed, tp=9, calls="t", per_clock=3, drift_ppm=20.0, skew_ns=10_000)
    shared = made.collectives.filter(pl.col("iteration").is_between(5, 4 + count))
    ends = made.collectives.group_by("rank").agg(
        pl.col("arrival_ns").min().alias("first"), pl.col("end_ns").max().alias("last")
    )
    spans = {
        rank: (int(made.utc_starts[rank] or 0) + first, int(made.utc_starts[rank] or 0) + last)
        for rank, first, last in ends.iter_rows()
    }
    matched = match(shared, made.utc_starts, spans=spans)
    clocks = matched.clocks
    assert {*clocks.fits} == {*range(9)}
    groups = with_waits(matched, made.utc_starts).groups
    assert not [*communication_warnings(matched.summary, groups, [*range(9)])]
    assert {fit.drift_ppm for fit in clocks.fits.values()} == {0.0}
    shift = 5.5 / 40
    for share in (0.02, shift, 0.5, 1.0):
        output = errors(made, clocks, share)
        assert all(output[rank] <= clocks.fits[rank].spread_ns for rank in range(9)), share
    assert max(errors(made, clocks, shift).values()) < 20_000
    after = 34 / 40 * made.end_ns  # from the tie to the end
    for rank in range(1, 9):
        grown = clocks.fits[rank].spread_ns - ASSUMED_SPREAD_NS
        assert grown == pytest.approx(ASSUMED_DRIFT_PPM * 1e-6 * after, rel=0.1)


def test_few_calls_of_doubtful_members_tie_nothing() -> None:
    """Tensor-parallel pairs and data-parallel ones, each with a call: who shares it is a guess."""
    made = world(4, 1, 0, calls="td")
    assert {*match(made.collectives, made.utc_starts).clocks.fits} == {0}
    named = made.collectives.with_columns(
        communicator=pl.when("gradient")
        .then(pl.format("named dp{}", pl.col("rank") % 2))
        .otherwise(pl.format("named tp{}", pl.col("rank") // 2))
    )
    matched = match(named, made.utc_starts)
    assert {*matched.clocks.fits} == {0, 1, 2, 3}
    for rank, fit in matched.clocks.fits.items():
        error = fit.offset_ns - made.correction(rank, matched.clocks.middle_ns)
        assert abs(error) <= fit.spread_ns + 512


def test_what_measures_a_drift_goes_before_what_does_not() -> None:
    """Rank 2 shares one call with the lowest rank, and many with a rank that shares many."""
    groups, offsets = chain(3, 0)
    ends = groups[0].ends[:1, [0, 0]] + np.array([0, offsets[2] - offsets[0]])
    once = Group((0, 2), ends, (0, 0))
    spans = {rank: (int(groups[0].ends[0, 0]), int(groups[0].ends[-1, 0])) for rank in range(3)}
    for order in ([once, *groups], [*groups, once]):
        fits = solve_clocks(order, 0, spans).fits
        assert fits[2].spread_ns < ASSUMED_SPREAD_NS
    weak = solve_clocks([once], 0, spans).fits
    assert weak[2].spread_ns > ASSUMED_SPREAD_NS
    assert weak[2].offset_ns == pytest.approx(offsets[0] - offsets[2])


def test_errors_of_single_ties_add_up() -> None:
    """Ranks 0 and 1 share a call early, ranks 1 and 2 one a minute later."""
    early, late = np.zeros((1, 2), dtype=np.int64), np.full((1, 2), 60 * SECOND)
    spans = {rank: (0, 60 * SECOND) for rank in range(3)}
    fits = solve_clocks([Group((0, 1), early, (0, 0)), Group((1, 2), late, (0, 0))], 0, spans).fits
    drifted = 60 * SECOND * ASSUMED_DRIFT_PPM * 1e-6
    assert fits[1].spread_ns == pytest.approx(ASSUMED_SPREAD_NS + drifted)
    assert fits[2].spread_ns > ASSUMED_SPREAD_NS + 2 * drifted - 10
    assert fits[0].spread_ns == 0


def test_a_host_s_clock_serves_where_a_drift_is_unknown() -> None:
    second = ClockFit(5_000, 0.0, 40_000_000)
    clocks = Clocks({0: ClockFit(0, 0.0, 0), 1: second, 2: second}, 0, "ends")
    paths = {rank: f"{rank}.sqlite" for rank in range(3)}
    fits = with_hosts(clocks, {0: "a", 1: "a", 2: "b"}, paths).fits
    assert fits[1] == ClockFit(0, 0.0, SESSION_START_ERROR_NS)
    assert fits[2] == second
    far = replace(second, offset_ns=SECOND)
    elsewhere = replace(clocks, fits=clocks.fits | {1: far})
    fits = with_hosts(elsewhere, {0: "a", 1: "a", 2: "b"}, paths).fits
    assert fits[1] == far, "another machine of the same name"


@pytest.mark.parametrize("seed", [0, 1])
def test_waits_by_duration_and_by_arrival_are_true(seed: int) -> None:
    made = world(8, 40, seed, calls="ttdttd", late_ns=1_500_000)
    matched = match(made.collectives, made.utc_starts)
    wait = with_waits(matched, made.utc_starts).rows["wait"]
    output = both_ways(matched, made.utc_starts).with_columns(wait=wait)
    sums = output.group_by("rank").agg(pl.col("by_duration", "by_arrival", "wait").sum())
    both = sums.join(made.waited, on="rank")
    assert both.height == 8
    for way in ("by_duration", "by_arrival", "wait"):
        off = (both[way] / both["true_ns"] - 1).abs().max()
        assert off < 0.02, (way, off)


SCENES = [(4, 1, 5.0, 50.0), (8, 2, 5.0, 50.0), (8, 4, 0.5, 5.0)]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "tp", "offset_s", "drift_ppm"), mostly_nightly(SCENES))
def test_clocks_of_simulated_reports(
    stored: MakeStored, ranks: int, tp: int, offset_s: float, drift_ppm: float
) -> None:
    """Hosts seconds apart: the simulator's own correction, within the residual and 50 µs."""
    job = stored(
        "offsets", ranks=ranks, tp=tp, offset_s=offset_s, drift_ppm=drift_ppm, skew_us=20.0
    )
    assert job.truth is not None
    facts, clocks = job.analysis().facts, job.matched().clocks
    assert facts.clocks_aligned
    assert facts.residual_ns is not None
    assert facts.residual_ns < 50_000
    reference = job.truth.clocks[0]
    epoch = reference.utc(0)
    moment = round((clocks.middle_ns - epoch) / (1 + reference.drift_ppb * 1e-9))
    wrong = [
        rank
        for rank in range(1, ranks)
        if abs(facts.offsets_ns[rank] - job.truth.correction(rank, moment))
        > clocks.fits[rank].spread_ns
    ]
    assert len(wrong) <= 0.05 * ranks, wrong
    for rank in range(ranks):
        drift = (reference.drift_ppb - job.truth.clocks[rank].drift_ppb) / 1000
        unseen = 3 * facts.residual_ns / (job.truth.middle() - FIRST_COLLECTIVE_NS) / 2 * 1e6
        assert facts.drift_ppm[rank] == pytest.approx(drift, abs=unseen)
    truth = pl.DataFrame(job.truth.collectives, infer_schema_length=None).rename(
        {"op": "operation"}
    )
    key = ["rank", "operation", "end_ns"]
    analysis = job.analysis()
    output = both_ways(job.matched(), analysis.scope.utc_starts)
    both = output.join(truth.select(*key, "wait_ns"), on=key)
    assert both.height == truth.height
    true = both["wait_ns"].sum()
    for way in ("by_duration", "by_arrival"):
        assert both[way].sum() == pytest.approx(true, rel=0.02), way
