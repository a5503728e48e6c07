"""Two runs compared: a change has its interval, noise is no change."""

from functools import lru_cache
from itertools import combinations

import numpy as np
import polars as pl
import pytest

from rankscope.errors import UsageError
from rankscope.history.diff.compare import RunDiff, diff_runs
from rankscope.history.diff.shifts import Change
from rankscope.model.kinds import NAMED_PHASES
from tests.forge import scene, simulate
from tests.support import MS

EXTRA_MS = 4.6
"""A tenth of an iteration."""

METRICS = ["iteration", "work", "load", "forward", "backward", "optimizer", "other"]
WAITED = "exposed_communication"


@lru_cache
def measured(
    seed: int, *, name: str = "plain", ranks: int = 4, **parameters: object
) -> pl.DataFrame:
    """What the simulator knows of a job's iterations after the first, on the gpu clock."""
    job = scene(name, ranks=ranks, seed=seed, **parameters)
    frame = pl.DataFrame(simulate(job).truth.iterations, infer_schema_length=None)
    return frame.filter(pl.col("iteration") > 0, clock="gpu")


def of(found: RunDiff, metric: str, rank: int | None = None) -> Change:
    among = found.metrics if rank is None else found.ranks
    (one,) = [each for each in among if each.metric == metric and each.rank == rank]
    return one


def test_a_run_is_like_itself() -> None:
    run = measured(0)
    for statistic in ("mean", "median", "p95"):
        found = diff_runs(run, run, ["iteration", "work", "load"], statistic)
        for each in (*found.metrics, *found.ranks):
            assert each.before_ns == each.after_ns
            assert each.change == 0 or each.before_ns == 0
            assert not each.certain
        assert found.sentence.startswith("Both are the same run")
        assert found.problems == ()


def test_noise_is_no_change() -> None:
    """The same job with other random numbers and wandering speeds: nothing of it has changed."""
    runs = [measured(seed, ranks=8, noise=0.03, walk=0.05) for seed in range(3)]
    for before, after in combinations(runs, 2):
        found = diff_runs(before, after, METRICS, "mean")
        assert not any(each.certain for each in (*found.metrics, *found.ranks))


def test_nothing_can_become_less_than_nothing() -> None:
    """However wide noise makes an interval, it does not reach below -100 %."""
    before, after = (
        measured(seed).with_columns(
            load_ns=10 ** (9 * (pl.int_range(pl.len()) % 40 == 0).cast(pl.Int64))
        )
        for seed in (0, 1)
    )
    load = of(diff_runs(before, after, ["iteration", "load"], "mean"), "load")
    assert load.low == -1
    assert load.high is not None
    assert load.high > 0


@pytest.mark.parametrize("where", ["load", "forward", "backward", "optimizer"])
def test_a_straggler_is_found_though_speeds_wander(where: str) -> None:
    """A tenth of an iteration more on one rank, and nothing said of the others' work."""
    before = measured(0, ranks=8, noise=0.03, walk=0.05)
    after = measured(1, name="planted", ranks=8, walk=0.05, where=where, rank=5, extra_ms=EXTRA_MS)
    found = diff_runs(before, after, METRICS, "mean")
    assert of(found, where, 5).certain
    own = ("load", "forward", "backward", "optimizer")
    assert {each.rank for each in found.ranks if each.certain and each.metric in own} == {5}


def test_what_all_ranks_do_longer_is_found_though_speeds_wander() -> None:
    before, after = (measured(seed, ranks=8, noise=0.03, walk=0.05) for seed in range(2))
    slower = after.with_columns(
        (pl.col(f"{name}_ns") + round(EXTRA_MS * MS)).alias(f"{name}_ns")
        for name in ("iteration", "work", "backward")
    )
    found = diff_runs(before, slower, METRICS, "mean")
    assert found.iteration.certain
    assert [each.metric for each in found.metrics if each.certain] == [
        "iteration", "work", "backward",
    ]  # fmt: skip


def test_rare_iterations_are_noise() -> None:
    """Four stalls in the one run, two in the other: so it may come with the same job."""
    values = np.full((2, 4, 40), 100.0 * MS)
    values[0, 2, [3, 13, 23, 33]] += 50 * MS
    values[1, 2, [7, 27]] += 50 * MS
    found = diff_runs(table(values[0]), table(values[1]), ["iteration"], "mean")
    assert abs(of(found, "iteration", 2).change or 0) > 0.02
    assert not any(each.certain for each in (*found.metrics, *found.ranks))


