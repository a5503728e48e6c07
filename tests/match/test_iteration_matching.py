"""Iterations without numbers: paired by what their collectives tell, else refused."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError, Unpaired
from rankscope.match.iteration_matching import (
    check_pairing,
    most_unchanged,
    of_other_steps,
    pair_iterations,
)
from rankscope.match.records import ClockFit, Clocks
from rankscope.model.schema import COLLECTIVES, RANK_ITERATIONS
from tests.forge import Markers, forge, scene
from tests.frames import filled
from tests.support import MakeStored, mostly_nightly


@pytest.mark.parametrize("late", mostly_nightly([2, 1, 5]))
def test_captures_that_start_late_are_shifted(stored: MakeStored, late: int) -> None:
    job = stored("late_capture", late=late)
    analysis = job.analysis()
    codes = {problem.code: problem for problem in analysis.warnings}
    assert codes["windows-shifted"].ranks == (3,)
    assert f"rank 3 by {late}" in codes["windows-shifted"].message
    assert analysis.facts.matched_by == "ordinal"
    verdict = analysis.verdict
    assert (verdict.kind, verdict.ranks, verdict.period) == ("periodic", (0,), 7)
    assert verdict.iterations == tuple(i for i in range(0, 30, 7) if i >= late and i)


@pytest.mark.slow
def test_numbers_need_no_pairing(stored: MakeStored) -> None:
    analysis = stored("late_capture", numbered=True).analysis()
    assert analysis.facts.matched_by == "number"
    assert {problem.code for problem in analysis.warnings} == {"iterations-uneven"}
    assert analysis.selection.numbers + analysis.selection.warmup == tuple(range(2, 30))


@pytest.mark.slow
def test_counting_alone_is_reported(stored: MakeStored) -> None:
    job = stored("planted", kind="balanced")
    assert "matched-by-ordinal" not in {problem.code for problem in job.analysis().warnings}
    analysis = stored("late_capture", late=0).analysis()
    assert analysis.facts.matched_by == "ordinal"
    assert "matched-by-ordinal" in {problem.code for problem in analysis.warnings}
    assert "windows-shifted" not in {problem.code for problem in analysis.warnings}


@pytest.mark.slow
def test_sequences_that_fit_nowhere_leave_the_captures(tmp_path: Path) -> None:
    job = scene("no_sync", ranks=4, iterations=24, every=4)
    job = replace(job, markers=Markers(iteration="train_step"))
    forge(job, tmp_path / "a")
    forge(replace(job, reduce_every=3), tmp_path / "b")
    reports = [tmp_path / folder / f"report_rank_{rank}.sqlite" for folder, rank in
               (("a", 0), ("a", 1), ("b", 2), ("a", 3))]  # fmt: skip
    compared = rankscope.ingest(reports, tmp_path / "run.duckdb").compare()
    assert compared.facts.iterations == (0,)
    [said] = [each for each in compared.warnings if each.code == "capture-whole"]
    assert "the collectives of rank 2" in said.message


@pytest.mark.slow
def test_a_late_capture_where_only_the_sequence_tells(tmp_path: Path) -> None:
    """Every fourth iteration reduces; with the clocks unknown the pattern alone fits."""
    job = scene("no_sync", ranks=4, iterations=24, every=4)
    export = replace(job.export, capture_from=(0, 0, 0, 3))
    forge(replace(job, markers=Markers(iteration="train_step"), export=export), tmp_path)
    run = rankscope.ingest([tmp_path], tmp_path / "run.duckdb")
    starts = run.iterations().group_by("rank").agg(pl.col("iteration").min()).sort("rank")
    assert starts["iteration"].to_list() == [0, 0, 0, 3]


STEP_NS, SKEW_NS = 10_000_000, 20_000
Call = tuple[str, str, str]  # place, communicator and operation
Calls = dict[int, list[list[Call]]]  # rank → iteration → calls

REDUCED: Call = ("host", "MPI_Allreduce", "all_reduce")
EXCHANGED: Call = ("host", "MPI_Sendrecv", "point_to_point")
GATHERED: Call = ("host", "MPI_Allgather", "all_gather")


MS = 10**6


def paired(
    calls: Calls,
    offsets: dict[int, int] | None = None,
    merged: dict[int, int] | None = None,
    *,
    seed: int = 0,
    varies: float = 0.1,
    skew_ns: int = SKEW_NS,
    apart_ns: int = 1,
) -> tuple[dict[int, int], dict[str, tuple[int, ...]]]:
    """Shifts, and the ranks of each warning, for calls that end every `STEP_NS`, or nearly.

    Args:
        calls: of each iteration.
        offsets: rank → the step that is its first iteration.
        merged: rank → its iteration that is two steps.
        seed: of random numbers.
        varies: largest part by which a step is shorter or longer.
        skew_ns: how far the ends of one collective lie apart.
        apart_ns: how far those of the last one of a step do, whose members are other ranks.
    """
    rng = np.random.default_rng(seed)
    steps = [(rank, i) for rank, each in calls.items() for i in range(len(each))]
    rows = []
    moments = np.cumsum(
        rng.uniform(1 - varies, 1 + varies, max(map(len, calls.values())) + 50) * STEP_NS
    )
    for rank, each in calls.items():
        double = (merged or {}).get(rank, len(each))
        for i, made in enumerate(each):
            first = i + (offsets or {}).get(rank, 0)
            for step in [first] * (i <= double) + [first + 1] * (i >= double):
                for at, call in enumerate(made):
                    end = int(moments[step] + at * STEP_NS // 10 + rng.integers(skew_ns))
                    end += int(rng.integers(apart_ns)) if call == made[-1] else 0
                    rows.append((rank, i, *call, at, end))
    names = ["rank", "iteration", "place", "communicator", "operation", "ordinal", "end_ns"]
    table = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        arrival_ns="end_ns", start_ns="end_ns"
    )
    iterations = pl.DataFrame(steps, schema=["rank", "iteration"], orient="row")
    shifts, problems = pair_iterations(
        filled(iterations.with_columns(complete=pl.lit(True)), RANK_ITERATIONS),
        lambda: filled(table, COLLECTIVES),
        dict.fromkeys(calls, 10**18),
        [*calls],
    )
    return shifts, {problem.code: problem.ranks for problem in problems}


@pytest.mark.parametrize("last", [0, 3])
def test_a_halo_exchange_whose_captures_are_cut_differently(last: int) -> None:
    """Ranks at the ends exchange with one neighbour; two ranks have no report.

    The first window of some ranks holds set-up calls, and the last one of others lacks its
    reduction.
    """
    calls: Calls = {}
    for rank in (0, 1, 3, 4, 6, 7):
        inner = [EXCHANGED] * (1 if rank in (0, 7) else 2)
        calls[rank] = [[*inner, REDUCED] for _ in range(533)]
    for rank in (1, 4):
        calls[rank][0] = [GATHERED, REDUCED, REDUCED, *calls[rank][0]]
    calls[6][-1] = calls[6][-1][:-1]
    shifts, warned = paired(calls, {7: last})
    assert shifts == ({7: last} if last else {})
    assert warned["matched-by-ordinal"] == ()


def test_a_chain_whose_ends_share_a_communicator() -> None:
    """First and last stage reduce their embedding; all of a replica reduce their norm."""
    norm: Call = ("device", "stream 20", "all_reduce")
    calls: Calls = {
        rank: [
            [("device", "stream 7", "all_reduce")] * (2 if rank in (0, 3) else 0)
            + ([("device", "stream 9", "reduce_scatter")] if rank == 1 else [])
            + [norm]
            for _ in range(40)
        ]
        for rank in range(4)
    }
    shifts, warned = paired(calls, {2: 1})
    assert shifts == {2: 1}
    assert warned["matched-by-ordinal"] == ()


def test_ranks_without_common_collectives_are_paired_by_counting() -> None:
    """Two replicas reduce twice, two five times as often: nothing tells, nothing contradicts."""
    calls: Calls = {
        rank: [[("device", "stream 7", "all_reduce")] * (2 if rank < 2 else 5)] * 30
        for rank in range(4)
    }
    shifts, warned = paired(calls)
    assert shifts == {}
    assert warned == {"matched-by-ordinal": (2, 3)}


def test_one_iteration_each_is_not_counted() -> None:
    """Nothing was counted: the two captures are compared because there are no others."""
    iterations = pl.DataFrame({"rank": [0, 1], "iteration": [0, 0], "complete": [True, True]})
    tables = (filled(iterations, RANK_ITERATIONS), lambda: pl.DataFrame(schema=COLLECTIVES))
    shifts, [problem] = pair_iterations(*tables, dict.fromkeys(range(2)), [0, 1])
    assert not shifts
    assert "is assumed" in problem.message


def test_of_many_ranks_that_count_from_other_numbers_a_few_are_named() -> None:
    _, [warning] = most_unchanged({rank: rank // 2 for rank in range(100)})
    assert "ranks 2-3 by 1, ranks 4-5 by 2" in warning.message
    assert warning.message.endswith(" and 41 more")
    assert len(warning.ranks) == 98


def test_one_iteration_each_with_different_numbers_proves_nothing() -> None:
    times = {"start_ns": [0, 0], "end_ns": [9, 9], "number": [10, 11], "complete": [True, True]}
    iterations = filled(
        pl.DataFrame({"rank": [0, 1], "iteration": [10, 11], **times}), RANK_ITERATIONS
    )
    none = filled(pl.DataFrame(schema=COLLECTIVES), COLLECTIVES)
    with pytest.raises(Unpaired, match="share no number"):
        pair_iterations(iterations, lambda: none, dict.fromkeys(range(2), 10**18), [])


def test_an_odd_step_in_a_hundred_contradicts_nothing() -> None:
    calls: Calls = {rank: [[REDUCED]] * 100 for rank in range(2)}
    calls[1] = [*calls[1][:50], [REDUCED, REDUCED], *calls[1][51:]]
    assert paired(calls) == ({}, {"matched-by-ordinal": ()})


@pytest.mark.parametrize("lost", [(4,), (3, 5)])
def test_steps_that_lost_records_leave_the_others_paired(lost: tuple[int, ...]) -> None:
    """The last collectives are lost as well, so that these steps seem to end early."""
    calls: Calls = {rank: [[REDUCED] * 8] * 10 for rank in range(3)}
    calls[1] = [[REDUCED] * (2 if i in lost else 8) for i in range(10)]
    assert paired(calls) == ({}, {"matched-by-ordinal": ()})
    assert paired(calls, {0: 0, 1: 2, 2: 0})[0] == {1: 2}


def test_a_rank_that_differs_in_most_steps_is_not_said_to_have_lost_records() -> None:
    calls: Calls = {rank: [[REDUCED] * 8] * 16 for rank in range(2)}
    calls[1] = [[REDUCED] * (2 if i % 3 else 8) for i in range(16)]
    with pytest.raises(Unpaired, match="match at no shift"):
        paired(calls)


def test_a_collective_that_is_shared_proves_a_shift_where_the_last_one_is_not() -> None:
    """As of tensor-parallel ranks whose gradients are reduced with ranks of other groups."""
    calls: Calls = {rank: [[GATHERED, REDUCED]] * 20 for rank in range(2)}
    assert paired(calls, {0: 0, 1: 1}, apart_ns=STEP_NS // 2)[0] == {1: 1}
    assert paired(calls, apart_ns=STEP_NS // 2) == ({}, {"matched-by-ordinal": ()})


def test_regular_steps_on_noisy_hosts_prove_no_shift() -> None:
    """Steps of 47 ms that vary by 1 %, ends of gloo that lie 0.3 ms apart: by chance some agree."""
    calls: Calls = {rank: [[REDUCED]] * 10 for rank in range(8)}
    for seed in range(20):
        shifts, _ = paired(calls, seed=seed, varies=0.01, skew_ns=STEP_NS // 150)
        assert shifts == {}


def test_four_steps_that_are_alike_prove_nothing() -> None:
    """Only one shift leaves enough of them to compare."""
    calls: Calls = {rank: [[REDUCED]] * 4 for rank in range(2)}
    assert paired(calls, {0: 0, 1: 1}) == ({}, {"matched-by-ordinal": (1,)})
    assert paired(calls) == ({}, {"matched-by-ordinal": ()})


@pytest.mark.parametrize("every", [3, 20])
def test_a_pattern_shows_the_shift_exactly(every: int) -> None:
    """Ends say nothing (each report has its own zero), but every few steps also gather."""
    calls: Calls = {
        rank: [[REDUCED, GATHERED] if (i + rank) % every == 0 else [REDUCED] for i in range(60)]
        for rank in range(2)
    }
    shifts, _ = paired(calls, {0: 0, 1: 1})
    assert shifts == {1: 1}


def test_sequences_that_contradict_every_shift() -> None:
    calls: Calls = {
        rank: [[REDUCED, GATHERED] if i % (3 + rank) == 0 else [REDUCED] for i in range(60)]
        for rank in range(2)
    }
    with pytest.raises(ReportError, match="match at no shift"):
        paired(calls)


@pytest.mark.parametrize(
    ("steps", "merged", "why"),
    [
        (20, 17, "prove no other shift"),
        (10, 3, "prove no other shift"),  # a single one fits: behind the step
        (60, 30, "different iterations"),
    ],
)
def test_two_steps_that_were_taken_for_one(steps: int, merged: int, why: str) -> None:
    """From there on, equal numbers are different steps, and no shift repairs that."""
    calls: Calls = {0: [[REDUCED]] * (steps - 1), 1: [[REDUCED]] * steps}
    with pytest.raises(Unpaired, match=why):
        paired(calls, merged={0: merged})


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(("late_from", "contradicted"), [(30, False), (20, True), (29, False)])
def test_aligned_clocks_contradict_a_pairing(
    ranks: int, late_from: int, contradicted: bool
) -> None:
    """Ranges of 1 ms mark the ends of steps of 100 ms; half of the ranks are 2 steps off from one
    on."""
    late = ranks // 2
    rows = [
        (rank, i, True, at, at + MS)
        for rank in range(ranks)
        for i in range(30)
        for at in [(i + (2 if rank < late and i >= late_from else 0)) * 100 * MS + rank * MS]
    ]
    names = ["rank", "iteration", "complete", "start_ns", "end_ns"]
    iterations = pl.DataFrame(rows, names, orient="row")
    clocks = Clocks({rank: ClockFit(0, 0.0, 100) for rank in range(ranks)}, 0, "ends")
    utc = dict.fromkeys(range(ranks), 0)
    with pytest.raises(Unpaired, match="of rank 0") if contradicted else nullcontext():
        check_pairing(iterations, lambda: iterations, clocks, utc)
    # hosts that stall, or launch ahead, are no contradiction: all leave the collectives together
    together = iterations.with_columns(end_ns=pl.col("iteration") * 100 * MS)
    check_pairing(iterations, lambda: together, clocks, utc)
    if contradicted:  # a rank without collectives proves nothing
        with pytest.raises(Unpaired, match="of rank 0"):
            check_pairing(iterations, lambda: together.filter(pl.col("rank") > 0), clocks, utc)


@pytest.mark.parametrize(
    ("lengths", "are_others"),
    [((197, 155, 189), True), ((165, 188, 157), False), ((164, 230), True), ((180, 190), False)],
)
def test_few_steps_of_other_lengths_are_other_steps(
    lengths: tuple[int, ...], are_others: bool
) -> None:
    """All ranks leave a collective together. Two ends of unknown distance tell one length."""
    ends = np.cumsum([164, 188, 157][: len(lengths)]) * MS
    assert of_other_steps(np.cumsum(lengths) * MS, ends, 0) == are_others