def test_half_of_the_ranks_may_have_changed() -> None:
    rng = np.random.default_rng(0)
    before, after = 100 * MS * (1 + rng.normal(0, 0.01, (2, 8, 40)))
    after[4:] *= 1.1
    runs = [table(values).with_columns(work_ns="iteration_ns") for values in (before, after)]
    found = diff_runs(runs[0], runs[1], ["work"], "mean")
    assert [of(found, "work", rank).certain for rank in range(8)] == [False] * 4 + [True] * 4


def test_runs_of_different_jobs_are_reported_and_nothing_is_certain() -> None:
    run = measured(0)
    tenfold = run.with_columns(pl.col("^.*_ns$") * 10)
    signs = ("iterations 10 times as long", "no kernel in common")
    found = diff_runs(run, tenfold, METRICS, "mean", signs)
    assert found.sentence == (
        "Inconclusive: these look like different jobs: iterations 10 times as long; no kernel in "
        "common."
    )
    assert [each.code for each in found.problems] == ["jobs-differ"]
    assert not any(each.certain for each in (*found.metrics, *found.ranks))
    assert found.iteration.change == pytest.approx(9), "numbers are given all the same"


def test_a_metric_of_one_run_alone_is_said_to_be_left_out() -> None:
    run = measured(0)
    blank = run.with_columns(backward_ns=pl.lit(None, pl.Int64))
    found = diff_runs(run, blank, METRICS, "mean")
    [problem] = found.problems
    assert problem.code == "metrics-differ"
    assert problem.message == "backward: known in some of the runs only, and left out"
    assert of(found, "backward").before_ns is None


def test_one_sign_of_another_job_may_be_a_change() -> None:
    run = measured(0)
    tenfold = run.with_columns(pl.col("^.*_ns$") * 10)
    for other in (tenfold, tenfold.filter(pl.col("rank") > 0)):
        found = diff_runs(run, other, METRICS, "mean", ("iterations 10 times as long",))
        assert found.sentence.endswith(" These may be different jobs: iterations 10 times as long.")
        assert found.problems[-1].code == "jobs-differ", "whether or not ranks differ, too"
    assert found.iteration.certain


def test_the_rest_of_a_rank_is_compared_where_both_runs_name_its_phases() -> None:
    """A rank without ranges spends all its work in `other`."""
    run, unnamed = measured(0), pl.col("rank") == 1
    phases = [f"{each}_ns" for each in NAMED_PHASES]
    before = run.with_columns(
        pl.when(unnamed).then("work_ns").otherwise("other_ns").alias("other_ns"),
        *(pl.when(~unnamed).then(each).alias(each) for each in phases),
    )
    found = diff_runs(before, run, METRICS, "mean")
    assert of(found, "other", 1).before_ns is None
    assert of(found, "other", 0).before_ns is not None
    assert "Better" not in found.sentence


@pytest.mark.parametrize("extra_ms", [4.0, 8.0])
def test_slower_and_faster_are_found(extra_ms: float) -> None:
    before, after = measured(0), measured(1, name="planted", where="forward", extra_ms=extra_ms)
    slower = diff_runs(before, after, METRICS, "mean")
    faster = diff_runs(after, before, METRICS, "mean")
    for found, sign, word in ((slower, 1, "slower"), (faster, -1, "faster")):
        whole = found.iteration
        assert whole.certain
        assert whole.change is not None
        assert whole.low is not None
        assert whole.high is not None
        assert sign * whole.change > 0
        assert whole.low <= whole.change <= whole.high
        assert sign * whole.low > 0
        assert word in found.sentence
        forward = of(found, "forward", 3)
        assert forward.certain
        assert abs((forward.after_ns or 0) - (forward.before_ns or 0)) == pytest.approx(
            extra_ms * MS, rel=0.1
        )
        assert "rank 3 forward" in found.sentence
        for rank in (0, 1, 2):
            assert not of(found, "forward", rank).certain
    assert "Worse: rank 3 forward" in slower.sentence
    assert "Better: rank 3 forward" in faster.sentence


@pytest.mark.parametrize(
    ("waited_ms", "words"),
    [
        (30.0, "Worse: ranks 1-2 backward up to +30.0 ms."),
        (0.0, "+30.0 ms, ranks 0, 3 exposed_communication up to +30.0 ms."),
    ],
)
def test_a_rank_that_waits_for_a_slower_one_is_no_worse(waited_ms: float, words: str) -> None:
    frame = measured(0)
    slow = pl.col("rank").is_in([1, 2])
    zero = frame.with_columns(pl.lit(0).alias(f"{name}_ns") for name in ("wait", WAITED))
    after = zero.with_columns(
        pl.col("iteration_ns") + 30 * MS,
        pl.col("backward_ns") + 30 * MS * slow.cast(pl.Int64),
        (30 * MS * (~slow).cast(pl.Int64)).alias(f"{WAITED}_ns"),
        (round(waited_ms * MS) * (~slow).cast(pl.Int64)).alias("wait_ns"),
    )
    assert words in diff_runs(zero, after, [*METRICS, "wait", WAITED], "mean").sentence


def test_a_rank_that_waits_less_because_it_is_slower_is_no_better() -> None:
    frame = measured(0)
    slow = pl.col("rank") == 1
    before = frame.with_columns(pl.lit(30 * MS).alias(f"{name}_ns") for name in ("wait", WAITED))
    after = before.with_columns(
        pl.col("backward_ns") + 30 * MS * slow.cast(pl.Int64),
        *(
            (pl.col(f"{name}_ns") - 30 * MS * slow.cast(pl.Int64)).alias(f"{name}_ns")
            for name in ("wait", WAITED)
        ),
    )
    found = diff_runs(before, after, [*METRICS, "wait", WAITED], "mean")
    assert found.sentence.endswith(" Worse: rank 1 backward +30.0 ms.")


def test_longer_waits_alone_name_nobody_as_worse() -> None:
    before = measured(0).with_columns(pl.lit(0).alias(f"{name}_ns") for name in ("wait", WAITED))
    longer = pl.col(f"{WAITED}_ns", "wait_ns", "iteration_ns") + 30 * MS
    found = diff_runs(before, before.with_columns(longer), [*METRICS, "wait", WAITED], "mean")
    assert of(found, "wait", 0).certain
    assert "Worse" not in found.sentence


def test_a_phase_that_grew_on_all_ranks_beyond_no_single_one_is_named() -> None:
    """It varies: the change is certain in the mean over ranks, and on no rank alone."""
    before = measured(0)
    extra = np.random.default_rng(1).normal(2.0, 2.5, before.height) * MS
    after = before.with_columns(
        pl.col("forward_ns", "iteration_ns") + pl.Series(extra).round().cast(pl.Int64)
    )
    found = diff_runs(before, after, METRICS, "mean")
    assert not any(of(found, "forward", rank).certain for rank in range(4))
    assert found.sentence.endswith(" Worse: forward +1.88 ms on average over ranks.")


def test_a_rank_that_changed_much_more_is_named_alone() -> None:
    frame = measured(0)
    more = pl.when(pl.col("rank") == 3).then(30 * MS).otherwise(5 * MS)
    after = frame.with_columns(
        pl.col("iteration_ns") + 30 * MS, pl.col("backward_ns", "work_ns") + more
    )
    words = "Worse: rank 3 backward +30.0 ms, ranks 0-2 backward up to +5.00 ms."
    assert words in diff_runs(frame, after, METRICS, "mean").sentence


def test_intervals_hold_the_truth() -> None:
    """A change of 8 % in the mean: within the stated 95 % nearly always."""
    held = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        runs = []
        for level in (100.0, 108.0):
            values = level * MS * (1 + rng.normal(0, 0.03, (4, 40)))
            runs.append(table(values))
        whole = diff_runs(runs[0], runs[1], ["iteration"], "mean").iteration
        assert whole.low is not None
        assert whole.high is not None
        held.append(whole.low - 0.005 <= 0.08 <= whole.high + 0.005)
        assert whole.certain
    assert np.mean(held) >= 0.85


def table(values: np.ndarray, first: int = 0) -> pl.DataFrame:
    """rank, iteration, iteration_ns of an array of shape (ranks, iterations)."""
    ranks, count = values.shape
    return pl.DataFrame(
        {
            "rank": np.repeat(np.arange(ranks), count),
            "iteration": np.tile(np.arange(first, first + count), ranks),
            "iteration_ns": values.ravel().astype(np.int64),
        }
    )


def test_windows_may_differ_in_place_and_length() -> None:
    rng = np.random.default_rng(0)
    before = table(100 * MS * (1 + rng.normal(0, 0.01, (4, 30))))
    after = table(120 * MS * (1 + rng.normal(0, 0.01, (4, 55))), first=500)
    whole = diff_runs(before, after, ["iteration"], "mean").iteration
    assert whole.certain
    assert whole.change == pytest.approx(0.2, abs=0.01)


def test_changes_below_a_hundredth_are_not_reported_however_sure() -> None:
    steady = np.full((4, 30), 100.0 * MS)
    found = diff_runs(table(steady), table(steady * 1.005), ["iteration"], "mean")
    assert not found.iteration.certain
    assert found.iteration.change == pytest.approx(0.005, rel=1e-3)
    assert diff_runs(table(steady), table(steady * 1.02), ["iteration"], "mean").iteration.certain


def test_ranks_of_one_run_alone_are_left_out_and_reported() -> None:
    before, after = measured(0, ranks=4), measured(1, ranks=8)
    found = diff_runs(before, after.filter(pl.col("rank") != 2), METRICS, "mean")
    assert {each.rank for each in found.ranks} == {0, 1, 3}
    (problem,) = found.problems
    assert (problem.code, problem.ranks) == ("ranks-differ", (2, 4, 5, 6, 7))
    assert of(found, "iteration").before_ns == round(
        before.filter(pl.col("rank") != 2)["iteration_ns"].mean()
    )


def test_no_rank_in_common() -> None:
    run = measured(0)
    found = diff_runs(run, run.with_columns(pl.col("rank") + 100), METRICS, "mean")
    assert found.sentence.startswith("Inconclusive")
    assert found.ranks == ()
    assert found.iteration.change is None


def test_too_few_iterations() -> None:
    run = measured(0)
    for count in (1, 3):
        few = run.filter(pl.col("iteration") <= count)
        found = diff_runs(run, few, METRICS, "mean")
        assert found.sentence.startswith("Inconclusive")
        assert [each.code for each in found.problems] == ["few-iterations"]
        assert not any(each.certain for each in (*found.metrics, *found.ranks))


def test_unknown_is_no_change() -> None:
    run = measured(0)
    holes = run.with_columns(load_ns=pl.when(pl.col("rank") == 1).then(None).otherwise("load_ns"))
    found = diff_runs(run, holes, METRICS, "mean")
    load = of(found, "load", 1)
    assert (load.before_ns, load.after_ns, load.change, load.certain) == (None, None, None, False)
    assert of(found, "load", 0).change == 0


def test_a_phase_that_is_unknown_at_the_begin_is_compared_in_the_other_iterations() -> None:
    run = measured(0)
    first = pl.col("iteration") == 1
    before = run.with_columns(load_ns=pl.when(first).then(None).otherwise("load_ns"))
    quicker = pl.when(pl.col("rank") == 1).then(5 * MS).otherwise(0)
    after = before.with_columns(load_ns=pl.col("load_ns") + quicker)
    assert " Worse: rank 1 load +5.00 ms." in diff_runs(before, after, METRICS, "mean").sentence
    few = run.with_columns(load_ns=pl.when(pl.col("iteration") < 5).then("load_ns"))
    assert of(diff_runs(before, few, METRICS, "mean"), "load").change is None


def test_what_was_nothing_has_no_relative_change() -> None:
    run = measured(0).with_columns(other_ns=pl.lit(0))
    more = run.with_columns(other_ns=pl.lit(5 * MS))
    other = of(diff_runs(run, more, METRICS, "mean"), "other")
    assert (other.before_ns, other.after_ns, other.change) == (0, 5 * MS, None)
    assert other.certain
    assert (other.low, other.high) == (None, None), "no base to be relative to"


def runs_of(seed: int, count: int, apart: float, slower: float = 1.0) -> list[pl.DataFrame]:
    """Runs of 4 ranks whose speed differs by `apart` from run to run; the last by `slower`, too."""
    drawn = np.random.default_rng(seed)
    steady = drawn.normal(100 * MS, 0.2 * MS, (count, 4, 40))
    speeds = drawn.normal(1, apart, (count, 1, 1))
    speeds[-1] *= slower
    return [table(values) for values in steady * speeds]


@pytest.mark.slow
def test_noise_between_runs_is_no_change() -> None:
    """Each run has a speed of its own, of which its halves show nothing."""
    certain = {"halves": 0, "runs": 0}
    for seed in range(100):
        *before, after = runs_of(seed, 6, 0.02)
        certain["halves"] += diff_runs(before[-1], after, ["iteration"], "mean").iteration.certain
        certain["runs"] += diff_runs(before, after, ["iteration"], "mean").iteration.certain
    assert certain["runs"] <= 5, "2 % are expected"
    assert certain["halves"] > 20, "else the runs do not differ enough for this test"


def test_a_change_beyond_the_noise_between_runs_is_certain() -> None:
    found = [
        diff_runs(before, after, ["iteration"], "mean").iteration
        for *before, after in (runs_of(seed, 9, 0.01, slower=1.15) for seed in range(20))
    ]
    assert all(each.certain for each in found)
    assert np.mean([each.change for each in found]) == pytest.approx(0.15, abs=0.01)


def test_two_runs_are_no_baseline() -> None:
    *before, after = runs_of(0, 3, 0.01)
    with pytest.raises(UsageError, match="2 runs") as raised:
        diff_runs(before, after, ["iteration"], "mean")
    assert "at least 3" in (raised.value.hint or "")
